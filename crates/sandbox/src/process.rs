//! Ordinary processes under a supervisor: without isolation, or behind the two walls of tier C.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio_util::sync::CancellationToken;

use crate::checkout::open_workspace;
use crate::command::{Command, End, Limit, Network, Outcome, Sandbox, SandboxError};
use crate::control::Report;
use crate::environment::Environment;
use crate::exit::Reach;
use crate::kill;
use crate::limits::Limits;
use crate::removal::ScratchFolder;
use crate::spool::{Bounds, Spool};
use crate::supervisor::{Job, Walls};
use crate::toolchain::Toolchains;
use crate::walls::{self, Grant};

/// The complete output of one command on disk; beyond it, output is counted.
const FILE_BYTES: u64 = 32 * 1024 * 1024;
/// How long a supervisor may take from its reason to kill until its report.
pub(crate) const DEATH: Duration = Duration::from_secs(2);
/// How long output may come in once no process is left: only what the pipe holds.
pub(crate) const DRAIN: Duration = Duration::from_secs(1);

/// The words of programs that may not make a file.
const DENIED: &str = "ermission denied";
/// The advice for a checkout in tier C.
const BESIDE_GIT: &str = "in this sandbox commands neither commit nor make new files or folders right beside a .git; make them \
                          with the write tool, then run the command again";

/// Runs each command as ordinary processes of this machine, below a supervisor of its own.
#[derive(Debug, Clone)]
pub struct ProcessSandbox {
    supervisor: PathBuf,
    prefix: Vec<OsString>,
    environment: Environment,
    spool_directory: PathBuf,
    walls: Option<(Toolchains, Limits)>,
    /// No newer ABI of landlock is asked for.
    newest: i32,
}

pub(crate) fn bounds(command: &Command, spool_directory: &Path) -> Bounds {
    let (keep_bytes, directory) = (command.keep_bytes, spool_directory.to_path_buf());
    Bounds { keep_bytes, file_bytes: FILE_BYTES, directory }
}

/// The outcome of a command that was cancelled before it was started.
pub(crate) async fn not_begun(bounds: Bounds, network: Network) -> Outcome {
    let output = Spool::new(bounds).finish().await;
    let (end, duration) = (End::Cancelled, Duration::ZERO);
    let (limits, refused) = (Vec::new(), Vec::new());
    let notes = Vec::new();
    Outcome { end, output, duration, leftovers: 0, limits, network, refused, notes }
}

impl ProcessSandbox {
    /// `supervisor` is an executable that calls [`crate::supervisor::main`] when its first arguments are `prefix`.
    /// `/proc/self/exe` is the running executable itself, also after an upgrade has replaced its file.
    /// Large outputs pass through nameless files in `spool_directory`.
    pub fn new(
        supervisor: PathBuf,
        prefix: impl IntoIterator<Item = impl Into<OsString>>,
        environment: Environment,
        spool_directory: PathBuf,
    ) -> Self {
        let prefix = prefix.into_iter().map(Into::into).collect();
        let newest = crate::walls::NEWEST;
        Self { supervisor, prefix, environment, spool_directory, walls: None, newest }
    }

    /// Tier C: the same, behind landlock and a filter. A command reads the system's programs and `toolchains`, changes its
    /// workspace and a folder of its own, which is its home and `TMPDIR`, and makes no sockets.
    #[must_use]
    pub fn walled(self, toolchains: Toolchains, limits: Limits) -> Self {
        Self { walls: Some((toolchains, limits)), ..self }
    }

    /// The same as on a kernel whose landlock is of this ABI: to see what it leaves open.
    #[must_use]
    pub fn landlock_at_most(self, abi: i32) -> Self {
        Self { newest: abi.min(self.newest), ..self }
    }

    fn network(&self, command: &Command) -> Network {
        match (&self.walls, command.cell.network) {
            (None, _) => Network::Host,
            (Some(_), Reach::None) => Network::Shut,
            // Landlock knows ports and no hosts, so that a proxy could not be the only way.
            (Some(_), asked) => Network::Unopened(asked),
        }
    }

    /// The walls of a command, and the folder of its own that goes with it.
    fn walls_of(&self, command: &Command) -> Result<Option<(Walls, ScratchFolder)>, SandboxError> {
        let Some((toolchains, limits)) = &self.walls else { return Ok(None) };
        let scratch = ScratchFolder::make(&self.spool_directory, "scratch-");
        let scratch =
            scratch.map_err(|error| SandboxError::NotMade(format!("a folder for it: {error}")))?;
        let workspace = command.cell.workspace.as_deref().unwrap_or(&command.directory);
        let mut paths: Vec<_> = crate::walls::SYSTEM
            .iter()
            .map(|path| (Grant::Read, PathBuf::from(path)))
            .chain(crate::walls::DEVICES.iter().map(|path| (Grant::Use, PathBuf::from(path))))
            .collect();
        paths.extend(toolchains.folders().iter().map(|path| (Grant::Read, path.clone())));
        let hidden = command.cell.hidden.below(workspace);
        if let Some(first) = hidden.first() {
            return Err(SandboxError::NotStarted(format!(
                "commands do not run in {}, which contains {}: the sandbox of this machine is of tier C, which cannot hide the \
                 service's own data or credentials there; work in a project's directory",
                workspace.display(),
                first.display()
            )));
        }
        let mut grants =
            walls::workspace_grants(workspace, &command.read_only).map_err(|error| {
                SandboxError::NotMade(format!("its rights in {}: {error}", workspace.display()))
            })?;
        grants.push((Grant::All, scratch.path().to_path_buf()));
        if command.share.removes_only {
            grants.iter_mut().for_each(|(grant, _)| *grant = grant.without_writes());
        }
        paths.extend(grants);
        let (newest, limits, file_bytes) = (self.newest, *limits, command.share.file_bytes);
        Ok(Some((Walls { newest, limits, file_bytes, paths }, scratch)))
    }

    fn start(&self, command: &Command) -> Result<Started, SandboxError> {
        // By its real path: a link in it was put there since, perhaps by a command of a session above.
        let directory = open_workspace(&command.directory).map_err(|errno| {
            let directory = command.directory.display();
            SandboxError::NotStarted(match errno {
                Errno::NOENT | Errno::NOTDIR => format!("{directory} is not a directory"),
                Errno::LOOP => format!("{directory} was replaced by a link"),
                other => format!("{directory} cannot be opened: {other}"),
            })
        })?;
        let (walls, scratch) = self.walls_of(command)?.unzip();
        let own = scratch.iter().flat_map(|scratch: &ScratchFolder| {
            ["HOME", "TMPDIR"].map(|name| (OsStr::new(name), scratch.path().as_os_str()))
        });
        let variables = self
            .walls
            .iter()
            .flat_map(|(toolchains, _)| toolchains.variables())
            .map(|(name, value)| (name, value));
        let job = Job {
            timeout: command.timeout,
            lock: command.lock.clone(),
            walls,
            program: command.program.clone(),
            args: command.args.clone(),
        };
        // All descriptors are close-on-exec: no other child can keep the socket to this supervisor open.
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (output, write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| SandboxError::System(errno.into()))?;
        let write_too = write.try_clone()?;
        let supervisor = tokio::process::Command::new(&self.supervisor)
            .args(&self.prefix)
            .args(job.to_args())
            .env_clear()
            .envs(self.environment.vars())
            .envs(variables)
            .envs(own)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            // The opened file counts, whatever its name leads to by then.
            .current_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::from(write))
            .stderr(Stdio::from(write_too))
            .spawn()
            .map_err(|error| {
                SandboxError::NotStarted(if error.kind() == ErrorKind::ArgumentListTooLong {
                    crate::command::TOO_LONG.to_owned()
                } else {
                    format!("{}: {error}", self.supervisor.display())
                })
            })?;
        Ok(Started {
            scratch,
            supervisor,
            control: UnixStream::from_std(ours)?,
            output: pipe::Receiver::from_owned_fd(output)?,
        })
    }
}

struct Started {
    /// Removed when all is over.
    scratch: Option<ScratchFolder>,
    supervisor: Child,
    control: UnixStream,
    output: pipe::Receiver,
}

#[async_trait]
impl Sandbox for ProcessSandbox {
    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let begun = Instant::now();
        if cancel.is_cancelled() {
            let bounds = bounds(&command, &self.spool_directory);
            return Ok(not_begun(bounds, self.network(&command)).await);
        }
        let keeps_git = !command.read_only.is_empty();
        let Started { scratch, mut supervisor, control, mut output } = self.start(&command)?;
        let bounds = bounds(&command, &self.spool_directory);
        let mut spool = Spool::new(bounds).shown_in(command.live.clone());
        let ended = {
            let report = watch(control, &mut supervisor, command.timeout, cancel);
            tokio::pin!(report);
            let filled = spool.fill(&mut output);
            tokio::pin!(filled);
            tokio::select! {
                ended = &mut report => {
                    // A process elsewhere may have been handed the pipe: its end is not waited for.
                    let _what_came_is_kept = tokio::time::timeout(DRAIN, filled).await;
                    ended
                }
                () = &mut filled => report.await,
            }
        };
        let (report, mut limits) = ended?;
        let (end, leftovers) = match report {
            Report::Ended { end, leftovers } => (end, leftovers),
            Report::Superseded(newest) => {
                let ours = command.lock.map_or(0, |lock| lock.token);
                return Err(SandboxError::Superseded { ours, newest });
            }
            Report::Refused(why) => return Err(SandboxError::NotStarted(why)),
            Report::Started(_) | Report::Met(_) => return Err(SandboxError::SupervisorLost),
        };
        let output = spool.finish().await;
        // Not in this thread: it takes as long as what the command left there is large.
        let _removed = tokio::task::spawn_blocking(move || drop(scratch)).await;
        let (duration, network) = (begun.elapsed(), self.network(&command));
        limits.extend(
            self.walls.iter().filter_map(|_| crate::limits::met_by(end, command.share.file_bytes)),
        );
        let (refused, mut notes) = (Vec::new(), Vec::new());
        let is_denied = [&output.head, &output.tail].iter().any(|it| it.contains(DENIED));
        if keeps_git && is_denied && end != End::Exited(0) {
            notes.push(BESIDE_GIT.to_owned());
        }
        Ok(Outcome { end, output, duration, leftovers, limits, network, refused, notes })
    }
}

/// Waits for the supervisor's last report; ends the socket when `cancel` fires, and the supervisor itself when it
/// does not answer (a command can stop or kill it: both have the same user).
async fn watch(
    control: UnixStream,
    supervisor: &mut Child,
    timeout: Duration,
    cancel: &CancellationToken,
) -> Result<(Report, Vec<Limit>), SandboxError> {
    let (read, mut write) = control.into_split();
    let mut lines = BufReader::new(read.take(64 * 1024)).lines();
    let (mut main, mut limits) = (None, Vec::new());
    let mut cancelled = false;
    let mut deadline = tokio::time::Instant::now() + timeout + DEATH;
    let report = loop {
        tokio::select! {
            line = lines.next_line() => match line.ok().flatten().and_then(|line| Report::parse(&line)) {
                Some(Report::Started(pid)) => main = Some(pid),
                Some(Report::Met(limit)) => limits.push(limit),
                Some(report) => break Ok(report),
                None => break Err(SandboxError::SupervisorLost),
            },
            () = cancel.cancelled(), if !cancelled => {
                cancelled = true;
                let _gone_is_fine = write.shutdown().await;
                deadline = tokio::time::Instant::now() + DEATH;
            }
            () = tokio::time::sleep_until(deadline) => break Err(SandboxError::Unkillable(DEATH)),
        }
    };
    let mut forced = BTreeSet::new();
    let mut session = None;
    if report.is_err() {
        tracing::warn!(supervisor.pid = supervisor.id(), "a tool's supervisor was lost or stuck");
        session = supervisor.id().and_then(|number| i32::try_from(number).ok());
        forced = end_by_force(session, main);
    }
    let gone = async {
        while supervisor.wait().await.is_err()
            || forced.iter().any(|pid| kill::is_alive(*pid))
            // A command may kill its supervisor before anybody was told which process it is.
            || session.is_some_and(|leader| kill::session(leader) > 0)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(DEATH, gone).await.is_err() {
        return Err(SandboxError::Unkillable(DEATH));
    }
    match report {
        // The supervisor had been stopped, and now all is gone.
        Err(SandboxError::Unkillable(_)) => {
            let end = if cancelled { End::Cancelled } else { End::TimedOut };
            Ok((Report::Ended { end, leftovers: 0 }, limits))
        }
        other => other.map(|report| (report, limits)),
    }
}

/// The worker's own hand, when the supervisor does not do its part. Returns what was sent SIGKILL.
fn end_by_force(supervisor: Option<i32>, main: Option<i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    if let Some(leader) = main {
        kill::group(leader);
        found.insert(leader);
    }
    if let Some(pid) = supervisor.and_then(Pid::from_raw) {
        found.extend(kill::descendants(pid));
        found.iter().copied().for_each(kill::process);
        kill::process(pid.as_raw_nonzero().get());
    }
    found
}
