//! The worker's side of cells (tiers A and B): it asks its launcher for them and their keepers for commands.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::checkout::front::GitFront;
use crate::checkout::kept::{GitUse, KeptRepositories, blocking, identities, shown_read_only};
use crate::command::{
    Command, End, Limit, Network, OUTPUTS, Outcome, Sandbox, SandboxError, TOO_LONG,
};
use crate::control::Report;
use crate::disk::DiskLimits;
use crate::environment::{Environment, Exit};
use crate::exit::{Exits, Opening, Reach, Refusals};
use crate::launcher::Launcher;
use crate::limits::Limits;
use crate::outputs::Outputs;
use crate::process::{DEATH, DRAIN, bounds, not_begun};
use crate::root;
use crate::spool::Spool;
use crate::sys;
use crate::tier::Tier;
use crate::toolchain::Toolchains;
use crate::walls;
use crate::wire::{self, CellAnswer, CellRequest, CommandRequest};

/// How long a cell may take to be made on a busy machine.
const BIRTH: Duration = Duration::from_secs(30);
/// The kernel's bound on one argument, its ending NUL included.
const ARGUMENT: usize = 128 * 1024;
/// The cells that a worker keeps at once. Beyond it, those that run nothing are let go.
const CELLS: usize = 64;

/// How cells are made.
#[derive(Debug, Clone)]
pub struct CellOptions {
    /// An executable that calls [`crate::launcher::main`] when its arguments are `prefix`.
    pub launcher: PathBuf,
    /// Its arguments.
    pub prefix: Vec<OsString>,
    /// One that runs already, of a worker that has no right to start another; without, one is started when it is needed.
    pub started: Option<Arc<Launcher>>,
    /// The part of the worker's environment that commands see.
    pub environment: Environment,
    /// Folders of the host that commands see.
    pub toolchains: Toolchains,
    /// Where large outputs pass through nameless files.
    pub spool_directory: PathBuf,
    /// The first of the host's user ids that cells take in tier A, and how many there are: nobody else's.
    pub uids: (u32, u32),
    /// The limits of one cell.
    pub limits: Limits,
    /// Who serves the ways out of cells; without, none has one.
    pub exits: Option<Arc<dyn Exits>>,
}

/// Runs each command in a cell: in namespaces of its own, with a root of its own, behind a filter.
pub struct CellSandbox {
    options: CellOptions,
    /// How much of their disks the copies of a `.git` leave.
    disk: DiskLimits,
    tier: Tier,
    launcher: Mutex<Option<Launcher>>,
    cells: Mutex<HashMap<Key, Slot>>,
}

type Slot = Arc<OnceCell<LiveCell>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    name: String,
    workspace: PathBuf,
    lock: Option<PathBuf>,
    network: Reach,
}

/// A keeper that runs, and where it takes requests.
struct LiveCell {
    socket: StdUnixStream,
    keeper: OwnedFd,
    /// Why it has no control groups, if it has none.
    unlimited: Option<String>,
    /// Whom the proxy of its way out refused.
    refusals: Arc<Refusals>,
    /// The files that its commands may read besides.
    outputs: Outputs,
    /// The repositories that it keeps from its commands.
    repositories: KeptRepositories,
    /// Ends the proxy when the cell is let go.
    _exit: DropGuard,
}

impl CellSandbox {
    /// Cells of tier A (`Tier::A`) or B. Starts nothing yet.
    pub fn new(tier: Tier, options: CellOptions, disk: DiskLimits) -> Self {
        Self { options, disk, tier, launcher: Mutex::default(), cells: Mutex::default() }
    }

    /// Why cells have limits for each process only and none together, if that is so; makes a cell to see.
    pub async fn missing_groups(&self, command: &Command) -> Result<Option<String>, SandboxError> {
        let slot = self.slot(command);
        let cell = slot.get_or_try_init(|| self.make(command)).await?;
        Ok(cell.unlimited.clone())
    }

    fn key(&self, command: &Command) -> Key {
        Key {
            name: command.cell.name.clone(),
            workspace: workspace(command).to_path_buf(),
            lock: command.lock.as_ref().map(|lock| lock.path.clone()),
            network: self.reach(command),
        }
    }

    /// How far a command gets: nowhere where nobody serves ways out.
    fn reach(&self, command: &Command) -> Reach {
        if self.options.exits.is_some() { command.cell.network } else { Reach::None }
    }

    fn network(&self, command: &Command) -> Network {
        match (self.reach(command), command.cell.network) {
            (Reach::None, Reach::None) => Network::Shut,
            (Reach::None, asked) => Network::Unopened(asked),
            (reach, _) => Network::Through(reach),
        }
    }

    /// Certificates for a command that has a way out.
    fn certificates(&self, command: &Command) -> &[u8] {
        let exits = self.options.exits.as_ref().filter(|_| self.reach(command) != Reach::None);
        exits.map_or(&[], |exits| exits.certificates())
    }

    fn slot(&self, command: &Command) -> Slot {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(command);
        if cells.len() >= CELLS && !cells.contains_key(&key) {
            // Those in use are held by who uses them.
            cells.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        let slot = cells.entry(key).or_default().clone();
        telemetry::metrics().cells.set(cells.len());
        slot
    }

    fn forget(&self, command: &Command, slot: &Slot) {
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.key(command);
        if cells.get(&key).is_some_and(|known| Arc::ptr_eq(known, slot)) {
            cells.remove(&key);
            telemetry::metrics().cells.set(cells.len());
        }
    }

    /// Sends a request to the launcher, which is started when there is none.
    fn ask_launcher(&self, request: &CellRequest, fds: [&OwnedFd; 2]) -> io::Result<()> {
        let fds = fds.map(AsFd::as_fd);
        if let Some(started) = &self.options.started {
            return started.ask(request, &fds).map_err(|error| {
                if error.kind() != ErrorKind::BrokenPipe {
                    return error;
                }
                io::Error::other(
                    "it was killed, and only root could start another one; restart this service",
                )
            });
        }
        let mut launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*launcher {
            match running.ask(request, &fds) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    tracing::warn!("the sandbox's launcher was lost; another one is started");
                    *launcher = None;
                }
                sent => return sent,
            }
        }
        let started = Launcher::start(&self.options.launcher, &self.options.prefix)?;
        started.ask(request, &fds)?;
        *launcher = Some(started);
        Ok(())
    }

    async fn make(&self, command: &Command) -> Result<LiveCell, SandboxError> {
        let privileged = self.tier == Tier::A;
        let workspace = workspace(command);
        let shown = command.cell.shown.as_deref().unwrap_or(workspace);
        if !root::may_be_shown(shown) {
            return Err(SandboxError::NotMade(format!(
                "a session cannot work in {}, which belongs to the system; choose a project's directory",
                shown.display()
            )));
        }
        let directory = openat2(
            CWD,
            workspace,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            // A link in its real path was put there since, perhaps by a command of a session above.
            ResolveFlags::NO_SYMLINKS,
        );
        let directory = directory.map_err(|errno| {
            SandboxError::NotStarted(match errno {
                Errno::NOENT | Errno::NOTDIR => {
                    format!("{} is not a directory", workspace.display())
                }
                Errno::LOOP => format!("{} was replaced by a link", workspace.display()),
                other => format!("{} cannot be opened: {other}", workspace.display()),
            })
        })?;
        let read_only = identities(&directory, &command.read_only);
        let git_front = self.make_front(command, &directory).await?;
        let outputs = Outputs::make(&self.options.spool_directory)
            .map_err(|error| SandboxError::NotMade(format!("a folder for outputs: {error}")))?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let request = CellRequest {
            privileged,
            shown: shown.to_path_buf(),
            tools: self.options.toolchains.folders_beside(shown),
            read_only: shown_read_only(command, git_front.is_some()),
            hidden: hidden(command, workspace).await?,
            git_front: git_front.as_ref().map(|front| front.path().to_owned()),
            uids: self.options.uids,
            memory_bytes: self.options.limits.memory_bytes,
            all_cells_bytes: self.options.limits.all_cells_bytes,
            processes: self.options.limits.processes,
            lock: command.lock.as_ref().map(|lock| lock.path.clone()),
            exit: self.reach(command) != Reach::None,
            certificates: self.certificates(command).to_vec(),
            outputs: outputs.path().to_path_buf(),
        };
        let theirs = OwnedFd::from(theirs);
        self.ask_launcher(&request, [&theirs, &directory])
            .map_err(|error| SandboxError::NotMade(format!("its launcher: {error}")))?;
        drop(theirs);
        let socket = UnixStream::from_std(ours)?;
        let answer = socket.async_io(Interest::READABLE, || wire::receive::<CellAnswer>(&socket));
        let answer = tokio::time::timeout(BIRTH, answer).await;
        let silent = || SandboxError::NotMade("its keeper ended without a word".to_owned());
        let (answer, descriptors) = match answer {
            Ok(Ok(Some(answer))) => answer,
            Ok(Ok(None) | Err(_)) => return Err(silent()),
            Err(_) => return Err(SandboxError::NotMade(format!("not within {BIRTH:?}"))),
        };
        let (keeper, unlimited) = match answer {
            CellAnswer::Ready { keeper, unlimited } => (keeper, unlimited),
            CellAnswer::Refused(why) => return Err(SandboxError::NotMade(why)),
        };
        let pid = Pid::from_raw(keeper).ok_or_else(silent)?;
        let keeper = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(|_| silent())?;
        let (refusals, closing) = (Arc::new(Refusals::default()), CancellationToken::new());
        if let Some(exits) = self.options.exits.as_ref().filter(|_| request.exit) {
            let listener = descriptors.into_iter().next().ok_or_else(silent)?;
            let listener = std::net::TcpListener::from(listener);
            listener.set_nonblocking(true)?;
            exits.serve(Opening {
                listener: TcpListener::from_std(listener)?,
                reach: command.cell.network,
                cell: command.cell.name.clone(),
                refusals: refusals.clone(),
                closed: Box::pin(closed(sys::readable(keeper.try_clone()?)?, closing.clone())),
            });
        }
        Ok(LiveCell {
            socket: socket.into_std()?,
            keeper,
            unlimited: (!unlimited.is_empty()).then_some(unlimited),
            refusals,
            outputs,
            repositories: KeptRepositories { front: git_front, known: read_only },
            _exit: closing.drop_guard(),
        })
    }

    /// Makes a front where a checkout has a `.git` that commands may not change. Links in it are kept from them by landlock
    /// alone: without it the `.git` is read-only.
    async fn make_front(
        &self,
        command: &Command,
        directory: &OwnedFd,
    ) -> Result<Option<Arc<GitFront>>, SandboxError> {
        let is_kept = command.read_only.iter().any(|path| path == Path::new(".git"));
        if !is_kept || walls::landlock_abi() == 0 {
            return Ok(None);
        }
        let (directory, spool) = (directory.try_clone()?, self.options.spool_directory.clone());
        let disk = self.disk;
        let made = blocking(move || GitFront::make(directory.as_fd(), &spool, disk)).await?;
        let made =
            made.map_err(|error| SandboxError::NotMade(format!("a view of its .git: {error}")))?;
        Ok(made.map(Arc::new))
    }

    fn request(&self, command: &Command) -> Result<CommandRequest, SandboxError> {
        let root = workspace(command);
        let shown = command.cell.shown.as_deref().unwrap_or(root);
        let directory = wire::seen(&command.directory, root, shown).ok_or_else(|| {
            SandboxError::NotStarted(format!(
                "{} is not in the workspace",
                command.directory.display()
            ))
        })?;
        if command.args.iter().any(|word| word.len() >= ARGUMENT) {
            return Err(SandboxError::NotStarted(TOO_LONG.to_owned()));
        }
        let certificates = !self.certificates(command).is_empty();
        let exit = (self.reach(command) != Reach::None).then_some(Exit { certificates });
        let env = self.options.environment.in_a_cell(&self.options.toolchains, &command.env, exit);
        Ok(CommandRequest {
            timeout: command.timeout,
            token: command.lock.as_ref().map(|lock| lock.token),
            program: command.program.clone(),
            args: command.args.clone(),
            env,
            directory,
            share: command.share,
        })
    }

    /// Sends the command to its cell. A keeper that is gone, as after five minutes without a command, is replaced once:
    /// nothing that was sent to it has begun.
    async fn start(&self, command: &Command) -> Result<Started, SandboxError> {
        let request = self.request(command)?;
        let (output, write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| SandboxError::System(errno.into()))?;
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut tries = 2;
        let (slot, git_use) = loop {
            tries -= 1;
            let slot = self.slot(command);
            let cell = slot.get_or_try_init(|| self.make(command)).await;
            let cell = cell.inspect_err(|_| self.forget(command, &slot))?;
            let git_use = match cell.repositories.begin(workspace(command), command).await? {
                Ok(git_use) => git_use,
                Err(why) => {
                    self.forget(command, &slot);
                    if tries > 0 {
                        continue;
                    }
                    return Err(SandboxError::NotStarted(format!("{why}; try again")));
                }
            };
            let shown = cell.outputs.show(&command.outputs).await;
            shown.map_err(|error| {
                SandboxError::NotStarted(format!(
                    "the files of {OUTPUTS} that it may read: {error}"
                ))
            })?;
            match wire::send(&cell.socket, &request, &[write.as_fd(), theirs.as_fd()]) {
                Ok(()) => break (slot, git_use),
                Err(error) if error.kind() == ErrorKind::BrokenPipe && tries > 0 => {
                    self.forget(command, &slot);
                }
                Err(error) => {
                    self.forget(command, &slot);
                    return Err(SandboxError::NotMade(format!("its keeper: {error}")));
                }
            }
        };
        Ok(Started {
            slot,
            git: git_use,
            control: UnixStream::from_std(ours)?,
            output: pipe::Receiver::from_owned_fd(output)?,
        })
    }
}

/// Returns the hidden paths below a workspace and the sockets that are there, as seen from it.
async fn hidden(command: &Command, workspace: &Path) -> Result<Vec<PathBuf>, SandboxError> {
    let (hidden, workspace) = (command.cell.hidden.clone(), workspace.to_path_buf());
    blocking(move || {
        let below = hidden.below(&workspace).into_iter();
        let below = below.chain(crate::hidden::HiddenPaths::sockets_below(&workspace));
        below.filter_map(|path| Some(path.strip_prefix(&workspace).ok()?.to_owned())).collect()
    })
    .await
}

fn workspace(command: &Command) -> &Path {
    command.cell.workspace.as_deref().unwrap_or(&command.directory)
}

struct Started {
    slot: Slot,
    git: GitUse,
    control: UnixStream,
    output: pipe::Receiver,
}

#[async_trait]
impl Sandbox for CellSandbox {
    fn shows_outputs(&self) -> bool {
        true
    }

    async fn run(
        &self,
        command: Command,
        cancel: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let begun = Instant::now();
        let bounds = bounds(&command, &self.options.spool_directory);
        if cancel.is_cancelled() {
            return Ok(not_begun(bounds, self.network(&command)).await);
        }
        let Started { slot, git, control, mut output } = self.start(&command).await?;
        let refusals = slot.get().map(|cell| cell.refusals.clone()).unwrap_or_default();
        let known = refusals.count();
        let mut spool = Spool::new(bounds).shown_in(command.live.clone());
        let ended = {
            let report = watch(control, slot.get(), command.timeout, cancel);
            tokio::pin!(report);
            let filled = spool.fill(&mut output);
            tokio::pin!(filled);
            tokio::select! {
                ended = &mut report => {
                    // A process of the cell may have been handed the pipe: its end is not waited for.
                    let _what_came_is_kept = tokio::time::timeout(DRAIN, filled).await;
                    ended
                }
                () = &mut filled => report.await,
            }
        };
        if ended.is_err() {
            self.forget(&command, &slot);
        }
        let notes = git.settle().await?;
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
        let (duration, network) = (begun.elapsed(), self.network(&command));
        let refused = refusals.since(known);
        limits.extend(crate::limits::met_by(end, command.share.file_bytes));
        Ok(Outcome { end, output, duration, leftovers, limits, network, refused, notes })
    }
}

/// Ends when a cell's keeper has ended, or the cell is let go.
async fn closed(keeper: tokio::io::unix::AsyncFd<OwnedFd>, closing: CancellationToken) {
    tokio::select! {
        _ended = keeper.readable() => {}
        () = closing.cancelled() => {}
    }
}

/// Waits for the keeper's last report, and shuts the socket to it when `cancel` fires. A keeper that is killed takes all
/// commands with it; one that does not answer is killed.
async fn watch(
    control: UnixStream,
    cell: Option<&LiveCell>,
    timeout: Duration,
    cancel: &CancellationToken,
) -> Result<(Report, Vec<Limit>), SandboxError> {
    let (read, mut write) = control.into_split();
    let mut lines = BufReader::new(read.take(64 * 1024)).lines();
    let (mut init, mut limits, mut cancelled) = (None, Vec::new(), false);
    let mut deadline = tokio::time::Instant::now() + timeout + DEATH;
    let failed = loop {
        tokio::select! {
            line = lines.next_line() => {
                match line.ok().flatten().and_then(|line| Report::parse(&line)) {
                    Some(Report::Started(pid)) => {
                        let pid = Pid::from_raw(pid);
                        init = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::NONBLOCK).ok());
                    }
                    Some(Report::Met(limit)) => limits.push(limit),
                    Some(report) => return Ok((report, limits)),
                    None => break SandboxError::SupervisorLost,
                }
            },
            () = cancel.cancelled(), if !cancelled => {
                cancelled = true;
                let _gone_is_fine = write.shutdown().await;
                deadline = tokio::time::Instant::now() + DEATH;
            }
            () = tokio::time::sleep_until(deadline) => break SandboxError::Unkillable(DEATH),
        }
    };
    tracing::warn!("the keeper of a cell was lost or stuck");
    if let Some(cell) = cell {
        let _gone_is_fine = pidfd_send_signal(&cell.keeper, Signal::KILL);
    }
    // The keeper's children die with it; its init, as the kernel shows it, when nothing of it is left.
    if let Some(init) = init {
        let _gone_is_fine = pidfd_send_signal(&init, Signal::KILL);
        let gone = sys::readable(init)?;
        let gone = async { gone.readable().await.map(|mut ready| ready.retain_ready()) };
        if !matches!(tokio::time::timeout(DEATH, gone).await, Ok(Ok(()))) {
            return Err(SandboxError::Unkillable(DEATH));
        }
    }
    if matches!(failed, SandboxError::Unkillable(_)) {
        // The keeper had been stopped, and now all is gone.
        let end = if cancelled { End::Cancelled } else { End::TimedOut };
        return Ok((Report::Ended { end, leftovers: 0 }, limits));
    }
    Err(failed)
}
