//! A database's past: it is kept as it is at a moment, and put back later. So it is after a failover to a standby that
//! lacked the last commits, and in front of a copy: whoever is connected is cut off, and finds a shorter past.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::sleep;

use crate::settle::eventually;
use crate::sql::superuser_url;
use crate::went_back::LossyDatabase;

/// The database that is kept.
const KEPT: &str = "kept";
/// The database that was in its place.
const LOST: &str = "lost";

/// The past of the service's database.
#[derive(Debug)]
pub struct Past {
    admin: PgConnection,
}

impl Past {
    /// Connects to the Postgres of a service's data folder.
    ///
    /// # Errors
    /// When none runs there.
    pub async fn open(data: &Path) -> Result<Self> {
        let url = superuser_url(data)?;
        let (server, _) = url.rsplit_once('/').context("a URL with a database")?;
        Ok(Self { admin: PgConnection::connect(&format!("{server}/postgres")).await? })
    }

    /// Ends all connections, and lets nobody in.
    async fn cut_off(&mut self) -> Result<()> {
        self.run(&format!("ALTER DATABASE {} CONNECTION LIMIT 0", boot::DATABASE)).await?;
        for _ in 0..1_000 {
            let (left,): (i64,) = sqlx::query_as(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1",
            )
            .bind(boot::DATABASE)
            .fetch_one(&mut self.admin)
            .await?;
            if left == 0 {
                return Ok(());
            }
            sleep(Duration::from_millis(2)).await;
        }
        ensure!(false, "connections stay");
        Ok(())
    }

    async fn let_in(&mut self) -> Result<()> {
        self.run(&format!("ALTER DATABASE {} CONNECTION LIMIT -1", boot::DATABASE)).await
    }

    /// Runs a statement; another backend may look at the database at the same time, so it is tried again.
    async fn run(&mut self, sql: &str) -> Result<()> {
        eventually(sql, 30, async || {
            let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut self.admin).await;
            match done {
                Ok(_) => Ok(Some(())),
                Err(error) => {
                    let _ended = sqlx::raw_sql("ROLLBACK").execute(&mut self.admin).await;
                    let busy = error.as_database_error().and_then(|error| error.code());
                    // object_in_use: somebody has come in before the door was shut.
                    if busy.as_deref() == Some("55006") { Ok(None) } else { Err(error.into()) }
                }
            }
        })
        .await
    }
}

impl LossyDatabase for Past {
    async fn keep(&mut self) -> Result<()> {
        let database = boot::DATABASE;
        self.run(&format!("DROP DATABASE IF EXISTS {KEPT}")).await?;
        self.cut_off().await?;
        self.run(&format!(
            "CREATE DATABASE {KEPT} TEMPLATE {database} OWNER oc_owner CONNECTION LIMIT 0"
        ))
        .await?;
        self.let_in().await
    }

    async fn put_back(&mut self) -> Result<()> {
        let database = boot::DATABASE;
        self.cut_off().await?;
        self.run(&format!(
            "BEGIN; ALTER DATABASE {database} RENAME TO {LOST}; ALTER DATABASE {KEPT} RENAME TO {database}; COMMIT"
        ))
        .await?;
        self.let_in().await?;
        self.run(&format!("DROP DATABASE {LOST} WITH (FORCE)")).await
    }

    fn keeps_acknowledged(&self) -> bool {
        false
    }
}
