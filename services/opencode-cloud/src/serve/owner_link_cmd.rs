//! `owner-link`: a one-time login link of an owner, from the database: when nobody can sign in any more.

use std::path::PathBuf;

use api::PublicUrl;
use boot::DataDir;
use clap::Args;
use cli::output::Screen;
use domain::{Clock, IdMint, OrgId, Stamp, SystemClock, UserId};
use store::{Store, StoreError, StoreOptions};

use super::ServeError;
use super::bootstrap::login_url;
use super::up::{check_schema, own_postgres};

/// Arguments of `owner-link`.
#[derive(Debug, Clone, Args)]
pub struct OwnerLinkArgs {
    /// The organisation, by its id
    #[arg(long, value_name = "ID", default_value_t = OrgId::FIRST)]
    pub org: OrgId,
    /// The data folder of an `up` that is stopped, in place of a database; while it runs, use `opencode-cloud open`
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
    /// URL at which browsers reach the service
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:4096",
        env = "OPENCODE_CLOUD_PUBLIC_URL"
    )]
    pub public_url: PublicUrl,
}

/// Prints a link. An organisation without an owner gets one.
///
/// # Errors
/// [`ServeError`] when the database refuses, or there is no such organisation.
pub async fn execute(args: OwnerLinkArgs, screen: &mut Screen) -> Result<u8, ServeError> {
    let url = match (&args.data_dir, &args.database_url) {
        (Some(folder), _) => {
            if !folder.is_dir() {
                let text = format!("--data-dir: there is no folder {}", folder.display());
                return Err(ServeError::Usage(text));
            }
            let data = DataDir::open(folder)?;
            let (postgres, options) = own_postgres(&data, |_| {}).await?;
            let url = on(&options, &args).await;
            postgres.stop().await;
            url?
        }
        (None, Some(url)) => on(&StoreOptions::new(url.clone()), &args).await?,
        (None, None) => {
            return Err(ServeError::Usage("name --database-url or --data-dir".to_owned()));
        }
    };
    let failed = |error| ServeError::stopped("cannot print the link", &error);
    screen.out.line(&url).map_err(failed)?;
    let told = "open it in a browser within an hour; it logs an owner in, once";
    screen.err.say(told).map_err(failed)?;
    Ok(0)
}

async fn on(options: &StoreOptions, args: &OwnerLinkArgs) -> Result<String, ServeError> {
    let sched = store::role_url(&options.url, "oc_sched", options.password.as_deref())?;
    check_schema(store::schema_version(&sched).await?)?;
    let store = Store::connect(options)?;
    let clock = SystemClock::new();
    let fresh = UserId::mint(&mut IdMint::after(Stamp::default(), clock.now_ms()));
    let owner = store.ensure_owner(args.org, fresh, clock.now_ms()).await;
    let made = match owner {
        Ok(owner) => login_url(&store, &clock, args.org, owner, &args.public_url).await,
        Err(StoreError::NotFound) => {
            Err(ServeError::Usage(format!("--org: there is no organisation {}", args.org)))
        }
        Err(error) => Err(error.into()),
    };
    store.close().await;
    made
}
