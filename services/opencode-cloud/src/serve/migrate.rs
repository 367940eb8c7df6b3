//! `migrate`: roles and schema of a Postgres that is not ours.

use clap::Args;
use store::RolePasswords;

use super::ServeError;
use crate::output::Screen;

/// Arguments of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// The database, as a user that may create roles; with --no-provision, as oc_migrate
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Password for the role oc_migrate [default: that of --database-url]
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "OPENCODE_CLOUD_MIGRATE_PASSWORD",
        hide_env_values = true
    )]
    pub migrate_password: Option<String>,
    /// Password for the roles oc_app and oc_sched [default: that of --database-url]
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "OPENCODE_CLOUD_SERVE_PASSWORD",
        hide_env_values = true
    )]
    pub serve_password: Option<String>,
    /// The roles are there: only bring the schema up to date
    #[arg(long)]
    pub no_provision: bool,
}

/// Provisions and migrates.
///
/// # Errors
/// [`ServeError`] when the database refuses.
pub async fn execute(args: MigrateArgs, screen: &mut Screen) -> Result<u8, ServeError> {
    let url = if args.no_provision {
        args.database_url.clone()
    } else {
        let own = store::url_password(&args.database_url)?;
        let password = |given: Option<String>, role: &str| {
            given.or_else(|| own.clone()).ok_or_else(|| {
                ServeError::Usage(format!(
                    "a password for {role} is needed: the --database-url has none to take"
                ))
            })
        };
        let passwords = RolePasswords {
            migrate: password(args.migrate_password, "oc_migrate (--migrate-password)")?,
            serve: password(args.serve_password, "oc_app and oc_sched (--serve-password)")?,
        };
        store::provision(&args.database_url, &passwords).await?;
        store::role_url(&args.database_url, "oc_migrate", Some(&passwords.migrate))?
    };
    store::migrate(&url).await?;
    let line = format!("the database is at schema {}", store::SCHEMA_VERSION);
    screen.out.line(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
    Ok(0)
}
