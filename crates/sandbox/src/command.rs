//! A command, and how it ended: the words of the [`Sandbox`] seam.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::exit::Reach;
use crate::hidden::HiddenPaths;
use crate::live_output::LiveOutput;
use crate::lock::LocationLock;
use crate::spool::Output;

/// The kernel's bound on one argument, told to whoever wrote the command.
pub(crate) const TOO_LONG: &str = "the command is too long for one process (the limit is about 128 KiB); \
                                   write it to a file and run that";

/// Runs commands. The tiers differ in what a command can reach, not in how it ends.
#[async_trait]
pub trait Sandbox: Send + Sync + 'static {
    /// Runs `command` to its end, its deadline, or until `cancel` fires; afterwards none of its processes is left.
    ///
    /// Dropping the future kills the command too, a moment later.
    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError>;

    /// Returns whether commands see [`Command::outputs`]. Where they do not, nothing is put anywhere.
    fn shows_outputs(&self) -> bool {
        false
    }
}

/// The folder in which commands see [`Command::outputs`], read-only.
pub const OUTPUTS: &str = "/tool-output";

/// A file in [`OUTPUTS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputFile {
    /// Its name: letters, digits, `_`, `-` and `.`, and no dot at the beginning.
    pub name: String,
    /// All of it.
    pub content: bytes::Bytes,
}

/// One process to run, with its bounds.
#[derive(Debug, Clone)]
pub struct Command {
    /// The program: an absolute path, or a name to find on the `PATH` of the sandbox's environment.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Where it starts.
    pub directory: PathBuf,
    /// Added to the sandbox's environment, or overriding it.
    pub env: Vec<(OsString, OsString)>,
    /// When it is killed, counted from its start.
    pub timeout: Duration,
    /// UTF-8 bytes of output kept in memory, for the beginning and for the end each.
    pub keep_bytes: usize,
    /// The Location's lock, which is held for as long as a process of the command lives.
    pub lock: Option<LocationLock>,
    /// The cell that it runs in, where the tier has cells.
    pub cell: Cell,
    /// Files that it may read in [`OUTPUTS`]. Later commands of its cell see them too.
    pub outputs: Vec<OutputFile>,
    /// How much of its disk it may take. A sandbox that watches disks sets it.
    pub share: DiskShare,
    /// Paths below the workspace that it may not change: the repositories of a person's checkout. A sandbox fills them in.
    pub read_only: Vec<PathBuf>,
    /// Takes the end of its output while it runs.
    pub live: LiveOutput,
}

/// How much of its disk a command may take, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskShare {
    /// The bytes of its largest file.
    pub file_bytes: u64,
    /// Whether it can read and remove files, and write none.
    pub removes_only: bool,
}

impl Default for DiskShare {
    fn default() -> Self {
        Self { file_bytes: crate::limits::FILE_BYTES, removes_only: false }
    }
}

/// The things that commands of one session share: `/tmp`, home, network and limits. A command without a workspace of its own has its
/// directory as that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Cell {
    /// Whose it is. Commands of the same name, workspace and lock share a cell.
    pub name: String,
    /// The directory of this machine that it may change; [`Command::directory`] is in it.
    pub workspace: Option<PathBuf>,
    /// Where commands see that; `None`: where it is.
    pub shown: Option<PathBuf>,
    /// Whether it is a person's own checkout, in which commands change nothing that git obeys: git runs outside the sandbox
    /// later.
    pub protect: bool,
    /// How far its commands get into networks. Only tiers A and B have a way out.
    pub network: Reach,
    /// The parts of the directories that its commands may use, and do not see.
    pub hidden: HiddenPaths,
}

impl Command {
    /// `script` under `bash -c`, or `sh -c` where there is no bash.
    pub fn shell(script: &str, directory: PathBuf, timeout: Duration) -> Self {
        let bash = Path::new("/bin/bash");
        let program = if bash.exists() { bash } else { Path::new("/bin/sh") };
        Self {
            program: program.to_path_buf(),
            args: vec!["-c".into(), script.into()],
            directory,
            env: Vec::new(),
            timeout,
            keep_bytes: 64 * 1024,
            lock: None,
            cell: Cell::default(),
            outputs: Vec::new(),
            share: DiskShare::default(),
            read_only: Vec::new(),
            live: LiveOutput::default(),
        }
    }
}

/// A limit that a command ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Memory, in bytes: the kernel killed a process of it.
    Memory(u64),
    /// So many processes and threads: another one was refused.
    Processes(u64),
    /// `/tmp`, home or `/dev/shm` is full; the bytes that they have together.
    Scratch(u64),
    /// The disk of the workspace or of the service is full, or nearly so.
    Disk {
        /// Bytes that are left.
        free: u64,
        /// Bytes that commands are to leave.
        reserve: u64,
    },
    /// The same, of the number of files that it can hold.
    Files {
        /// Files for which there is room.
        free: u64,
        /// The room that commands are to leave.
        reserve: u64,
    },
    /// The workspace has grown beyond its limit.
    Workspace {
        /// Bytes that it has.
        holds: u64,
        /// Bytes that it may have.
        limit: u64,
    },
    /// The workspace has more files than it may.
    WorkspaceFiles {
        /// Files and folders that it has.
        holds: u64,
        /// Files and folders that it may have.
        limit: u64,
    },
    /// The disk is so full that commands of this workspace remove files only.
    RemovesOnly {
        /// Bytes that are left.
        free: u64,
        /// Bytes that commands are to leave.
        reserve: u64,
    },
    /// The disk has room for so few files that commands of this workspace remove files only.
    RemovesFilesOnly {
        /// Files for which there is room.
        free: u64,
        /// Files for which commands are to leave room.
        reserve: u64,
    },
    /// A file has grown to these bytes, the most that one may have.
    File(u64),
    /// The same, when that was all that commands might take of the disk.
    FileOfDisk(u64),
    /// The same, when that was all that the workspace might take.
    FileOfWorkspace(u64),
}

/// A number of bytes, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let Some((unit, name)) = units.into_iter().find(|(unit, _)| self.0 >= *unit) else {
            return write!(f, "{} bytes", self.0);
        };
        // Tenths, rounded down: what is said to be free is free.
        let tenths = self.0 / (unit / 10).max(1);
        match (tenths / 10, tenths % 10) {
            (whole, 0) => write!(f, "{whole} {name}"),
            (whole, part) => write!(f, "{whole}.{part} {name}"),
        }
    }
}

/// A sentence for whoever ran into it.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Memory(bytes) => {
                write!(f, "out of memory: a process was killed at the limit of {}", Bytes(bytes))
            }
            Self::Processes(count) => write!(
                f,
                "a process could not be started: the limit is {count} processes and threads"
            ),
            Self::Scratch(bytes) => write!(
                f,
                "disk full: /tmp, the home directory or /dev/shm has no room left ({} together); work in the \
                 working directory",
                Bytes(bytes)
            ),
            Self::Disk { free, reserve } => write!(
                f,
                "disk full: {} are left, and commands leave {} free; delete what is not needed, then try again",
                Bytes(free),
                Bytes(reserve)
            ),
            Self::Files { free, reserve } => write!(
                f,
                "disk full: it has room for {free} more files, and commands leave room for {reserve}; delete what is \
                 not needed, then try again"
            ),
            Self::Workspace { holds, limit } => write!(
                f,
                "workspace full: it holds {}, and its limit is {}; delete what is not needed: commands run as long as \
                 they take no more",
                Bytes(holds),
                Bytes(limit)
            ),
            Self::WorkspaceFiles { holds, limit } => write!(
                f,
                "workspace full: it holds {holds} files and folders, and its limit is {limit}; delete what is not \
                 needed: commands run as long as they make no more"
            ),
            Self::RemovesOnly { free, reserve } => write!(
                f,
                "disk full: {} are left, and commands leave {} free; until then commands here can read and delete \
                 files, and write none",
                Bytes(free),
                Bytes(reserve)
            ),
            Self::RemovesFilesOnly { free, reserve } => write!(
                f,
                "disk full: it has room for {free} more files, and commands leave room for {reserve}; until then commands \
                 here can read and delete files, and write none"
            ),
            Self::File(bytes) => {
                write!(f, "a file reached {}, the most that one may have", Bytes(bytes))
            }
            Self::FileOfDisk(bytes) => write!(
                f,
                "disk full: a file reached {}, as much as commands might take of it when this one began",
                Bytes(bytes)
            ),
            Self::FileOfWorkspace(bytes) => write!(
                f,
                "workspace full: a file reached {}, as much as it might still take when this command began; delete \
                 what is not needed",
                Bytes(bytes)
            ),
        }
    }
}

/// Whether commands reach a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// That of the machine.
    Host,
    /// Only what runs in the same cell.
    Shut,
    /// The same, although more was asked for: the tier has no way out.
    Unopened(Reach),
    /// The hosts of this reach, through the cell's proxy.
    Through(Reach),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this exit code.
    Exited(i32),
    /// By this signal, which was not ours.
    Signaled(i32),
    /// Killed at its deadline.
    TimedOut,
    /// Killed because its caller no longer wanted it.
    Cancelled,
    /// Killed at the limit that the outcome names.
    OverLimit,
}

/// A command's end and what it wrote.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Its stdout and stderr, in the order of the writes.
    pub output: Output,
    /// From before the spawn until its last process was gone.
    pub duration: Duration,
    /// Processes that the command left in the background when it ended by itself, and that were killed; after a
    /// kill, those that had left its group.
    pub leftovers: u32,
    /// The limits that it ran into.
    pub limits: Vec<Limit>,
    /// The networks that it could reach.
    pub network: Network,
    /// Whom the cell's proxy refused while it ran, each in a sentence.
    pub refused: Vec<String>,
    /// The changes that were not kept, each in a sentence.
    pub notes: Vec<String>,
}

/// Why a command did not run, or cannot be said to have ended.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The command was not started: mend what the message names and run it again.
    #[error("cannot start the tool process: {0}")]
    NotStarted(String),
    /// Commands may not run here, for the reason that the message gives: nothing was started.
    #[error("{0}")]
    Refused(String),
    /// The Location has a newer owner: the command was not started, and nothing more may start there.
    #[error("the Location has a newer owner (its lock holds token {newest}, ours is {ours})")]
    Superseded {
        /// The token of this worker.
        ours: i64,
        /// The token in the Location's lock file.
        newest: i64,
    },
    /// The sandbox could not be made, so nothing was started. No command runs without it.
    #[error("the sandbox could not be made: {0}")]
    NotMade(String),
    /// The supervisor went away without a report. All that was found of the command was killed, but how far it
    /// had come is not known.
    #[error("the tool's supervisor ended without a report; its processes were killed")]
    SupervisorLost,
    /// The command does not die, for instance because it waits for a dead disk. It is still being killed.
    #[error("processes of the tool did not die within {0:?} of SIGKILL")]
    Unkillable(Duration),
    /// The system refused what every command needs: pipes, sockets, processes.
    #[error("cannot run tool processes on this machine")]
    System(#[from] io::Error),
}
