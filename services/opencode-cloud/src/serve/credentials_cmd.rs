//! `credentials`: what is sealed under which secrets key.

use std::sync::Arc;

use clap::{Args, Subcommand};
use domain::SystemClock;
use store::{Store, StoreOptions};

use super::ServeError;
use super::secrets::{self, SecretsArgs};
use super::up::check_schema;
use crate::output::Screen;

/// Arguments of `credentials`.
#[derive(Debug, Clone, Args)]
pub struct CredentialsCommand {
    /// What to do.
    #[command(subcommand)]
    pub what: What,
}

/// What can be done.
#[derive(Debug, Clone, Subcommand)]
pub enum What {
    /// Wrap every organisation's data key by the first of the secrets keys, so that the others are not needed any
    /// more; it may be stopped and begun again at any time, beside everything else
    Rewrap(RewrapArgs),
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

/// Does it; 1 when something is left.
///
/// # Errors
/// [`ServeError`] when there is no key, or the database refuses.
pub async fn execute(command: CredentialsCommand, screen: &mut Screen) -> Result<u8, ServeError> {
    let What::Rewrap(args) = command.what;
    let keys = args.secrets.keys()?.ok_or_else(|| {
        ServeError::Usage("--secrets-key is missing: the new key, then the old ones".into())
    })?;
    let options = StoreOptions::new(args.database_url);
    let sched = store::role_url(&options.url, "oc_sched", None)?;
    check_schema(store::schema_version(&sched).await?)?;
    let store = Store::connect(&options)?;
    // Nobody is asked for tokens here.
    let clock = Arc::new(SystemClock::new());
    let credentials = secrets::credentials(store.clone(), Some(keys), false, clock)?;
    let rewrapped = credentials.rewrap().await;
    store.close().await;
    let rewrapped =
        rewrapped.map_err(|error| ServeError::stopped("it stopped; run it again", &error))?;
    for line in secrets::told(&rewrapped) {
        screen.out.line(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
    }
    Ok(u8::from(!rewrapped.is_complete()))
}
