//! The files of our Postgres.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tracing::info;

use super::connection::{DATABASE, SUPERUSER};
use super::diagnose::{Diagnosis, diagnose};
use super::install::Installation;
use super::{Connection, Durability};
use crate::log_file::LogFile;
use crate::user::User;
use crate::{BootError, DataDir, free_port, ports};

/// The longest path of the socket's folder. A Unix socket's path has at most 108 bytes, and Postgres adds a
/// file name.
const MAX_SOCKET_FOLDER: usize = 80;
/// Every connection needs a password, over the socket too.
const HBA: &str = "local all all scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n";

/// The folder `postgres/` of a data folder, owned by the user that runs Postgres.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    root: PathBuf,
    user: Option<User>,
}

impl Folder {
    /// Creates the folder if it is missing.
    pub(super) fn prepare(data: &DataDir, user: Option<User>) -> Result<Self, BootError> {
        let folder = Self { root: data.subfolder("postgres")?, user };
        folder.hand_over(&folder.root)?;
        if let Some(user) = &folder.user {
            user.require_entry(&folder.root)?;
        }
        Ok(folder)
    }

    pub(super) fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    pub(super) fn pgdata(&self) -> PathBuf {
        self.root.join("pgdata")
    }

    pub(super) fn hba(&self) -> PathBuf {
        self.root.join("pg_hba.conf")
    }

    pub(super) fn log(&self) -> LogFile {
        LogFile::new(self.root.join("log"))
    }

    /// Returns the major version that made the database, once it is initialised.
    pub(super) fn version(&self) -> Result<Option<u32>, BootError> {
        let path = self.pgdata().join("PG_VERSION");
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&path).map_err(BootError::io("read", &path))?;
        Ok(text.trim().parse().ok())
    }

    /// Writes the files of each start, and returns the connection.
    pub(super) fn connect(&self, port: u16) -> Result<Connection, BootError> {
        self.write("pg_hba.conf", HBA)?;
        self.write("port", &port.to_string())?;
        let path = self.root.join("password");
        let password = fs::read_to_string(&path).map_err(BootError::io("read", &path))?;
        Ok(Connection::new(port, self.socket_folder()?, password.trim().to_owned()))
    }

    /// Returns the last port if it is still free, so that noted URLs stay valid; otherwise any free port.
    pub(super) fn port(&self) -> Result<u16, BootError> {
        let last = fs::read_to_string(self.root.join("port")).ok();
        let last = last.and_then(|text| text.trim().parse::<u16>().ok());
        last.filter(|port| ports::is_free(*port)).map_or_else(free_port, Ok)
    }

    /// Returns the socket's folder; `None` if the path would be too long for a socket.
    fn socket_folder(&self) -> Result<Option<PathBuf>, BootError> {
        let path = self.root.join("socket");
        if path.as_os_str().len() > MAX_SOCKET_FOLDER {
            return Ok(None);
        }
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(BootError::io("create the folder", &path))?;
        self.hand_over(&path)?;
        Ok(Some(path))
    }

    /// Creates the database if it does not exist. Leftovers of a killed attempt are deleted: the folder gets
    /// its name only when it is complete.
    pub(super) async fn initialise(
        &self,
        installation: &Installation,
        durability: Durability,
    ) -> Result<(), BootError> {
        if self.version()?.is_some() {
            return Ok(());
        }
        info!(folder = %self.root.display(), "initialising postgres");
        let fresh = self.root.join("pgdata.new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(BootError::io("remove", &fresh))?;
        }
        self.write("password", &hex::encode(rand::random::<[u8; 24]>()))?;
        self.initdb(installation, &fresh, durability).await?;
        self.create_database(installation, &fresh).await?;
        let named = fs::rename(&fresh, self.pgdata());
        let synced = named.and_then(|()| File::open(&self.root)?.sync_all());
        synced.map_err(BootError::io("create the folder", &self.pgdata()))
    }

    async fn initdb(
        &self,
        installation: &Installation,
        pgdata: &Path,
        durability: Durability,
    ) -> Result<(), BootError> {
        let mut command = self.tool(&installation.program("initdb"));
        command.arg("-D").arg(pgdata).args(["-U", SUPERUSER, "-E", "UTF8", "--locale=C"]);
        command.args(["--auth=scram-sha-256", "--data-checksums", "--no-instructions"]);
        command.arg("--pwfile").arg(self.root.join("password"));
        if durability == Durability::Off {
            command.arg("--no-sync");
        }
        self.run("initdb", command, "").await
    }

    /// Creates the database in single-user mode, before anything can connect.
    async fn create_database(
        &self,
        installation: &Installation,
        pgdata: &Path,
    ) -> Result<(), BootError> {
        let mut command = self.tool(&installation.program("postgres"));
        command.arg("--single").arg("-D").arg(pgdata).arg("postgres");
        self.run("postgres", command, &format!("CREATE DATABASE {DATABASE}\n")).await
    }

    async fn run(
        &self,
        program: &'static str,
        mut command: Command,
        input: &str,
    ) -> Result<(), BootError> {
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        let failed = || BootError::io("run", Path::new(program));
        let mut child = command.spawn().map_err(failed())?;
        let mut stdin = child.stdin.take().expect("it was just piped");
        // A program that ended early gives its reason on stderr; the broken pipe says nothing.
        let _broken_pipe = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = child.wait_with_output().await.map_err(failed())?;
        let said = String::from_utf8_lossy(&output.stderr);
        // Single-user mode exits with 0 even after an error.
        if output.status.success() && !said.contains("ERROR:") {
            return Ok(());
        }
        Err(match diagnose(&said) {
            Diagnosis::DiskFull => BootError::disk_full(&self.root),
            Diagnosis::PortInUse | Diagnosis::Other(_) => BootError::Exited {
                program,
                status: output.status,
                reason: said.split_whitespace().collect::<Vec<_>>().join(" "),
                log: self.root.join("log"),
            },
        })
    }

    /// Returns a command that runs as the Postgres user with a clean environment.
    fn tool(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        clean(command.as_std_mut(), &self.root, self.user.as_ref());
        command
    }

    /// Replaces a file that only Postgres and we may read.
    fn write(&self, name: &str, text: &str) -> Result<(), BootError> {
        let path = self.root.join(name);
        let fresh = path.with_added_extension("new");
        let options =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
        let written = options.open(&fresh).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(BootError::io("write", &fresh))?;
        self.hand_over(&fresh)?;
        fs::rename(&fresh, &path).map_err(BootError::io("write", &path))
    }

    fn hand_over(&self, path: &Path) -> Result<(), BootError> {
        let Some(user) = &self.user else { return Ok(()) };
        chown(path, Some(user.uid), Some(user.gid)).map_err(BootError::io("hand over", path))
    }
}

/// Clears the environment, which contains keys, and variables that would change Postgres's behaviour.
pub(super) fn clean(command: &mut std::process::Command, folder: &Path, user: Option<&User>) {
    use std::os::unix::process::CommandExt;
    command.env_clear().env("LC_ALL", "C").env("TZ", "UTC").current_dir(folder);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
}
