//! Postgres servers with a place and settings of the test's choice. Root runs them as the user `postgres`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use boot::free_port;
use rustix::process::{Signal, kill_process};
use sqlx::{Connection, PgConnection};

use crate::orphans::processes_naming;
use crate::process::{Process, known, run};
use crate::settle::eventually;

/// The superuser, who needs no password.
const SUPERUSER: &str = "postgres";

/// How long a server may take to stop.
const STOP: Duration = Duration::from_secs(60);

/// A running server of its own.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    port: u16,
    /// Its folder.
    pub(crate) data: PathBuf,
}

impl PostgresServer {
    /// Starts a server of that folder on a free port, and waits until it answers.
    ///
    /// # Errors
    /// When there is no Postgres, or it does not start.
    pub async fn start(data: &Path, logs: &Path, settings: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let at = format!("port={port}");
        let common = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=200",
            // The machine does not crash, and a killed server has written what it committed.
            "fsync=off",
            "wal_keep_size=512MB",
            "wal_retrieve_retry_interval=100ms",
        ];
        let settings = [&common[..], &[&at], settings].concat();
        let mut words = postgres_words(data, &settings)?;
        let program = PathBuf::from(words.remove(0));
        let process = Process::start("postgres", &program, &words, &[], logs)?;
        let server = Self { process, port, data: data.to_owned() };
        eventually("Postgres takes connections", 60, async || {
            Ok(server.connect("postgres").await.ok())
        })
        .await
        .with_context(|| server.process.tail())?;
        Ok(server)
    }

    /// Returns its host and port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Connects as the superuser.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn connect(&self, database: &str) -> Result<PgConnection> {
        let url = format!("postgres://postgres@{}/{database}", self.address());
        Ok(PgConnection::connect(&url).await?)
    }

    /// Runs statements as the superuser.
    ///
    /// # Errors
    /// Those of Postgres.
    pub async fn execute(&self, database: &str, sql: &str) -> Result<()> {
        let mut connection = self.connect(database).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }

    /// Stops it in order: all that was committed is on disk.
    ///
    /// # Errors
    /// When it does not stop within a minute.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::INT)?;
        self.process.wait(STOP).await.map(drop)
    }

    /// Kills all its processes at once, as when its machine dies.
    ///
    /// # Errors
    /// When it lives on.
    pub async fn kill(&mut self) -> Result<()> {
        let all = processes_naming(&self.data);
        for pid in all.iter().filter_map(|found| known(found.pid).ok()) {
            let _ended_already = kill_process(pid, Signal::KILL);
        }
        self.process.wait(STOP).await.map(drop)
    }
}

/// Makes an empty database cluster in a folder. Everybody who reaches it is trusted.
///
/// # Errors
/// When `initdb` fails.
pub fn init_postgres(data: &Path) -> Result<()> {
    fs::create_dir_all(data)?;
    if is_root() {
        std::os::unix::fs::chown(data, Some(find_user()?), None)?;
    }
    let data = data.display().to_string();
    let args = ["-D", &data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"];
    run_words(&words_of("initdb", &args)?)
}

/// Returns the command line of a server with settings as `NAME=VALUE`.
///
/// # Errors
/// When there is no Postgres.
pub(crate) fn postgres_words(data: &Path, settings: &[&str]) -> Result<Vec<String>> {
    let data = data.display().to_string();
    let mut args = vec!["-D", &data];
    args.extend(settings.iter().flat_map(|setting| ["-c", setting]));
    words_of("postgres", &args)
}

fn run_words(words: &[String]) -> Result<()> {
    let (program, args) = words.split_first().context("a program")?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    run(program, &args).map(drop)
}

/// Returns the command line of a program of Postgres, which refuses to run as root.
fn words_of(program: &str, args: &[&str]) -> Result<Vec<String>> {
    let program = find_programs()?.join(program).display().to_string();
    let other = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"];
    let before = if is_root() { &other[..] } else { &[] };
    let words = before.iter().copied().chain([program.as_str()]).chain(args.iter().copied());
    Ok(words.map(str::to_owned).collect())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the number of the user `postgres`.
fn find_user() -> Result<u32> {
    let output = run("id", &["-u", "postgres"])?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
}

/// Returns the folder of Postgres' programs: of the newest version that is installed, or the one that `PATH` names.
fn find_programs() -> Result<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).find(|folder| folder.join("initdb").exists());
    let folder =
        found.pop().or(named).context("there is no Postgres: install the package postgresql")?;
    ensure!(folder.join("postgres").exists(), "{} has no postgres", folder.display());
    Ok(folder)
}
