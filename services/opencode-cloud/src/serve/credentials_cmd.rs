//! `credentials`: moves sealed credentials to a new secrets key, and repairs the loss of one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use boot::DataDir;
use clap::{Args, Subcommand};
use cli::output::Screen;
use credentials::{Credentials, CredentialsError, MasterKeys, SecretsState};
use domain::{OrgId, SystemClock};
use store::{Store, StoreOptions};

use super::ServeError;
use super::egress::EgressArgs;
use super::secrets::{self, SecretsArgs};
use super::up::{check_schema, own_postgres};

/// Arguments of `credentials`.
#[derive(Debug, Clone, Args)]
pub struct CredentialsCommand {
    /// The subcommand.
    #[command(subcommand)]
    pub what: What,
}

/// The subcommands of `credentials`.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Wrap every organisation's data key by the first of the secrets keys, so that the others are not needed any
    /// more; it may be stopped and begun again at any time, beside everything else
    Rewrap(RewrapArgs),
    /// Go on with a new data key where an organisation's newest does not open, because its secrets key is lost: tells
    /// what does not open any more, and changes nothing without --yes
    ResetKey(ResetKeyArgs),
}

/// Arguments of `credentials rewrap`.
#[derive(Debug, Clone, Args)]
pub struct RewrapArgs {
    /// The database, as oc_app: what gateways and workers are given
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// The new key, then the old ones.
    #[command(flatten)]
    pub secrets: SecretsArgs,
}

/// Arguments of `credentials reset-key`.
#[derive(Debug, Clone, Args)]
pub struct ResetKeyArgs {
    /// The organisation, by its id
    #[arg(long, value_name = "ID")]
    pub org: OrgId,
    /// Make the data key; without it only what would become of what is told
    #[arg(long)]
    pub yes: bool,
    /// The data folder of an `up` that is stopped, in place of a database; its secrets key is taken
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The database, as oc_app: what gateways and workers are given
    #[arg(
        long,
        value_name = "URL",
        env = "OPENCODE_CLOUD_DATABASE_URL",
        hide_env_values = true,
        required_unless_present = "data_dir"
    )]
    pub database_url: Option<String>,
    /// The known keys.
    #[command(flatten)]
    pub secrets: SecretsArgs,
}

/// Runs the subcommand, and returns 1 if something is left to do.
///
/// # Errors
/// [`ServeError`] when there is no key, or the database refuses.
pub async fn execute(command: CredentialsCommand, screen: &mut Screen) -> Result<u8, ServeError> {
    match command.what {
        What::Rewrap(args) => {
            let keys = given(&args.secrets, "the new key, then the old ones")?;
            on_database(StoreOptions::new(args.database_url), keys, async |credentials| {
                rewrap(&credentials, screen).await
            })
            .await
        }
        What::ResetKey(args) => match &args.data_dir {
            Some(folder) => reset_in(folder, &args, screen).await,
            None => {
                let keys = given(&args.secrets, "the key that there is now")?;
                let url = args.database_url.clone().expect("clap asks for it");
                on_database(StoreOptions::new(url), keys, async |credentials| {
                    reset(&credentials, &args, screen).await
                })
                .await
            }
        },
    }
}

fn given(secrets: &SecretsArgs, which: &str) -> Result<MasterKeys, ServeError> {
    let missing = || ServeError::Usage(format!("--secrets-key is missing: {which}"));
    secrets.keys()?.ok_or_else(missing)
}

/// Runs `work` with the credentials of a database of this build's schema.
async fn on_database(
    options: StoreOptions,
    keys: MasterKeys,
    work: impl AsyncFnOnce(Credentials) -> Result<u8, ServeError>,
) -> Result<u8, ServeError> {
    let sched = store::role_url(&options.url, "oc_sched", options.password.as_deref())?;
    check_schema(store::schema_version(&sched).await?)?;
    let store = Store::connect(&options)?;
    // No provider is asked for tokens here.
    let clock = Arc::new(SystemClock::new());
    let egress = EgressArgs::default().egress()?;
    let credentials = secrets::credentials(store.clone(), Some(keys), egress, None, clock);
    let done = work(credentials).await;
    store.close().await;
    done
}

async fn rewrap(credentials: &Credentials, screen: &mut Screen) -> Result<u8, ServeError> {
    let rewrapped = credentials.rewrap().await;
    let rewrapped =
        rewrapped.map_err(|error| ServeError::stopped("it stopped; run it again", &error))?;
    print(screen, &secrets::told(&rewrapped))?;
    Ok(u8::from(!rewrapped.is_complete()))
}

/// Runs [`reset`] on the Postgres of a data folder.
async fn reset_in(
    folder: &Path,
    args: &ResetKeyArgs,
    screen: &mut Screen,
) -> Result<u8, ServeError> {
    if !folder.is_dir() {
        let text = format!("--data-dir: there is no folder {}", folder.display());
        return Err(ServeError::Usage(text));
    }
    let data = DataDir::open(folder)?;
    let keys = secrets::parse(&args.secrets.or_made_in(data.path())?)?;
    let (postgres, options) = own_postgres(&data, |_| {}).await?;
    let done =
        on_database(options, keys, async |credentials| reset(&credentials, args, screen).await)
            .await;
    postgres.stop().await;
    done
}

/// Reports which secrets of an organisation can be opened. With `--yes`, makes a new data key if the newest cannot be
/// opened.
async fn reset(
    credentials: &Credentials,
    args: &ResetKeyArgs,
    screen: &mut Screen,
) -> Result<u8, ServeError> {
    let failed = |error: CredentialsError| ServeError::stopped("nothing was changed", &error);
    let org = args.org;
    let Some(state) = credentials.secrets_state(org).await.map_err(failed)? else {
        let text =
            format!("there is no organisation {org}, or it has kept no secret: nothing to reset");
        return Err(ServeError::Stopped(text));
    };
    print(screen, &secrets::told_of(org, &state))?;
    if state.stuck.is_none() {
        return Ok(0);
    }
    if !args.yes {
        return Ok(1);
    }
    credentials.reset_key(org).await.map_err(failed)?;
    let SecretsState { key, data_key, .. } = state;
    let next = data_key + 1;
    print(
        screen,
        &[format!(
            "what {org} keeps from now on is sealed with its data key {next}, wrapped by `{key}`"
        )],
    )?;
    Ok(0)
}

fn print(screen: &mut Screen, lines: &[String]) -> Result<(), ServeError> {
    for line in lines {
        screen.out.say(line).map_err(|error| ServeError::stopped("cannot print", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Probe {
        #[command(subcommand)]
        what: What,
    }

    #[test]
    fn a_key_is_reset_for_one_organisation_in_a_database_that_is_named() {
        let org = OrgId::FIRST.to_string();
        let line = |words: &[&str]| {
            let words = [&["probe", "reset-key"], words].concat();
            Probe::try_parse_from(words).map_err(|error| error.to_string())
        };
        let error = line(&["--database-url=postgres://x"]).expect_err("no organisation");
        assert!(error.contains("--org"), "{error}");
        let error = line(&["--org=acme", "--data-dir=d"]).expect_err("no id");
        assert!(error.contains("--org"), "{error}");
        let error = line(&["--org", &org]).expect_err("no database");
        assert!(error.contains("--database-url"), "{error}");
        let Probe { what: What::ResetKey(args) } =
            line(&["--org", &org, "--data-dir=d"]).expect("a command")
        else {
            panic!("another command")
        };
        assert!(!args.yes && args.org == OrgId::FIRST);
    }
}
