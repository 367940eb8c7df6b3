//! Starts one postmaster and waits until it is ready.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::info;

use super::diagnose::{Diagnosis, diagnose};
use super::folder::{Folder, clean};
use super::install::Installation;
use super::{Connection, Durability, PostgresOptions, orphan};
use crate::guarded::{GuardedChild, GuardedCommand, StopSignal};
use crate::log_file::LogFile;
use crate::{BootError, DataDir, disk, free_port, user};

const POLL: Duration = Duration::from_millis(20);
/// The longest start. Recovery after a crash replays up to a gigabyte of write-ahead log.
const START_PATIENCE: Duration = Duration::from_secs(300);
const TELL_EVERY: Duration = Duration::from_secs(5);
/// The number of retries if another process takes the port between our look and Postgres's.
const PORT_TRIES: usize = 5;

/// The parts to start our Postgres repeatedly on the same port.
#[derive(Clone, Debug)]
pub(super) struct Server {
    installation: Installation,
    folder: Folder,
    options: PostgresOptions,
    connection: Connection,
    log: LogFile,
}

/// The reason why a start failed.
enum StartError {
    PortInUse,
    Other(BootError),
}

impl From<BootError> for StartError {
    fn from(error: BootError) -> Self {
        Self::Other(error)
    }
}

impl Server {
    /// Prepares everything and starts it on the last port or a free one.
    pub(super) async fn start_on_a_free_port(
        data: &DataDir,
        options: &PostgresOptions,
    ) -> Result<(Self, GuardedChild), BootError> {
        let folder = Folder::prepare(data, user::for_postgres()?)?;
        let pgdata = folder.pgdata();
        let version = folder.version()?.map(|major| (pgdata.as_path(), major));
        let installation = Installation::choose(version, &options.python_envs, folder.user())?;
        if version.is_none() {
            disk::ensure_free_space(data.path(), disk::COMFORT_MIB << 20)?;
        }
        folder.initialise(&installation, options.durability).await?;
        let connection = folder.connect(folder.port()?)?;
        orphan::stop(&pgdata, connection.socket_folder()).await?;
        let log = folder.log();
        let mut server = Self { installation, folder, options: options.clone(), connection, log };
        for _ in 1..PORT_TRIES {
            match server.try_start().await {
                Ok(child) => return Ok((server, child)),
                Err(StartError::Other(error)) => return Err(error),
                Err(StartError::PortInUse) => {
                    server.connection = server.folder.connect(free_port()?)?;
                }
            }
        }
        let child = server.start().await?;
        Ok((server, child))
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn log(&self) -> &LogFile {
        &self.log
    }

    /// Starts it on its port and waits until it is ready.
    pub(super) async fn start(&self) -> Result<GuardedChild, BootError> {
        self.try_start().await.map_err(|error| match error {
            StartError::PortInUse => BootError::PortInUse { port: self.connection.port() },
            StartError::Other(error) => error,
        })
    }

    async fn try_start(&self) -> Result<GuardedChild, StartError> {
        let pgdata = self.folder.pgdata();
        orphan::stop(&pgdata, self.connection.socket_folder()).await?;
        let (file, from) = self.log.open()?;
        let mut command =
            GuardedCommand::new(&self.installation.program("postgres"), StopSignal::Interrupt);
        clean(command.command(), &pgdata, self.folder.user());
        let output = file.try_clone().map_err(BootError::io("open the log", self.log.path()))?;
        command.command().args(self.arguments()).stdout(output).stderr(file);
        let mut child = command.spawn()?;
        let begun = Instant::now();
        let mut told = begun;
        loop {
            // The pid file must be of *this* process: it may be an older one's.
            let pid = child.pid();
            let pid_file = fs::read_to_string(pgdata.join("postmaster.pid")).unwrap_or_default();
            if pid.is_some_and(|pid| says_ready(&pid_file, pid)) {
                return Ok(child);
            }
            tokio::select! {
                biased;
                ended = child.wait() => {
                    let status = ended.map_err(BootError::io("wait for", Path::new("postgres")))?;
                    return Err(self.explain(status, from));
                }
                () = sleep(POLL) => {}
            }
            if begun.elapsed() > START_PATIENCE {
                let log = self.log.path().to_owned();
                let waited = begun.elapsed();
                return Err(BootError::NotReady { program: "postgres", waited, log }.into());
            }
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                info!(waited_s = begun.elapsed().as_secs(), "postgres is recovering");
            }
        }
    }

    fn explain(&self, status: ExitStatus, from: u64) -> StartError {
        match diagnose(&self.log.since(from)) {
            Diagnosis::PortInUse => StartError::PortInUse,
            Diagnosis::DiskFull => BootError::disk_full(&self.folder.pgdata()).into(),
            Diagnosis::Other(reason) => {
                let log = self.log.path().to_owned();
                BootError::Exited { program: "postgres", status, reason, log }.into()
            }
        }
    }

    /// Returns all settings as arguments, so that no file in the data folder can override them.
    fn arguments(&self) -> Vec<OsString> {
        let settings = [
            ("listen_addresses", "127.0.0.1"),
            // A client that died during login would hold up others that wait for its database.
            ("authentication_timeout", "5s"),
            ("unix_socket_permissions", "0700"),
            ("password_encryption", "scram-sha-256"),
            ("shared_buffers", "128MB"),
            // Of the images of whole pages that the log has after each checkpoint.
            ("wal_compression", "on"),
            ("timezone", "UTC"),
            ("log_timezone", "UTC"),
            ("logging_collector", "off"),
            ("log_destination", "stderr"),
            ("log_min_messages", "warning"),
            // Details quote rows, and rows contain prompts.
            ("log_error_verbosity", "terse"),
            ("log_min_error_statement", "panic"),
        ];
        let durable = match self.options.durability {
            Durability::Full => "on",
            Durability::Off => "off",
        };
        // synchronous_commit stays on. With fsync off it costs only a write; without it, a killed Postgres
        // would lose acknowledged commits.
        let sync = ["fsync", "full_page_writes"].map(|name| (name, durable));
        let mut arguments: Vec<OsString> = vec!["-D".into(), self.folder.pgdata().into()];
        let mut set = |name: &str, value: OsString| {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            arguments.extend(["-c".into(), pair]);
        };
        for (name, value) in settings.into_iter().chain(sync) {
            set(name, value.into());
        }
        set("port", self.connection.port().to_string().into());
        set("max_connections", self.options.max_connections.to_string().into());
        set("hba_file", self.folder.hba().into());
        let socket = self.connection.socket_folder().map_or_else(OsString::new, quoted);
        set("unix_socket_directories", socket);
        arguments
    }
}

/// Quotes a name: the value is a list, so names with a comma or a space need quotes. A quote within is doubled.
fn quoted(folder: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for byte in folder.as_os_str().as_bytes() {
        quoted.extend(std::iter::repeat_n(*byte, if *byte == b'"' { 2 } else { 1 }));
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

/// Returns whether a `postmaster.pid` says that process `pid` accepts connections: its first line is the
/// process id and its eighth the state, as pg_ctl reads it.
fn says_ready(pid_file: &str, pid: u32) -> bool {
    let mut lines = pid_file.lines().map(str::trim);
    lines.next() == Some(&pid.to_string()) && lines.nth(6) == Some("ready")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_postmasters_own_word_counts_as_ready() {
        let file = "71\n/data\n1700000000\n5432\n/data/socket\n127.0.0.1\n  1 2\nready   \n";
        assert!(says_ready(file, 71) && !says_ready(file, 7));
        assert!(!says_ready(&file.replace("ready   ", "starting"), 71));
        assert!(!says_ready("71\n/data\n", 71) && !says_ready("", 71));
    }

    // Postgres refused to start in a folder with a quote in its name.
    #[test]
    fn a_folder_of_any_name_is_one_item_of_a_list() {
        for (folder, expected) in
            [("/d", "\"/d\""), ("/a b, c", "\"/a b, c\""), ("/d'at\"a", "\"/d'at\"\"a\"")]
        {
            assert_eq!(quoted(Path::new(folder)), expected);
        }
    }
}
