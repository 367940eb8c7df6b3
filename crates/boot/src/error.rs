//! The reasons why something cannot be started, each on one line with the remedy.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use thiserror::Error;

/// The reason why something cannot be started. Every message is one line for the person who typed the
/// command, and ends with the remedy if there is one.
#[derive(Debug, Error)]
pub enum BootError {
    /// A server that we start is not installed.
    #[error(
        "{program} was not found; install it with `apt-get install {package}` (in a clone of the \
         repository `./dev up` does that)"
    )]
    MissingBinary {
        /// The program's name.
        program: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// We run as root, which Postgres refuses, and there is no user to run it as.
    #[error(
        "postgres refuses to run as root and there is no user `postgres`; create it with \
         `useradd --system postgres`, or start as another user than root"
    )]
    NoPostgresUser,
    /// A folder on the path is closed to the Postgres user.
    #[error(
        "the user `{user}` cannot enter {path}, so postgres cannot run there; open it with \
         `chmod o+x {path}`, or choose another folder with --data-dir"
    )]
    Unreachable {
        /// The user that runs Postgres.
        user: String,
        /// The first closed folder on the path.
        path: PathBuf,
    },
    /// Another process of ours holds the data folder.
    #[error(
        "the data folder {path} is in use by process {owner}; stop that one, or choose another \
         folder with --data-dir"
    )]
    DataDirInUse {
        /// The data folder.
        path: PathBuf,
        /// The holder's process id, from its note.
        owner: String,
    },
    /// A newer release made the data folder.
    #[error(
        "the data folder {path} was made by a newer opencode-cloud (format {found}, this one knows \
         {known}); start that release, or choose another folder with --data-dir"
    )]
    NewerDataDir {
        /// The data folder.
        path: PathBuf,
        /// The folder's format.
        found: u32,
        /// The newest format that this release knows.
        known: u32,
    },
    /// The database in the data folder belongs to another major version of Postgres.
    #[error(
        "{path} holds a PostgreSQL {data} database and only PostgreSQL {found} was found; install \
         the other with `apt-get install postgresql-{data}`, or choose another folder with --data-dir"
    )]
    PostgresVersion {
        /// The folder of the database.
        path: PathBuf,
        /// The major version that made it.
        data: u32,
        /// The major versions that are installed, newest first.
        found: String,
    },
    /// Another process listens on the port.
    #[error("port {port} is in use; stop what listens there, or choose another with --port")]
    PortInUse {
        /// The port.
        port: u16,
    },
    /// The disk is full, or almost.
    #[error(
        "the disk of {path} is full ({free_mib} MiB free, {needed_mib} MiB needed); free some space, \
         or choose a folder on another disk with --data-dir"
    )]
    DiskFull {
        /// A path on that disk.
        path: PathBuf,
        /// The free space for us, in MiB.
        free_mib: u64,
        /// The space that we need, in MiB.
        needed_mib: u64,
    },
    /// The operating system denies access.
    #[error(
        "no permission to {action} {path}; give this user access to it, or choose another folder \
         with --data-dir"
    )]
    PermissionDenied {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
    },
    /// A child server ended before it was ready.
    #[error("{program} stopped while it started ({status}): {reason}; its log is {log}")]
    Exited {
        /// The program's name.
        program: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The most informative line of its log.
        reason: String,
        /// Its log.
        log: PathBuf,
    },
    /// A child server neither ended nor became ready in time.
    #[error("{program} was not ready after {} s; its log is {log}", waited.as_secs())]
    NotReady {
        /// The program's name.
        program: &'static str,
        /// The time that we waited.
        waited: Duration,
        /// Its log.
        log: PathBuf,
    },
    /// An orphaned server of an earlier run does not stop.
    #[error(
        "a postgres of an earlier run (process {pid}) does not stop; end it with `kill -QUIT {pid}` \
         and start again"
    )]
    OrphanStays {
        /// Its process id.
        pid: i32,
    },
    /// The log filter is invalid.
    #[error(
        "the log filter `{filter}` is not understood ({reason}); try `info` or `info,sqlx=warn`"
    )]
    LogFilter {
        /// The filter, as given.
        filter: String,
        /// The problem.
        reason: String,
    },
    /// The folder contains files of something else.
    #[error(
        "{path} is not a data folder of opencode-cloud: it holds {found}; choose an empty or a new \
         folder with --data-dir"
    )]
    ForeignDataDir {
        /// The folder.
        path: PathBuf,
        /// One of the files in it.
        found: String,
    },
    /// Any other failure of the operating system.
    #[error("cannot {action} {path}: {}{}", reason(source), fix(action))]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file, folder or program.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Returns the system's message without its number: `Read-only file system`.
fn reason(source: &io::Error) -> String {
    let text = source.to_string();
    text.rfind(" (os error ").map_or_else(|| text.clone(), |at| text[..at].to_owned())
}

/// Returns the remedy. The data folder is the problem in every case but running a program.
fn fix(action: &str) -> &'static str {
    if action == "run" { "" } else { "; correct that, or choose another folder with --data-dir" }
}

impl BootError {
    /// Converts a failure of `action` on `path` into an error for the person who started us; for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            if source.kind() == io::ErrorKind::StorageFull {
                Self::disk_full(&path)
            } else if source.kind() == io::ErrorKind::PermissionDenied {
                Self::PermissionDenied { action, path }
            } else {
                Self::Io { action, path, source }
            }
        }
    }

    /// Makes the error for a write that failed because the disk of `path` is full.
    pub(crate) fn disk_full(path: &Path) -> Self {
        let free_mib = crate::disk::free_bytes(path).unwrap_or(0) >> 20;
        Self::DiskFull { path: path.to_owned(), free_mib, needed_mib: crate::disk::COMFORT_MIB }
    }
}
