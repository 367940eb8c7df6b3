//! Brings a database to this build's schema: migrations for tables, then the files of `sql/` for functions.

use domain::FeatureLevel;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::error::read_sentence;
use crate::provision::{PROVISION_LOCK, connect, missing_settings};
use crate::{StoreError, functions, pooler};

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// The schema that this build reads and writes: the number of its newest migration.
pub const SCHEMA_VERSION: i64 = 45;

/// The oldest schema that this build can migrate from: the number of its first migration, the baseline.
pub const FIRST_SCHEMA: i64 = 19;

/// How long a statement of a migration waits for a lock. While it waits, every statement that comes after it at the
/// same table waits too, so this is how long the service may stand still.
const LOCK_TIMEOUT: &str = "1s";

/// How often a migration is begun again after it waited for a lock in vain, and the pause before each.
const TRIES: u32 = 60;
const PAUSE: Duration = Duration::from_millis(1500);

/// `lock_not_available`: the lock was not free within [`LOCK_TIMEOUT`].
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Brings tables and functions to this build's schema, and an empty database to its feature level.
/// `migrate_url` logs in as `oc_migrate`. Safe beside a running service of the build before.
///
/// # Errors
/// [`StoreError::Schema`] when the database is newer than this build or older than [`FIRST_SCHEMA`], when a role
/// lacks its settings, or when a migration fails or gets no lock within two minutes.
pub async fn migrate(migrate_url: &str) -> Result<(), StoreError> {
    let why = "another transaction holds a lock that a migration needs (see pg_locks); it is tried for two minutes";
    migrate_noting(migrate_url, || tracing::warn!("{why}")).await
}

/// Like [`migrate`]. Calls `note_wait` once when another transaction holds a lock, before it waits for it.
///
/// # Errors
/// Those of [`migrate`].
pub async fn migrate_noting(migrate_url: &str, note_wait: impl FnMut()) -> Result<(), StoreError> {
    let mut connection = connect(migrate_url).await?;
    let migrated = retrying(&mut connection, note_wait).await;
    // The connection's end releases the lock, also after an error.
    connection.close().await?;
    migrated
}

/// The schema version of the database at `url`; 0 when it was never migrated.
///
/// # Errors
/// When the database cannot be reached.
pub async fn schema_version(url: &str) -> Result<i64, StoreError> {
    pooler::once(url, |connection| Box::pin(async move { Ok(read_version(connection).await?) }))
        .await
}

/// Refuses the data of a build from before [`FIRST_SCHEMA`]; 0 is a database without data.
///
/// # Errors
/// [`StoreError::Schema`] with how to begin anew.
pub fn refuse_older(version: i64) -> Result<(), StoreError> {
    if version == 0 || version >= FIRST_SCHEMA {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "the data is of schema {version}, which this build cannot carry over (it begins at {FIRST_SCHEMA}): \
         begin anew with an empty data folder (--data-dir) or an empty database, \
         or keep using the build that made the data"
    )))
}

async fn retrying(
    connection: &mut PgConnection,
    mut note_wait: impl FnMut(),
) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(format!("SET lock_timeout = '{LOCK_TIMEOUT}'")))
        .execute(&mut *connection)
        .await?;
    for nth in 1..TRIES {
        match attempt(connection).await {
            Err(MigrationError::Locked) => {
                if nth == 1 {
                    note_wait();
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(MigrationError::Other(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    attempt(connection).await.map_err(|error| match error {
        MigrationError::Other(error) => error,
        MigrationError::Locked => StoreError::Schema(
            "another transaction holds a lock that a migration needs; nothing of that migration was done: \
             end that transaction (see pg_locks) and migrate again"
                .into(),
        ),
    })
}

/// Why an attempt did not come to its end.
enum MigrationError {
    /// Another transaction holds a lock: try again.
    Locked,
    Other(StoreError),
}

impl From<sqlx::Error> for MigrationError {
    fn from(error: sqlx::Error) -> Self {
        if is_lock_timeout(&error) { Self::Locked } else { Self::Other(error.into()) }
    }
}

impl From<StoreError> for MigrationError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Database(error) => error.into(),
            StoreError::NotFound
            | StoreError::Conflict { .. }
            | StoreError::Busy { .. }
            | StoreError::InboxFull { .. }
            | StoreError::RolesChanged
            | StoreError::Feature { .. }
            | StoreError::Fenced { .. }
            | StoreError::WentBack { .. }
            | StoreError::Superseded
            | StoreError::Schema(_)
            | StoreError::Unreadable(_) => Self::Other(error),
        }
    }
}

async fn attempt(connection: &mut PgConnection) -> Result<(), MigrationError> {
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(PROVISION_LOCK)
        .execute(&mut *connection)
        .await?;
    let version = read_version(connection).await?;
    if version > SCHEMA_VERSION {
        return Err(MigrationError::Other(StoreError::Schema(format!(
            "the data is of schema {version} and this build knows {SCHEMA_VERSION}: \
             start a newer build, or restore a backup made by this one"
        ))));
    }
    refuse_older(version)?;
    let missing = missing_settings(connection).await?;
    if !missing.is_empty() {
        return Err(MigrationError::Other(StoreError::Schema(format!(
            "the database roles lack settings that the service relies on: run `migrate` without --no-provision, \
             or as a superuser: {};",
            missing.join("; ")
        ))));
    }
    drop_invalid_indexes(connection).await?;
    MIGRATOR.run(&mut *connection).await.map_err(|error| of_migration(&error))?;
    functions::replace(connection).await?;
    // No older build has read or written anything yet where there is no organisation.
    sqlx::query(
        "UPDATE cluster SET feature_level = $1
         WHERE feature_level < $1 AND NOT EXISTS (SELECT FROM organisation)",
    )
    .bind(FeatureLevel::OF_THIS_BUILD.0)
    .execute(&mut *connection)
    .await?;
    Ok(())
}

fn of_migration(error: &MigrateError) -> MigrationError {
    if let MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) = error
        && is_lock_timeout(source)
    {
        return MigrationError::Locked;
    }
    let why = if let MigrateError::Execute(source) = error {
        read_sentence(source)
    } else if let MigrateError::ExecuteMigration(source, number) = error {
        format!("{}, in migration {number}", read_sentence(source))
    } else {
        error.to_string()
    };
    MigrationError::Other(StoreError::Schema(format!("a migration failed: {why}")))
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.as_deref() == Some(LOCK_NOT_AVAILABLE)
}

/// Drops the indexes that an interrupted `CREATE INDEX CONCURRENTLY` has left; its migration makes them again.
async fn drop_invalid_indexes(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let invalid: Vec<String> = sqlx::query_scalar(
        "SELECT c.oid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         WHERE NOT i.indisvalid AND c.relowner = 'oc_owner'::regrole",
    )
    .fetch_all(&mut *connection)
    .await?;
    for index in invalid {
        let statement = format!("DROP INDEX CONCURRENTLY IF EXISTS {index}");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn read_version(connection: &mut PgConnection) -> Result<i64, sqlx::Error> {
    let there: bool =
        sqlx::query_scalar("SELECT to_regclass('public._sqlx_migrations') IS NOT NULL")
            .fetch_one(&mut *connection)
            .await?;
    if !there {
        return Ok(0);
    }
    let version: Option<i64> =
        sqlx::query_scalar("SELECT max(version) FROM _sqlx_migrations WHERE success")
            .fetch_one(&mut *connection)
            .await?;
    Ok(version.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_version_is_the_newest_migration() {
        let versions: Vec<i64> = MIGRATOR.iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (FIRST_SCHEMA..=SCHEMA_VERSION).collect::<Vec<_>>());
    }
}
