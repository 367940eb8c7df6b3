//! The first organisation, its owner and their key.
//!
//! A service with its own data folder keeps the owner's key there, beside its other secrets. Each start finds it and
//! can write it into the caller's client profile again. So a start that fails later, a lost profile or another port
//! locks nobody out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use access::{Actor, Scopes};
use api::PublicUrl;
use auth::{KeyForm, MadeKey, Token};
use client::profile::{ProfileError, ProfileFile};
use domain::{Clock, IdMint, OrgId, Stamp, TimestampMs, UserId};
use store::{LinkMaker, NewKey, Store, StoreError};

use super::ServeError;

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

/// The owner of the first organisation, and what they sign in with.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) user: UserId,
    pub(crate) key: FirstKey,
}

/// Makes sure that the first organisation has an owner, and that the data folder has a key of theirs: commands, terminal
/// and browser are one person then. A key that was kept from before there were people stays good.
pub(crate) async fn first_owner(
    store: &Store,
    clock: &dyn Clock,
    given: Option<NewKey>,
    data: &Path,
) -> Result<Owner, ServeError> {
    let now = clock.now_ms();
    store.ensure_organisation(OrgId::FIRST, "default".into(), now).await?;
    let fresh = UserId::mint(&mut IdMint::after(Stamp::default(), now));
    let user = store.ensure_owner(OrgId::FIRST, fresh, now).await?;
    if let Some(key) = given {
        give_key(store, clock, key).await?;
        return Ok(Owner { user, key: FirstKey::Given });
    }
    let (file, actor) = (data.join(KEY_FILE), Actor::User(user.clone()));
    if let Some(key) = kept(&file)?
        && is_good_for(store, &actor, &key, now).await?
    {
        return Ok(Owner { user, key: FirstKey::Kept { key, file } });
    }
    // Written to disk before the database: a start that dies in between makes another one.
    let made = MadeKey::of(&actor);
    keep(&file, &made.text).map_err(|error| unkept(&file, "write", &error))?;
    let scopes = vec![Scopes::EVERYTHING.to_owned()];
    let row = made.row(actor, KEY_NAME.to_owned(), scopes, Some(now + KEY_LIFE));
    store.create_owned_key(OrgId::FIRST, row, None, now).await?;
    Ok(Owner { user, key: FirstKey::Kept { key: made.text, file } })
}

/// Returns whether a kept key is the owner's, and will be for long.
async fn is_good_for(
    store: &Store,
    owner: &Actor,
    key: &str,
    now: TimestampMs,
) -> Result<bool, ServeError> {
    let Ok(KeyForm::Owned(id)) = auth::check_form(key) else { return Ok(false) };
    match store.key_by_id(id, auth::hash(key).to_vec(), now).await {
        Ok(proof) => {
            let lasts = proof.expires_ms.is_none_or(|end| end > now + KEY_RENEWED);
            Ok(proof.principal.standing().actor == *owner && lasts)
        }
        Err(StoreError::NotFound) => Ok(false), // revoked, or of another database
        Err(error) => Err(error.into()),
    }
}

const DAY: TimestampMs = 24 * 60 * 60 * 1000;
/// How long the owner's key works. A start makes another one in its last months.
const KEY_LIFE: TimestampMs = 366 * DAY;
const KEY_RENEWED: TimestampMs = 90 * DAY;
const KEY_NAME: &str = "this machine";

/// Makes a one-time link that logs a person in, and returns its URL.
pub(crate) async fn login_url(
    store: &Store,
    clock: &dyn Clock,
    org: OrgId,
    user: UserId,
    public: &PublicUrl,
) -> Result<String, ServeError> {
    let (token, row) = Token::link(org, user, LinkMaker::Operator, clock.now_ms());
    store.create_login_link(org, row, clock.now_ms()).await?;
    Ok(format!("{public}/login#{}", token.text()))
}

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
    pub(crate) fn outside(told: String) -> Self {
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
