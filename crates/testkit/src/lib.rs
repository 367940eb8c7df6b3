//! A real Postgres for tests: one server per run, one database per test. Also a pooler, and a network with
//! faults, to put in front of it; a git server and an object store with faults.
//!
//! ```text
//! nextest ─starts─▶ test process ─first of the run─▶ Postgres ◀─── all other tests of the run
//!    ▲                                                  ▲ stops it and removes its folder
//!    └───────────────────watches──────────────────── holder (sh)
//! template database (migrated once) ─CREATE DATABASE … TEMPLATE─▶ a database for each test
//! ```
//!
//! It works the same under `./dev test`, `cargo nextest run`, `cargo test` and a debugger, with nothing
//! running before or after. Commits are not durable here; fault tests start their own [`boot::Postgres`].

mod database;
mod depth;
mod git_server;
mod pooler;
mod proxy;
mod python;
mod s3;
mod server;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use database::{TestDatabase, database};
pub use depth::{dig, memory_folder};
pub use git_server::{GitServer, git};
pub use pooler::{Pooler, pooler};
pub use proxy::Proxy;
pub use s3::{BUCKET, S3, S3Fault};
pub use server::{Server, postgres};

/// Makes a temporary folder for data folders. Also works as root, when Postgres runs as another user and must
/// pass through it.
///
/// # Errors
/// The system cannot make a folder.
pub fn temp_folder() -> Result<TempDir> {
    let passable = Permissions::from_mode(0o711);
    let folder = tempfile::Builder::new().prefix("oc-").permissions(passable).tempdir();
    folder.context("cannot make a temporary folder")
}
