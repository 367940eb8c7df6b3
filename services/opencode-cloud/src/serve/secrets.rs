//! The key that credentials for model providers are sealed under.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use credentials::{Addresses, Credentials, CredentialsParts, MasterKeys};
use domain::Clock;
use llm_client::{Options, ReqwestTransport};
use store::Store;

use super::ServeError;

/// Where `up` keeps the key that it made.
const FILE: &str = "secrets.key";

/// What credentials for model providers are sealed under.
#[derive(Clone, Args)]
pub struct SecretsArgs {
    /// Key that credentials for model providers are sealed under, the same for all roles: ID:BASE64 of 32 random bytes,
    /// then older ones after commas; `up` makes one in its data folder
    #[arg(
        long = "secrets-key",
        value_name = "KEY",
        env = "OPENCODE_CLOUD_SECRETS_KEY",
        hide_env_values = true
    )]
    pub secrets_key: Option<String>,
}

impl fmt::Debug for SecretsArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretsArgs").field("is_given", &self.secrets_key.is_some()).finish()
    }
}

impl SecretsArgs {
    /// The keys that were given, if any were.
    pub(crate) fn keys(&self) -> Result<Option<MasterKeys>, ServeError> {
        self.secrets_key.as_deref().map(parse).transpose()
    }

    /// The text of the keys that were given, else of the one in the data folder, which is made when it is missing.
    pub(crate) fn or_made_in(&self, data: &Path) -> Result<String, ServeError> {
        if let Some(given) = &self.secrets_key {
            return Ok(given.clone());
        }
        let path = data.join(FILE);
        let failed = |what: &str, error: &std::io::Error| {
            ServeError::stopped(&format!("{} cannot be {what}", path.display()), error)
        };
        match std::fs::read_to_string(&path) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed("read", &error));
            }
            Err(_) => {}
        }
        // Whole or not at all: half a key would make its secrets unreadable for ever.
        let text = MasterKeys::generate("up-1");
        let new = path.with_extension("key.new");
        let _stale = std::fs::remove_file(&new);
        let written = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| failed("written", &error))?;
        Ok(text)
    }
}

/// Reads keys.
pub(crate) fn parse(text: &str) -> Result<MasterKeys, ServeError> {
    MasterKeys::parse(text).map_err(|error| ServeError::Usage(format!("--secrets-key: {error}")))
}

/// The credentials of organisations, which may send a service `local` to one machine anywhere.
pub(crate) fn credentials(
    store: Store,
    keys: Option<MasterKeys>,
    local: bool,
    clock: Arc<dyn Clock>,
) -> Result<Credentials, ServeError> {
    let transport = ReqwestTransport::new(&Options::default())
        .map_err(|error| ServeError::stopped("sign-ins at providers cannot be made", &error))?;
    let addresses = if local { Addresses::Any } else { Addresses::Public };
    let transport = Arc::new(transport);
    Ok(Credentials::new(CredentialsParts { store, keys, transport, addresses, clock }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_only_and_a_given_one_is_taken_instead() {
        let folder = tempfile::tempdir().expect("a folder");
        let args = SecretsArgs { secrets_key: None };
        assert!(args.keys().expect("none").is_none());
        let made = args.or_made_in(folder.path()).expect("made");
        assert_eq!(args.or_made_in(folder.path()).expect("read"), made);
        let mode =
            std::fs::metadata(folder.path().join(FILE)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(parse(&made).expect("a key").current(), "up-1");

        let given = SecretsArgs { secrets_key: Some(MasterKeys::generate("k2")) };
        let taken = given.or_made_in(folder.path()).expect("given");
        assert_eq!(parse(&taken).expect("a key").current(), "k2");
        assert_eq!(format!("{given:?}"), "SecretsArgs { is_given: true }");
        let wrong = SecretsArgs { secrets_key: Some("k1:short".into()) };
        assert!(matches!(wrong.keys(), Err(ServeError::Usage(_))));
        std::fs::write(folder.path().join(FILE), "").expect("written");
        assert!(parse(&args.or_made_in(folder.path()).expect("read")).is_err());
    }
}
