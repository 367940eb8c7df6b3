//! The Postgres of a service, used as its superuser: to probe, to count, to fill.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

/// How long it takes until an idle connection has reported its counts: within ten seconds.
pub(crate) const COUNTED: Duration = Duration::from_secs(11);

/// A connection pool beside the service's own.
pub(crate) struct Postgres {
    pub(crate) pool: PgPool,
    /// The postmaster's process id.
    pub(crate) pid: u32,
}

impl Postgres {
    /// Connects to the Postgres of a data folder, over its socket like the service.
    pub(crate) async fn of(data: &Path) -> anyhow::Result<Self> {
        let folder = data.join("postgres");
        let file = folder.join("pgdata/postmaster.pid");
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("{} cannot be read: is it ours?", file.display()))?;
        let mut lines = text.lines();
        let pid = lines.next().and_then(|line| line.trim().parse().ok()).context("no pid")?;
        let port = lines.nth(2).and_then(|line| line.trim().parse().ok()).context("no port")?;
        let password = std::fs::read_to_string(folder.join("password"))?;
        let socket = folder.join("socket");
        let mut options = PgConnectOptions::new_without_pgpass()
            .username(boot::SUPERUSER)
            .password(password.trim())
            .database(boot::DATABASE)
            .port(port)
            .host("127.0.0.1");
        if socket.exists() {
            options = options.socket(socket);
        }
        let pool = PgPoolOptions::new()
            .max_connections(3)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await?;
        Ok(Self { pool, pid })
    }

    /// Runs a statement.
    pub(crate) async fn execute(&self, sql: &str) -> anyhow::Result<u64> {
        let done = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await;
        Ok(done.with_context(|| sql.chars().take(200).collect::<String>())?.rows_affected())
    }

    /// Reads one number.
    pub(crate) async fn number(&self, sql: &str) -> anyhow::Result<i64> {
        let read = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&self.pool).await;
        read.with_context(|| sql.chars().take(200).collect::<String>())
    }

    /// Switches autovacuum off, which would take transaction ids and time.
    pub(crate) async fn no_autovacuum(&self) -> anyhow::Result<()> {
        self.execute("ALTER SYSTEM SET autovacuum = off").await?;
        self.execute("SELECT pg_reload_conf()").await?;
        Ok(())
    }

    /// Lets no worker do a chore from now on, such as counting what sessions use.
    pub(crate) async fn no_chores(&self) -> anyhow::Result<()> {
        let sql =
            "CREATE OR REPLACE FUNCTION claim_chore(p_name text, p_every bigint) RETURNS boolean
                   LANGUAGE sql AS 'SELECT false'";
        self.execute(sql).await.map(drop)
    }

    /// Returns the number of blocks of our tables, indexes and long values touched so far, in memory or on disk.
    pub(crate) async fn touched(&self) -> anyhow::Result<i64> {
        tokio::time::sleep(COUNTED).await;
        let sql = "SELECT sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0)
                       + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)
                       + coalesce(toast_blks_hit, 0) + coalesce(toast_blks_read, 0)
                       + coalesce(tidx_blks_hit, 0) + coalesce(tidx_blks_read, 0))::bigint
                   FROM pg_statio_user_tables";
        self.number(sql).await
    }
}
