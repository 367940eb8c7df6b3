//! A migrated database for each test.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use store::RolePasswords;

use crate::server::{Server, postgres};

/// The advisory lock with which processes take turns to make the template.
const TEMPLATE_LOCK: i64 = 0x0C_7E57;

/// An empty, migrated database for one test. Dropping this drops the database and ends its remaining
/// connections.
#[derive(Debug)]
pub struct TestDatabase {
    server: Server,
    name: String,
}

/// Makes a database in the state after `provision` and `migrate`, in some tens of milliseconds.
///
/// # Errors
/// Postgres cannot be started, or a migration fails.
pub async fn database() -> Result<TestDatabase> {
    let server = postgres().await?;
    let mut admin = PgConnection::connect(&server.superuser_url("postgres")).await?;
    let template = template(&server, &mut admin).await?;
    let name = format!("test_{:016x}", rand::random::<u64>());
    let clone = format!("CREATE DATABASE {name} TEMPLATE {template} OWNER oc_owner");
    execute(&mut admin, clone).await?;
    admin.close().await?;
    Ok(TestDatabase { server, name })
}

impl TestDatabase {
    /// Returns its name on the server.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the URL for a login role: `oc_migrate`, `oc_app` or `oc_sched`.
    #[must_use]
    pub fn url(&self, role: &str) -> String {
        let (_, host) = self.server_url();
        format!("postgres://{role}:{}@{host}", self.server.role_password())
    }

    /// Runs statements as the superuser, for rows that no role of ours writes so.
    ///
    /// # Errors
    /// Postgres refuses them.
    pub async fn tamper(&self, statements: String) -> Result<()> {
        let mut root = PgConnection::connect(&self.superuser_url()).await?;
        execute(&mut root, statements).await?;
        Ok(root.close().await?)
    }

    /// Returns the superuser's URL, for actions that no role of ours may take.
    #[must_use]
    pub fn superuser_url(&self) -> String {
        self.server.superuser_url(&self.name)
    }

    /// Runs statements as a superuser: for damage that no role can do.
    ///
    /// # Errors
    /// When Postgres refuses them.
    pub async fn run(&self, sql: String) -> Result<()> {
        let mut connection = PgConnection::connect(&self.superuser_url()).await?;
        execute(&mut connection, sql).await
    }

    /// Returns the URL for `StoreOptions::new`, which inserts its own roles.
    #[must_use]
    pub fn store_url(&self) -> String {
        self.url("oc_app")
    }

    /// Returns the superuser's credential, and the host with the database.
    fn server_url(&self) -> (String, String) {
        let url = self.superuser_url();
        let bare = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
        let (credential, host) = bare.rsplit_once('@').unwrap_or(("", bare));
        (credential.to_owned(), host.to_owned())
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let url = self.server.superuser_url("postgres");
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        // This thread cannot wait for the test's own runtime.
        let dropped = thread::spawn(move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let mut admin = PgConnection::connect(&url).await?;
                execute(&mut admin, sql).await?;
                Ok(admin.close().await?)
            })
        });
        let error = match dropped.join() {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it panicked".to_owned(),
        };
        // The server and this database are deleted after the run, so do not fail the test.
        let _stderr_is_gone = writeln!(std::io::stderr(), "{} was not dropped: {error}", self.name);
    }
}

/// Returns the name of the migrated template, which the first test creates. The name is a hash of the
/// migrations and functions, so that a server that outlives an edit does not serve old ones.
async fn template(server: &Server, admin: &mut PgConnection) -> Result<String> {
    let name = format!("oc_template_{}", hash_of_migrations()?);
    // Released when `admin` closes.
    sqlx::query("SELECT pg_advisory_lock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await?;
    let is_template = "SELECT datistemplate FROM pg_database WHERE datname = $1";
    let whole: Option<bool> =
        sqlx::query_scalar(is_template).bind(&name).fetch_optional(&mut *admin).await?;
    if whole != Some(true) {
        // Leftovers of a killed process are not marked as a template.
        execute(admin, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await?;
        execute(admin, format!("CREATE DATABASE {name} TEMPLATE template0")).await?;
        let url = server.superuser_url(&name);
        let password = server.role_password();
        let passwords = RolePasswords { migrate: password.clone(), serve: password };
        store::provision(&url, &passwords).await?;
        let migrate_url = store::role_url(&url, "oc_migrate", Some(&passwords.migrate))?;
        store::migrate(&migrate_url).await?;
        let mark = format!("ALTER DATABASE {name} IS_TEMPLATE true ALLOW_CONNECTIONS false");
        execute(admin, mark).await?;
    }
    sqlx::query("SELECT pg_advisory_unlock($1)").bind(TEMPLATE_LOCK).execute(&mut *admin).await?;
    Ok(name)
}

async fn execute(connection: &mut PgConnection, sql: String) -> Result<()> {
    let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(connection).await;
    done.map(drop).with_context(|| sql)
}

fn hash_of_migrations() -> Result<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut files = Vec::new();
    for folder in ["migrations", "crates/store/sql"] {
        let folder = root.join(folder);
        let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        files.extend(entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?);
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files.iter().filter(|file| file.is_file()) {
        hash.update(fs::read(file).with_context(|| file.display().to_string())?);
        hash.update([0]);
    }
    Ok(hex::encode(&hash.finalize()[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn names(database: &TestDatabase) -> Result<Vec<String>> {
        let mut admin = PgConnection::connect(&database.server.superuser_url("postgres")).await?;
        let all = sqlx::query_scalar("SELECT datname FROM pg_database");
        Ok(all.fetch_all(&mut admin).await?)
    }

    #[tokio::test]
    async fn every_test_has_a_migrated_database_of_its_own() -> Result<()> {
        let (one, two) = (database().await?, database().await?);
        let mut migrate = PgConnection::connect(&one.url("oc_migrate")).await?;
        sqlx::raw_sql("CREATE TABLE only_here ()").execute(&mut migrate).await?;
        let there = "SELECT to_regclass('only_here') IS NOT NULL";
        for (database, expected) in [(&one, true), (&two, false)] {
            let mut app = PgConnection::connect(&database.url("oc_app")).await?;
            let found: bool = sqlx::query_scalar(there).fetch_one(&mut app).await?;
            assert_eq!(found, expected);
            let version = store::schema_version(&database.superuser_url()).await?;
            assert_eq!(version, store::SCHEMA_VERSION);
        }
        // Dropped with an open session; other databases stay.
        let gone = one.name().to_owned();
        drop(one);
        let left = names(&two).await?;
        assert!(!left.contains(&gone) && left.contains(&two.name), "{left:?}");
        Ok(())
    }

    #[tokio::test]
    async fn many_databases_can_be_made_at_once() -> Result<()> {
        let (a, b, c) = tokio::try_join!(database(), database(), database())?;
        let mut made = [a.name(), b.name(), c.name()];
        made.sort_unstable();
        assert!(made.windows(2).all(|pair| pair[0] != pair[1]));
        let left = names(&a).await?;
        assert!(made.iter().all(|name| left.iter().any(|other| other == name)), "{left:?}");
        Ok(())
    }
}
