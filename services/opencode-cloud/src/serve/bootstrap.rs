//! The first organisation and its first key.
//!
//! A service with its own data folder keeps the first key there, beside its other secrets. Each start finds it and
//! can write it into the caller's client profile again. So a start that fails later, a lost profile or another port
//! locks nobody out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use domain::{Clock, OrgId};
use store::{NewKey, Store, StoreError};

use super::ServeError;
use crate::profile::{ProfileError, ProfileFile};

/// The file of the first key in a data folder.
const KEY_FILE: &str = "client.key";

/// The key for clients.
#[derive(Debug)]
pub(crate) enum FirstKey {
    /// A key that the data folder keeps in a file.
    Kept {
        /// The key.
        key: String,
        /// Its file.
        file: PathBuf,
    },
    /// The key of --bootstrap-key.
    Given,
    /// The database has keys, but the data folder has none of them.
    Elsewhere,
}

/// Returns the row for the key of `--bootstrap-key`. Checked before anything starts, so that a bad key is refused at
/// once.
pub(crate) fn given(key: Option<&str>) -> Result<Option<NewKey>, ServeError> {
    let refused = |error| ServeError::Usage(format!("--bootstrap-key: {error}"));
    key.map(auth::bootstrap_key).transpose().map_err(refused)
}

/// Makes sure that the first organisation and the given key exist.
pub(crate) async fn give_key(
    store: &Store,
    clock: &dyn Clock,
    given: NewKey,
) -> Result<(), ServeError> {
    let now = clock.now_ms();
    store.ensure_organisation(OrgId::FIRST, "default".into(), now).await?;
    Ok(store.create_key(OrgId::FIRST, given, now).await?)
}

/// Makes sure that the first organisation and a key for it exist. The data folder keeps a new key.
pub(crate) async fn first_key(
    store: &Store,
    clock: &dyn Clock,
    given: Option<NewKey>,
    data: &Path,
) -> Result<FirstKey, ServeError> {
    if let Some(key) = given {
        give_key(store, clock, key).await?;
        return Ok(FirstKey::Given);
    }
    let now = clock.now_ms();
    store.ensure_organisation(OrgId::FIRST, "default".into(), now).await?;
    let file = data.join(KEY_FILE);
    let kept = kept(&file)?;
    if store.count_keys(OrgId::FIRST).await? > 0 {
        let Some(key) = kept else { return Ok(FirstKey::Elsewhere) };
        return match store.key_by_hash(auth::hash(&key).to_vec(), now).await {
            Ok(_) => Ok(FirstKey::Kept { key, file }),
            Err(StoreError::NotFound) => Ok(FirstKey::Elsewhere), // revoked, or of another database
            Err(error) => Err(error.into()),
        };
    }
    // Written to disk before the database: a start that dies in between makes the same key valid later.
    let (key, row) = match kept {
        Some(key) => {
            let row = auth::bootstrap_key(&key).map_err(|error| {
                ServeError::Usage(format!(
                    "{} does not hold an API key ({error}); remove it and start again",
                    file.display()
                ))
            })?;
            (key, NewKey { name: FIRST_NAME.to_owned(), ..row })
        }
        None => {
            let (key, row) = auth::generate_key(FIRST_NAME);
            keep(&file, &key).map_err(|error| unkept(&file, "write", &error))?;
            (key, row)
        }
    };
    store.create_key(OrgId::FIRST, row, now).await?;
    Ok(FirstKey::Kept { key, file })
}

const FIRST_NAME: &str = "first boot";

fn kept(file: &Path) -> Result<Option<String>, ServeError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|key| !key.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unkept(file, "read", &error)),
    }
}

fn keep(file: &Path, key: &str) -> io::Result<()> {
    let fresh = file.with_added_extension("new");
    let mut options = OpenOptions::new();
    let mut to = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    writeln!(to, "{key}")?;
    to.sync_all()?;
    fs::rename(&fresh, file)?;
    file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn unkept(file: &Path, action: &str, error: &io::Error) -> ServeError {
    ServeError::stopped(&format!("cannot {action} the API key in {}", file.display()), error)
}

/// The place where clients find the key, for the greeting.
pub(crate) struct KeyPlace {
    /// One line for people.
    pub(crate) told: String,
    /// Whether the caller's commands have the key already.
    pub(crate) is_in_profile: bool,
    /// Whether they use this service without being told its URL.
    pub(crate) is_default: bool,
}

impl KeyPlace {
    fn outside(told: String) -> Self {
        Self { told, is_in_profile: false, is_default: false }
    }
}

/// Writes the key into the caller's client profile.
pub(crate) fn note(key: &FirstKey, urls: &[String]) -> KeyPlace {
    match key {
        FirstKey::Kept { key, file } => {
            let noted = ProfileFile::of_caller().and_then(|profile| {
                let is_default = profile.remember(urls, key)?;
                Ok((profile.path().display().to_string(), is_default))
            });
            noted_or_kept(noted, file)
        }
        FirstKey::Given => KeyPlace::outside("the one given with --bootstrap-key".to_owned()),
        FirstKey::Elsewhere => KeyPlace::outside(
            "one that was made earlier and is not in the data folder; \
             start with --bootstrap-key KEY to add another"
                .to_owned(),
        ),
    }
}

fn noted_or_kept(noted: Result<(String, bool), ProfileError>, file: &Path) -> KeyPlace {
    match noted {
        Ok((profile, is_default)) => KeyPlace {
            told: format!("in {profile}, where the commands below find it"),
            is_in_profile: true,
            is_default,
        },
        Err(error) => KeyPlace::outside(format!("in {} ({error})", file.display())),
    }
}
