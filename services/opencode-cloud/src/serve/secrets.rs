//! The key that seals credentials for model providers.

use std::fmt;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use catalog::Feed;
use clap::Args;
use credentials::{Credentials, CredentialsParts, MasterKeys, Rewrapped, SecretsState};
use domain::{Clock, OrgId};
use egress::Egress;
use store::Store;

use super::ServeError;

/// The file of the key that `up` made.
const FILE: &str = "secrets.key";

/// The keys that seal credentials.
#[derive(Clone, Args)]
#[command(next_help_heading = "Keys and secrets")]
pub struct SecretsArgs {
    /// Key that seals the credentials for model providers, the same for all roles: ID:BASE64 of 32 random bytes, older
    /// keys after commas [default: `up` makes one in its data folder]
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
    /// Returns the given keys, if there are any.
    pub(crate) fn keys(&self) -> Result<Option<MasterKeys>, ServeError> {
        self.secrets_key.as_deref().map(parse).transpose()
    }

    /// Returns the given keys' text, otherwise that of the key in the data folder. Makes that key if it is missing.
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
        // Written in one step: half a key would make its secrets unreadable for ever.
        let text = MasterKeys::generate_like("up");
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

/// Parses keys.
pub(crate) fn parse(text: &str) -> Result<MasterKeys, ServeError> {
    MasterKeys::parse(text).map_err(|error| ServeError::Usage(format!("--secrets-key: {error}")))
}

/// Describes the data keys after a rewrap for people, one line each. The remaining ones come last.
pub(crate) fn told(rewrapped: &Rewrapped) -> Vec<String> {
    const MOST: usize = 5;
    let Rewrapped { key, done, removed, why, is_cut } = rewrapped;
    let mut lines = vec![match done {
        0 => format!("no data key was to be wrapped by `{key}` anew"),
        1 => format!("1 data key is wrapped by `{key}` now"),
        done => format!("{done} data keys are wrapped by `{key}` now"),
    }];
    if *removed > 0 {
        lines
            .push(format!("removed, since it does not open and seals nothing any more: {removed}"));
    }
    for (why, orgs) in why {
        let named: Vec<String> = orgs.iter().take(MOST).map(ToString::to_string).collect();
        let more = if orgs.len() > MOST { ", …" } else { "" };
        let count = orgs.len();
        lines.push(format!("{count} left as before: {why} (of {}{more})", named.join(", ")));
    }
    if *is_cut {
        lines.push("so many are left that the others were not tried".into());
    }
    if rewrapped.is_complete() {
        lines.push(format!("no secrets key but `{key}` is needed any more"));
    }
    lines
}

/// Describes which secrets of an organisation can be opened, one line each.
pub(crate) fn told_of(org: OrgId, state: &SecretsState) -> Vec<String> {
    let SecretsState { key, data_key, stuck, unreadable } = state;
    let mut lines = vec![match stuck {
        Some(why) => {
            format!("{org} can keep no secret: its data key {data_key} does not open: {why}")
        }
        None => format!(
            "{org} can keep secrets: its data key {data_key} opens with the keys that were given"
        ),
    }];
    match unreadable.len() {
        0 => lines.push("all that it keeps opens".into()),
        1 => lines.push("1 secret does not open, and stays as it is until it is set again:".into()),
        count => lines.push(format!(
            "{count} secrets do not open, and stay as they are until they are set again:"
        )),
    }
    lines.extend(unreadable.iter().map(|(secret, why)| {
        // A reason that repeats the first one is left out.
        let why = if stuck.as_ref() == Some(why) { String::new() } else { format!(" ({why})") };
        let label = secret.label().map(|label| format!(" ({label})")).unwrap_or_default();
        format!("  {secret}{label}{why}: {}", secret.again())
    }));
    if stuck.is_some() {
        lines.push(format!(
            "if that key is not lost, give it after `{key}`, and nothing is to be set again; if it is, --yes makes a new data key for what is kept from now on"
        ));
    }
    lines
}

/// Returns the organisations' credentials. `catalog` has the providers' addresses.
pub(crate) fn credentials(
    store: Store,
    keys: Option<MasterKeys>,
    egress: Egress,
    catalog: Option<Arc<Feed>>,
    clock: Arc<dyn Clock>,
) -> Credentials {
    Credentials::new(CredentialsParts { store, keys, egress, catalog, clock })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use credentials::{CredentialKind, EnvelopeError, StoredSecret};

    use super::*;

    #[test]
    fn what_was_rewrapped_and_what_is_left_is_told() {
        let whole = Rewrapped { key: "k2".into(), done: 2, ..Rewrapped::default() };
        assert_eq!(
            told(&whole),
            ["2 data keys are wrapped by `k2` now", "no secrets key but `k2` is needed any more"]
        );
        let none = told(&Rewrapped { done: 0, removed: 1, ..whole.clone() });
        assert_eq!(none[0], "no data key was to be wrapped by `k2` anew");
        assert_eq!(none[1], "removed, since it does not open and seals nothing any more: 1");
        let why = [("the secrets key `k1` is missing".to_owned(), vec![domain::OrgId::FIRST; 7])];
        let left = told(&Rewrapped { why: why.into(), is_cut: true, ..whole });
        assert_eq!(left.len(), 3);
        assert!(left[1].starts_with("7 left as before: the secrets key `k1` is missing (of "));
        assert!(left[1].ends_with(", …)"), "{left:?}");
    }

    #[test]
    fn what_a_lost_key_costs_is_told_by_name() {
        let missing = EnvelopeError::MissingKey("k1".into());
        let client = StoredSecret::Client { provider: "acme".into() };
        let sign_in = StoredSecret::Credential {
            id: "crd_1".into(),
            owner: String::new(),
            provider: "acme".into(),
            label: "team".into(),
            kind: CredentialKind::OAuth,
        };
        let lost = SecretsState {
            key: "k2".into(),
            data_key: 1,
            stuck: Some(missing.clone()),
            unreadable: vec![(client, missing.clone()), (sign_in, EnvelopeError::Refused)],
        };
        let org = OrgId::FIRST;
        let told = told_of(org, &lost);
        let again = "set it again (PUT /platform/provider/acme)";
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(told[0].ends_with(&format!("its data key 1 does not open: {missing}")), "{told:?}");
        assert!(told[1].starts_with("2 secrets do not open"), "{told:?}");
        assert_eq!(told[2], format!("  the secret of the OAuth client at `acme`: {again}"));
        let refused = EnvelopeError::Refused;
        assert_eq!(
            told[3],
            format!(
                "  the organisation's credential crd_1 for `acme` (team) ({refused}): sign in again (POST /platform/oauth/acme)"
            )
        );
        assert!(told[4].contains("give it after `k2`") && told[4].contains("--yes"), "{told:?}");
        let fine = SecretsState { stuck: None, unreadable: Vec::new(), ..lost };
        assert_eq!(told_of(org, &fine)[1..], ["all that it keeps opens"]);
    }

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
        let name = parse(&made).expect("a key").current().to_owned();
        assert!(name.starts_with("up-"), "{name}");
        // A folder that lost its key gets one with another id.
        std::fs::remove_file(folder.path().join(FILE)).expect("removed");
        let next = args.or_made_in(folder.path()).expect("made anew");
        assert_ne!(parse(&next).expect("a key").current(), name);

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
