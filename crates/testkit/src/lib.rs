//! A real Postgres for tests: one server a run, one database a test; and what may stand between it and us, a pooler
//! or a network with faults.
//!
//! ```text
//! nextest ─starts─▶ test process ─first of the run─▶ Postgres ◀─── all other tests of the run
//!    ▲                                                  ▲ stops it and removes its folder
//!    └───────────────────watches──────────────────── holder (sh)
//! template database (migrated once) ─CREATE DATABASE … TEMPLATE─▶ a database for each test
//! ```
//!
//! It works the same under `./dev test`, `cargo nextest run`, `cargo test` and a debugger, with nothing
//! running before and nothing after. Commits are not durable here; tests of faults start a
//! [`boot::Postgres`] of their own.

mod database;
mod pooler;
mod proxy;
mod server;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use database::{TestDatabase, database};
pub use pooler::{Pooler, pooler};
pub use proxy::Proxy;
pub use server::{Server, postgres};

/// A temporary folder in which a data folder can be made: also as root, when Postgres runs as
/// another user and must pass through it.
///
/// # Errors
/// When the system gives no folder.
pub fn temp_folder() -> Result<TempDir> {
    let passable = Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("oc-").permissions(passable).tempdir();
    folder.context("cannot make a temporary folder")
}
