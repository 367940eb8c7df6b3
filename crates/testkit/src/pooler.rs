//! A pgbouncer in transaction mode in front of a test's database.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::{TestDatabase, temp_folder};

/// A running pgbouncer. Dropping it stops it.
#[derive(Debug)]
pub struct Pooler {
    process: Child,
    url: String,
    _folder: TempDir,
}

/// Starts a pgbouncer that gives each role `backends` connections to `database`. If a store has more
/// connections than that, two statements of one connection rarely use the same backend.
///
/// # Errors
/// Pgbouncer is not installed or does not start.
pub async fn pooler(database: &TestDatabase, backends: u32) -> Result<Pooler> {
    let folder = temp_folder()?;
    let url = database.store_url();
    let (head, rest) = url.rsplit_once('@').context("a URL with a credential")?;
    let (server, name) = rest.split_once('/').context("a URL with a database")?;
    let (host, port) = server.rsplit_once(':').context("a URL with a port")?;
    let password = head.rsplit_once(':').context("a URL with a password")?.1;
    let own = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let users = folder.path().join("users");
    fs::write(&users, format!("\"oc_app\" \"{password}\"\n\"oc_sched\" \"{password}\"\n"))?;
    let settings = folder.path().join("pgbouncer.ini");
    fs::write(
        &settings,
        format!(
            "[databases]\n{name} = host={host} port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {own}\nunix_socket_dir =\nauth_type = plain\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {backends}\n",
            users.display()
        ),
    )?;
    let mut command = Command::new("pgbouncer");
    command.arg("--quiet");
    if rustix::process::geteuid().is_root() {
        command.args(["--user", "postgres"]);
    }
    command.arg(&settings).stdin(Stdio::null()).stdout(Stdio::null());
    let process =
        command.spawn().context("cannot start pgbouncer; install the package pgbouncer")?;
    let mut pooler = Pooler {
        process,
        url: format!("{head}@127.0.0.1:{own}/{name}?pooler=transaction"),
        _folder: folder,
    };
    while TcpStream::connect(("127.0.0.1", own)).await.is_err() {
        if let Some(status) = pooler.process.try_wait()? {
            bail!("pgbouncer has ended: {status}");
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(pooler)
}

impl Pooler {
    /// Returns the URL for `StoreOptions::new` through the pooler.
    #[must_use]
    pub fn store_url(&self) -> &str {
        &self.url
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // A pgbouncer that has ended already must still be reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
