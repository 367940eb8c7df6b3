//! A Postgres with a standby: the primary dies, and the standby takes over while sessions work.
//!
//! ```text
//! service ─▶ [clients] ─▶ primary ◀─ [replication] ◀─ standby
//!                          ✗ killed with all its processes     │ promoted
//! service ─▶ [clients] ────────────────────────────────────────┘
//! ```
//!
//! Both arrows are proxies. The one of the standby stands still before the primary is killed, so that the standby lacks
//! what came after that: without synchronous replication those commits are lost, with it nobody was told of them.

use std::fs;

use anyhow::{Context, Result};
use boot::DATABASE;
use sqlx::Connection;
use tempfile::TempDir;
use testkit::Proxy;

use crate::executable::executable;
use crate::postgres::{PostgresServer, init_postgres};
use crate::process::run;
use crate::settle::eventually;
use crate::went_back::LossyDatabase;

/// The passwords of the roles. The servers trust everybody who reaches them, but roles must have passwords.
const PASSWORD: &str = "a-password-of-this-pair";
/// Whether a commit waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commits {
    /// It does not: a standby that takes over may lack the last ones.
    Asynchronous,
    /// It does: what was acknowledged, the standby has.
    Synchronous,
}

/// A primary, and a standby that follows it.
#[derive(Debug)]
pub struct StandbyPair {
    commits: Commits,
    primary: PostgresServer,
    /// `None` after its promotion, until the next one is made.
    standby: Option<PostgresServer>,
    clients: Proxy,
    replication: Proxy,
    /// The number of servers so far.
    servers: u32,
    folder: TempDir,
}

impl StandbyPair {
    /// Starts both with a schema for the service.
    ///
    /// # Errors
    /// When there is no Postgres, or it does not start.
    pub async fn start(commits: Commits) -> Result<Self> {
        let folder = testkit::temp_folder()?;
        let data = folder.path().join("server-0000");
        init_postgres(&data)?;
        let primary = PostgresServer::start(&data, folder.path(), &[]).await?;
        primary.execute("postgres", &format!("CREATE DATABASE {DATABASE}")).await?;
        migrate(&primary)?;
        let clients = Proxy::to(primary.address()).await?;
        let replication = Proxy::to(primary.address()).await?;
        let mut pair =
            Self { commits, primary, standby: None, clients, replication, servers: 1, folder };
        pair.add_standby().await?;
        Ok(pair)
    }

    /// Returns the URL by which the service reaches whichever is the primary.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://oc_app:{PASSWORD}@{}/{DATABASE}", self.clients.address())
    }

    /// Stops both.
    ///
    /// # Errors
    /// When one does not end.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(mut standby) = self.standby.take() {
            standby.stop().await?;
        }
        self.primary.stop().await
    }

    /// Copies the primary while it is stopped, and starts both again, the copy as its standby.
    async fn add_standby(&mut self) -> Result<()> {
        self.primary.stop().await?;
        // No name begins with another one's.
        let data = self.folder.path().join(format!("server-{:04}", self.servers));
        self.servers += 1;
        let [from, to] = [&self.primary.data, &data].map(|path| path.display().to_string());
        run("cp", &["-a", &from, &to])?;
        fs::write(data.join("standby.signal"), "")?;
        let names = "synchronous_standby_names=standby";
        let waits: &[&str] = if self.commits == Commits::Synchronous { &[names] } else { &[] };
        self.primary = PostgresServer::start(&self.primary.data, self.folder.path(), waits).await?;
        self.replication.cut_flows();
        self.replication.still(false);
        self.replication.lead_to(self.primary.address());
        self.clients.lead_to(self.primary.address());
        self.clients.cut_flows();
        let from = format!(
            "primary_conninfo=host=127.0.0.1 port={} user=postgres application_name=standby",
            self.replication.address().port()
        );
        self.standby = Some(PostgresServer::start(&data, self.folder.path(), &[&from]).await?);
        Ok(())
    }

    /// Waits until the standby has what the primary has committed so far.
    async fn wait_for_standby(&self) -> Result<()> {
        let mut primary = self.primary.connect("postgres").await?;
        let (end,): (String,) =
            sqlx::query_as("SELECT pg_current_wal_lsn()::text").fetch_one(&mut primary).await?;
        eventually("the standby has caught up", 60, async || {
            let (has,): (bool,) = sqlx::query_as(
                "SELECT coalesce(bool_or(flush_lsn >= $1::pg_lsn), false) FROM pg_stat_replication",
            )
            .bind(&end)
            .fetch_one(&mut primary)
            .await?;
            Ok(has.then_some(()))
        })
        .await?;
        Ok(primary.close().await?)
    }
}

impl LossyDatabase for StandbyPair {
    async fn keep(&mut self) -> Result<()> {
        if self.standby.is_none() {
            self.add_standby().await?;
        }
        self.wait_for_standby().await?;
        self.replication.still(true);
        Ok(())
    }

    async fn put_back(&mut self) -> Result<()> {
        let standby = self.standby.take().context("a standby")?;
        self.primary.kill().await?;
        standby.execute("postgres", "SELECT pg_promote(true, 60)").await?;
        self.clients.lead_to(standby.address());
        self.clients.cut_flows();
        let lost = std::mem::replace(&mut self.primary, standby);
        Ok(fs::remove_dir_all(&lost.data)?)
    }

    fn keeps_acknowledged(&self) -> bool {
        self.commits == Commits::Synchronous
    }
}

/// Creates the roles and the schema of the service.
fn migrate(server: &PostgresServer) -> Result<()> {
    let program = executable()?.display().to_string();
    let url = format!("--database-url=postgres://postgres@{}/{DATABASE}", server.address());
    let migrate = format!("--migrate-password={PASSWORD}-migrate");
    let serve = format!("--serve-password={PASSWORD}");
    run(&program, &["migrate", &url, &migrate, &serve]).map(drop)
}
