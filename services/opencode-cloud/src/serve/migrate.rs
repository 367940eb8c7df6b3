//! `migrate`: roles and schema of a cluster's Postgres.

use clap::Args;
use cli::output::Screen;
use store::RolePasswords;

use super::ServeError;

/// Arguments of `migrate`.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// The database, as a user that may create roles; with --no-provision, as oc_migrate
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_DATABASE_URL", hide_env_values = true)]
    pub database_url: String,
    /// Password for the role oc_migrate: another one than that of --database-url
    #[arg(
        long,
        value_name = "PASSWORD",
        env = "OPENCODE_CLOUD_MIGRATE_PASSWORD",
        hide_env_values = true
    )]
    pub migrate_password: Option<String>,
    /// Password for the roles oc_app and oc_sched: another one than the other two
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

/// The line before a wait of up to two minutes.
const WAITS: &str =
    "waiting for a lock that another transaction holds: see pg_locks; it is tried for two minutes";

/// Provisions and migrates.
///
/// # Errors
/// [`ServeError`] when the database refuses.
pub async fn execute(args: MigrateArgs, screen: &mut Screen) -> Result<u8, ServeError> {
    let url = if args.no_provision {
        args.database_url.clone()
    } else {
        let own = store::url_password(&args.database_url)?;
        let passwords = passwords(args.migrate_password, args.serve_password, own.as_deref())?;
        store::provision(&args.database_url, &passwords).await?;
        store::role_url(&args.database_url, "oc_migrate", Some(&passwords.migrate))?
    };
    let note_wait = || {
        // Nothing is lost when it cannot be printed: the migration goes on.
        let _ = screen.err.say(WAITS);
    };
    store::migrate_noting(&url, note_wait).await?;
    let line = format!("the database is at schema {}", store::SCHEMA_VERSION);
    screen.out.say(&line).map_err(|error| ServeError::stopped("cannot print", &error))?;
    Ok(0)
}

/// Chooses the roles' passwords. A service's password must not also be the superuser's or the table owner's, because
/// the roles keep organisations apart.
fn passwords(
    migrate: Option<String>,
    serve: Option<String>,
    own: Option<&str>,
) -> Result<RolePasswords, ServeError> {
    let given = |password: Option<String>, flag: &str, role: &str| {
        password.filter(|password| !password.is_empty()).ok_or_else(|| {
            ServeError::Usage(format!(
                "{flag} is missing: {role} needs a password of its own; make one with `openssl rand -hex 24`"
            ))
        })
    };
    let migrate = given(migrate, "--migrate-password", "the role oc_migrate")?;
    let serve = given(serve, "--serve-password", "the roles oc_app and oc_sched")?;
    let same = |one: &str, other: &str| {
        ServeError::Usage(format!(
            "{one} is the password of {other}: whoever has the one has the other's rights; make another with \
             `openssl rand -hex 24`"
        ))
    };
    if migrate == serve {
        return Err(same("--serve-password", "--migrate-password"));
    }
    if own == Some(migrate.as_str()) {
        return Err(same("--migrate-password", "--database-url"));
    }
    if own == Some(serve.as_str()) {
        return Err(same("--serve-password", "--database-url"));
    }
    Ok(RolePasswords { migrate, serve })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding security 7: the service's roles had the superuser's password unless somebody changed it.
    #[test]
    fn roles_have_passwords_of_their_own() {
        let asked = |migrate: Option<&str>, serve: Option<&str>, own: Option<&str>| {
            let passwords = passwords(migrate.map(str::to_owned), serve.map(str::to_owned), own);
            passwords.map(|_| ()).map_err(|error| error.to_string())
        };
        for (migrate, serve, own, says) in [
            (None, None, Some("admin"), "--migrate-password is missing"),
            (Some("a"), None, Some("admin"), "--serve-password is missing"),
            (Some(""), Some("b"), Some("admin"), "--migrate-password is missing"),
            (Some("a"), Some("a"), Some("admin"), "--serve-password is the password of"),
            (Some("admin"), Some("b"), Some("admin"), "--migrate-password is the password of"),
            (Some("a"), Some("admin"), Some("admin"), "--serve-password is the password of"),
        ] {
            let refused = asked(migrate, serve, own).expect_err(says);
            assert!(refused.starts_with(says) && refused.contains("openssl rand"), "{refused}");
        }
        assert_eq!(asked(Some("a"), Some("b"), Some("admin")), Ok(()));
        assert_eq!(asked(Some("a"), Some("b"), None), Ok(()));
    }
}
