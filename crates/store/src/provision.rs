//! Roles and their settings, which an operator, `up` or a test makes before anything connects.

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use crate::{StoreError, pooler};

/// Makes processes that provision or migrate one database take turns.
pub(crate) const PROVISION_LOCK: i64 = 0x0C_0001;

/// Postgres says so when a user lacks a right.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// The roles of gateways, workers and placement.
const SERVING_ROLES: [&str; 2] = ["oc_app", "oc_sched"];

/// The settings of each serving role. They are the role's and not the connection's, because poolers refuse or lose
/// a connection's own settings.
///
/// The time-outs end a transaction whose holder stopped, and notice a dead host within 3 s: either would delay
/// a takeover by as much.
///
/// Every statement of ours has one right plan, an index's, whatever its parameters are. So it is planned once
/// a connection, and not by the size that a table had at that moment: a plan that scanned a table while
/// it was small would be kept until somebody analyses the table.
const ROLE_SETTINGS: [(&str, &str); 9] = [
    ("idle_in_transaction_session_timeout", "1s"),
    ("statement_timeout", "30s"),
    ("tcp_keepalives_idle", "1"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "2"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("jit", "off"),
    // Starting processes for a page of a list takes longer than reading it.
    ("max_parallel_workers_per_gather", "0"),
];

/// Passwords for the roles that log in.
#[derive(Clone)]
pub struct RolePasswords {
    /// For `oc_migrate`.
    pub migrate: String,
    /// For `oc_app` and `oc_sched`.
    pub serve: String,
}

/// `url` with its user replaced by `role`, and its password by `password` when there is one.
///
/// # Errors
/// When the URL is not of the form `postgres://…`.
pub fn role_url(url: &str, role: &str, password: Option<&str>) -> Result<String, StoreError> {
    let (scheme, rest) = url
        .split_once("://")
        .filter(|(scheme, _)| scheme.starts_with("postgres"))
        .ok_or_else(|| {
            StoreError::Schema("a database URL is `postgres://USER:PASSWORD@HOST:PORT/NAME`".into())
        })?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let kept = user.split_once(':').map(|(_, password)| password.to_owned());
    let credential = match password.map(percent_encode).or(kept) {
        Some(password) => format!("{role}:{password}"),
        None => role.to_owned(),
    };
    Ok(format!("{scheme}://{credential}@{host}{tail}"))
}

/// The password in a database URL, decoded.
///
/// # Errors
/// When the URL cannot be read.
pub fn url_password(url: &str) -> Result<Option<String>, StoreError> {
    let rest = role_url(url, "x", None)?;
    let user = rest.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let Some(encoded) = user.and_then(|(user, _)| user.split_once(':')).map(|(_, word)| word)
    else {
        return Ok(None);
    };
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()].map(|digit| digit.map(char::from));
        let value = match digits {
            [Some(high), Some(low)] => high.to_digit(16).zip(low.to_digit(16)),
            _ => None,
        };
        let value = value.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        bytes.push(value.ok_or_else(|| {
            StoreError::Schema(
                "the password in the database URL has a lone `%`; write it as %25".into(),
            )
        })?);
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| StoreError::Schema("the password in the database URL is no UTF-8".into()))
}

fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// Makes the four roles where they are missing, sets their passwords and settings, and gives them the database. The user of
/// `admin_url` is a superuser, or may create roles and owns the database. Nothing else is done as that user.
///
/// # Errors
/// When the database cannot be reached, or [`StoreError::Schema`] when the user may not do that.
pub async fn provision(admin_url: &str, passwords: &RolePasswords) -> Result<(), StoreError> {
    let mut admin = connect(admin_url).await?;
    sqlx::query("SELECT pg_advisory_lock($1)").bind(PROVISION_LOCK).execute(&mut admin).await?;
    let mut statements = Vec::new();
    for (role, password) in [
        ("oc_owner", None),
        ("oc_migrate", Some(&passwords.migrate)),
        ("oc_app", Some(&passwords.serve)),
        ("oc_sched", Some(&passwords.serve)),
    ] {
        let exists: Option<i32> = sqlx::query_scalar("SELECT 1 FROM pg_roles WHERE rolname = $1")
            .bind(role)
            .fetch_optional(&mut admin)
            .await?;
        let verb = if exists.is_some() { "ALTER" } else { "CREATE" };
        statements.push(match password {
            None => format!("{verb} ROLE {role} NOLOGIN"),
            Some(password) => {
                format!("{verb} ROLE {role} LOGIN PASSWORD '{}'", password.replace('\'', "''"))
            }
        });
    }
    let database: String =
        sqlx::query_scalar("SELECT quote_ident(current_database())").fetch_one(&mut admin).await?;
    statements.push("GRANT oc_owner TO oc_migrate".into());
    let is_superuser: bool =
        sqlx::query_scalar("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            .fetch_one(&mut admin)
            .await?;
    if !is_superuser {
        // Only members of a role give it a database. Whoever may create roles may make itself one; managed Postgres gives its
        // administrator no more than that.
        statements.push("GRANT oc_owner TO CURRENT_USER".into());
    }
    statements.push(format!("ALTER DATABASE {database} OWNER TO oc_owner"));
    statements.push("REVOKE CREATE ON SCHEMA public FROM PUBLIC".into());
    statements.push("GRANT CREATE, USAGE ON SCHEMA public TO oc_owner, oc_migrate".into());
    statements.push("GRANT USAGE ON SCHEMA public TO oc_app, oc_sched".into());
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut admin)
            .await
            .map_err(explain_refusal)?;
    }
    // Only those that differ: two databases of one server share their roles, and Postgres refuses one of two
    // statements that change a role's settings at the same time.
    for statement in missing_settings(&mut admin).await? {
        sqlx::raw_sql(AssertSqlSafe(statement))
            .execute(&mut admin)
            .await
            .map_err(explain_refusal)?;
    }
    admin.close().await?;
    Ok(())
}

/// Postgres' refusal of a user that may not do this, with what it needs.
fn explain_refusal(error: sqlx::Error) -> StoreError {
    match error.as_database_error() {
        Some(refused) if refused.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE) => {
            StoreError::Schema(format!(
                "the user of the administrator's URL may not do this: {}. It must be a superuser, or have CREATEROLE and \
                 CREATEDB, own the database and have made the roles oc_owner, oc_migrate, oc_app and oc_sched if they are \
                 there; or let an administrator make them (docs/operations.md) and use --no-provision",
                refused.message()
            ))
        }
        _ => error.into(),
    }
}

/// The statements that give the serving roles the settings that they lack.
pub(crate) async fn missing_settings(
    connection: &mut PgConnection,
) -> Result<Vec<String>, StoreError> {
    let mut statements = Vec::new();
    for role in SERVING_ROLES {
        let settings: Option<Vec<String>> =
            sqlx::query_scalar("SELECT coalesce(rolconfig, '{}') FROM pg_roles WHERE rolname = $1")
                .bind(role)
                .fetch_optional(&mut *connection)
                .await?;
        let settings = settings.unwrap_or_default();
        for (name, value) in ROLE_SETTINGS {
            if !settings.contains(&format!("{name}={value}")) {
                statements.push(format!("ALTER ROLE {role} SET {name} = '{value}'"));
            }
        }
    }
    Ok(statements)
}

pub(crate) async fn connect(url: &str) -> Result<PgConnection, StoreError> {
    let options = pooler::read_url(url)?;
    // A migration may be slow; a log that repeats all of its text helps nobody.
    Ok(options.disable_statement_logging().connect().await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_url_keeps_host_and_options_and_replaces_the_user() {
        let url = |password| {
            role_url("postgres://admin:s%40@db:5432/oc?sslmode=require", "oc_app", password)
        };
        assert_eq!(url(None).expect("a URL"), "postgres://oc_app:s%40@db:5432/oc?sslmode=require");
        assert_eq!(
            url(Some("a b")).expect("a URL"),
            "postgres://oc_app:a%20b@db:5432/oc?sslmode=require"
        );
        assert_eq!(
            role_url("postgres://h/oc", "oc_app", None).expect("a URL"),
            "postgres://oc_app@h/oc"
        );
        assert!(role_url("mysql://h/oc", "oc_app", None).is_err());
    }

    #[test]
    fn a_password_is_read_decoded_from_a_url() {
        let password = |url| url_password(url).expect("a URL");
        assert_eq!(password("postgres://admin:s%40%25@db/oc"), Some("s@%".into()));
        assert_eq!(password("postgres://admin@db/oc"), None);
        assert!(url_password("postgres://admin:%@db/oc").is_err());
    }
}
