//! The process that keeps one cell: its namespaces, its root, its lock, and the commands that run in it.
//!
//! It has one thread and one loop: requests from the worker, ends of inits, deadlines. The worker's end of a command's socket
//! is its word to end the command; its end of the cell's socket, which the kernel closes when the worker dies, ends the
//! cell.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, fchdir, pidfd_send_signal, setsid};
use rustix::thread::UnshareFlags;

use crate::checkout::front::{PERSONS_OWN, SHARED};
use crate::command::{End, Limit};
use crate::control::Report;
use crate::exit::EXIT_PORT;
use crate::filter::Filters;
use crate::init::{self, INIT, Ready};
use crate::limits::{self, Counters, Groups, Limits};
use crate::lock::{CellLock, LockError};
use crate::memory::{self, Look};
use crate::root::{self, Plan, Step, USER, at};
use crate::sys::{self, Forked};
use crate::userns::{self, Maps};
use crate::walls::{self, Grant};
use crate::wire::{self, CellAnswer, CellRequest, CommandRequest};

/// A cell without a command for this long ends, and with it its `/tmp` and home.
const IDLE: Duration = Duration::from_mins(5);
/// Bytes in the folders of a cell without commands from which on it looks whether all cells have too much.
const CROWDING: u64 = 64 << 20;

/// The kinds of namespaces that each command has of its own, but for that of its user, which is the cell's.
const OF_A_COMMAND: libc::c_int = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWUTS;

/// The sockets and settings that a keeper has from the launcher.
pub(crate) struct Inherited<'l> {
    pub(crate) worker: OwnedFd,
    pub(crate) workspace: OwnedFd,
    pub(crate) lock: Option<&'l CellLock>,
    /// Two of the host's user ids that nobody else has: the command's, and the next one its init's.
    pub(crate) uid: u32,
    pub(crate) filters: Filters,
}

/// Keeps a cell until its worker no longer wants it; never returns.
pub(crate) fn main(request: &CellRequest, inherited: Inherited<'_>) -> ! {
    let worker = UnixStream::from(inherited.worker);
    let lock = inherited.lock;
    let of_uid = inherited.uid;
    let made = make(request, &worker, &inherited.workspace, lock, of_uid, inherited.filters);
    drop(inherited.workspace);
    match made {
        Ok(Made { ready, unlimited, exit }) => {
            let keeper = rustix::process::getpid().as_raw_nonzero().get();
            let answer = CellAnswer::Ready { keeper, unlimited };
            let listener: Vec<_> = exit.iter().map(AsFd::as_fd).collect();
            let told = wire::send(&worker, &answer, &listener);
            drop(exit); // The worker's alone: it ends when the worker lets it go.
            if told.is_ok() {
                let limits = of(request);
                let (commands, idle_since) = (Vec::new(), Instant::now());
                let (next_look, closing) = (Instant::now(), false);
                Keeper { worker, ready, lock, limits, commands, idle_since, next_look, closing }
                    .run();
            }
            sys::exit(0)
        }
        Err(why) => {
            let _worker_gone = wire::send(&worker, &CellAnswer::Refused(why), &[]);
            sys::exit(1)
        }
    }
}

fn of(request: &CellRequest) -> Limits {
    let (memory_bytes, processes) = (request.memory_bytes, request.processes);
    Limits { memory_bytes, all_cells_bytes: request.all_cells_bytes, processes }
}

/// A cell that is ready for commands.
struct Made {
    ready: Ready,
    /// Why it has no control groups; empty where it has them.
    unlimited: String,
    exit: Option<TcpListener>,
}

fn make(
    request: &CellRequest,
    worker: &UnixStream,
    workspace: &OwnedFd,
    lock: Option<&CellLock>,
    uid: u32,
    filters: Filters,
) -> Step<Made> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut keep =
        vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd(), worker.as_fd(), workspace.as_fd()];
    keep.extend(lock.iter().flat_map(|lock| lock.descriptors()));
    sys::close_all_but(&keep).map_err(at("cannot close descriptors"))?;
    setsid().map_err(at("cannot make a session"))?;
    memory::show_beside(0);
    // Before the namespaces, in which the host's own are no longer to be seen.
    let name = limits::name_of(rustix::process::getpid());
    let groups = Groups::make(&name, of(request));
    let (groups, unlimited, filters) = match groups {
        Ok(groups) => (Some(groups), String::new(), filters),
        Err(why) => {
            // No process that is looked at has them.
            let filters = filters.without_memory_files().map_err(at("cannot make a filter"))?;
            (None, why, filters)
        }
    };
    let owner = fstat(workspace).map_err(at("cannot look at the workspace"))?;
    fchdir(workspace).map_err(at("cannot enter the workspace"))?;
    if !request.privileged {
        userns::enter_own((USER, USER)).map_err(at("cannot make a user namespace"))?;
    }
    sys::unshare(UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWNS)
        .map_err(at("cannot make namespaces"))?;
    if groups.is_none() {
        // Shared memory goes with its last process, so that all of it is some process's. Where the kernel keeps this setting
        // for itself, what no process has is counted.
        let _is_counted = std::fs::write("/proc/sys/kernel/shm_rmid_forced", "1");
    }
    sys::loopback_up().map_err(at("cannot switch loopback on"))?;
    // Before any command, so that none can be in its place.
    let exit = request.exit.then(|| TcpListener::bind((Ipv4Addr::LOCALHOST, EXIT_PORT)));
    let exit = exit.transpose().map_err(at("cannot listen for the cell's way out"))?;
    let init = if request.privileged { INIT } else { USER };
    let (users, id_map, files);
    if request.privileged {
        let map = [(USER, uid), (INIT, uid + 1)];
        users = userns::make(Some((uid + 1, uid + 1)), &Maps { users: &map, groups: &map });
        let (users, groups) = ([(owner.st_uid, uid)], [(owner.st_gid, uid)]);
        let map = userns::make(None, &Maps { users: &users, groups: &groups });
        id_map = Some(map.map_err(at("cannot make an id map"))?);
        files = (uid, uid);
    } else {
        let map = [(USER, USER)];
        users = userns::make(None, &Maps { users: &map, groups: &map });
        id_map = None;
        files = (USER, USER);
    }
    let users = users.map_err(at("cannot make the commands' user namespace"))?;
    root::build(&Plan {
        shown: &request.shown,
        tools: request.tools.iter().map(PathBuf::from).collect(),
        read_only: &request.read_only,
        hidden: &request.hidden,
        git_front: request.git_front.as_deref(),
        owner: files,
        id_map: id_map.as_ref().map(AsFd::as_fd),
        memory_bytes: request.memory_bytes,
        certificates: &request.certificates,
        outputs: &request.outputs,
    })?;
    let rules = |removes_only| {
        rules(&request.shown, removes_only).map_err(at("cannot make landlock's rules"))
    };
    let (rules, removal_rules) = (rules(false)?, rules(true)?);
    let processes = request.processes;
    let ready = Ready { users, init, rules, removal_rules, filters, groups, processes };
    Ok(Made { ready, unlimited, exit })
}

/// Rules are of files, not of paths: they hold in each command's copy of the root. `removes_only`: commands write nothing on the
/// host's disk.
fn rules(shown: &Path, removes_only: bool) -> io::Result<Option<OwnedFd>> {
    let base = Path::new(root::BASE);
    let below = |path: &str| base.join(path.trim_start_matches('/'));
    let workspace = base.join(shown.strip_prefix("/").unwrap_or(shown));
    let on_disk = |grant: Grant| if removes_only { grant.without_writes() } else { grant };
    let shared = SHARED.map(|name| (below(PERSONS_OWN).join(name), on_disk(Grant::Data)));
    let grants = [
        (base.to_path_buf(), Grant::Read),
        (workspace, on_disk(Grant::All)),
        (below("tmp"), Grant::All),
        (below("home"), Grant::All),
        (below("dev/shm"), Grant::All),
        (below("dev"), Grant::Use),
    ];
    let grants = grants.iter().chain(&shared);
    let grants = grants.map(|(path, grant)| (path.as_path(), *grant));
    walls::rules(grants, true, walls::NEWEST).map_err(io::Error::other)
}

/// A command that runs.
struct Running {
    init: Pid,
    init_fd: OwnedFd,
    /// The worker's word, and where it is told.
    control: UnixStream,
    status: OwnedFd,
    /// Held open: an init whose keeper was gone before it looked sees that here.
    _alive: OwnedFd,
    deadline: Instant,
    killed_for: Option<End>,
    /// The limit on memory for which it was killed.
    memory_limit: Option<u64>,
    before: Counters,
}

impl Running {
    fn kill(&mut self, reason: End) {
        if self.killed_for.is_none() {
            self.killed_for = Some(reason);
            let _gone_is_fine = pidfd_send_signal(&self.init_fd, Signal::KILL);
        }
    }
}

struct Keeper<'l> {
    worker: UnixStream,
    ready: Ready,
    lock: Option<&'l CellLock>,
    limits: Limits,
    commands: Vec<Running>,
    idle_since: Instant,
    /// When memory is looked at, where no groups limit it.
    next_look: Instant,
    /// The worker is gone, or somebody wants the Location: no command starts any more.
    closing: bool,
}

impl Keeper<'_> {
    fn run(mut self) {
        let Ok(asked_to_end) = sys::signals_as_descriptor(&[libc::SIGTERM]) else { return };
        while !(self.closing && self.commands.is_empty()) {
            let (mut requested, mut asked) = (false, false);
            let mut ends = Vec::new();
            let mut cancelled = Vec::new();
            {
                let mut fds = vec![PollFd::new(&asked_to_end, PollFlags::IN)];
                for command in &self.commands {
                    fds.push(PollFd::new(&command.init_fd, PollFlags::IN));
                    fds.push(PollFd::new(&command.control, PollFlags::IN));
                }
                if !self.closing {
                    fds.push(PollFd::new(&self.worker, PollFlags::IN));
                }
                match poll(&mut fds, self.next_deadline().as_ref()) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => self.closing = true,
                }
                let has = |fd: &PollFd<'_>| !fd.revents().is_empty();
                asked |= has(&fds[0]);
                let (pairs, worker) = fds[1..].split_at(self.commands.len() * 2);
                requested |= worker.iter().any(has);
                for (index, pair) in pairs.chunks(2).enumerate() {
                    if has(&pair[0]) {
                        ends.push(index);
                    }
                    if has(&pair[1]) {
                        cancelled.push(index);
                    }
                }
            }
            let now = Instant::now();
            for (index, command) in self.commands.iter_mut().enumerate() {
                if cancelled.contains(&index) || asked {
                    command.kill(End::Cancelled);
                } else if now >= command.deadline {
                    command.kill(End::TimedOut);
                }
            }
            let crowds = self.look_at_memory();
            for index in ends.into_iter().rev() {
                let command = self.commands.swap_remove(index);
                self.ended(command);
                self.idle_since = Instant::now();
            }
            if asked {
                self.closing = true;
            }
            if requested {
                self.request();
            } else if self.commands.is_empty() && (self.idle_since.elapsed() >= IDLE || crowds) {
                // From now on the worker's requests are refused, but for one that is on its way.
                let _gone_is_fine = self.worker.shutdown(Shutdown::Read);
                self.request();
            }
            if self.closing {
                self.commands.iter_mut().for_each(|command| command.kill(End::Cancelled));
            }
        }
    }

    fn next_deadline(&self) -> Option<Timespec> {
        let waiting = self.commands.iter().filter(|command| command.killed_for.is_none());
        let idle = self.commands.is_empty().then(|| self.idle_since + IDLE);
        let look = self.looks_at_memory().then_some(self.next_look);
        let next = waiting.map(|command| command.deadline).chain(idle).chain(look).min()?;
        let left = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Timespec::try_from(left).ok()
    }

    fn looks_at_memory(&self) -> bool {
        let is_ending = |command: &Running| command.killed_for.is_some();
        self.ready.groups.is_none()
            && (self.commands.is_empty() || !self.commands.iter().all(is_ending))
    }

    /// Ends the command with the most memory when they have more together than the cell may, or all cells more than they
    /// may and this one the most. Returns whether the cell has that without any command: in its folders.
    fn look_at_memory(&mut self) -> bool {
        if !self.looks_at_memory() || Instant::now() < self.next_look {
            return false;
        }
        let inits: Vec<_> = self.commands.iter().map(|command| command.init).collect();
        let beside = memory::detached_bytes() + scratch_bytes();
        memory::show_beside(beside);
        let Limits { memory_bytes, all_cells_bytes, .. } = self.limits;
        let mut look = (memory::look(&inits, beside, memory_bytes), memory_bytes);
        let mut crowds = false;
        if matches!(look.0, Look::Next(_)) && memory::is_largest_of_too_much(all_cells_bytes) {
            look = (memory::look(&inits, beside, 0), all_cells_bytes);
            crowds = inits.is_empty();
        }
        let pause = match look {
            // No command, so that nothing changes; and a cell with little is not the one that has the most.
            (Look::Next(_), _) if inits.is_empty() && beside < CROWDING => IDLE,
            (Look::Next(pause), _) => pause,
            (Look::Beyond(index), limit) => {
                self.commands[index].memory_limit = Some(limit);
                self.commands[index].kill(End::OverLimit);
                // A killed process has its memory for a moment longer.
                Duration::from_millis(200)
            }
        };
        self.next_look = Instant::now() + pause;
        crowds
    }

    fn request(&mut self) {
        match wire::receive::<CommandRequest>(&self.worker) {
            Ok(Some((request, descriptors))) => {
                let [output, control] = match <[OwnedFd; 2]>::try_from(descriptors) {
                    Ok(both) => both,
                    Err(_torn) => return,
                };
                let mut control = UnixStream::from(control);
                match self.start(&request, output, &control) {
                    Ok(running) => {
                        self.commands.push(Running { control, ..running });
                        self.next_look = Instant::now();
                    }
                    Err(report) => {
                        let _worker_gone = control.write_all(report.to_line().as_bytes());
                        self.release_if_idle();
                    }
                }
            }
            Ok(None) | Err(_) => self.closing = true,
        }
    }

    fn start(
        &self,
        request: &CommandRequest,
        output: OwnedFd,
        control: &UnixStream,
    ) -> Result<Running, Report> {
        if let (Some(lock), Some(token)) = (self.lock, request.token) {
            lock.hold(token).map_err(|error| match error {
                LockError::Superseded { newest, .. } => Report::Superseded(newest),
                other @ (LockError::StillHeld { .. } | LockError::Io { .. }) => {
                    Report::Refused(crate::lock::explain(&other))
                }
            })?;
        }
        let before = self.ready.groups.as_ref().map(Groups::counters).unwrap_or_default();
        let refused = |error: io::Error| Report::Refused(format!("cannot start: {error}"));
        let mut theirs = control.try_clone().map_err(refused)?;
        let (status, told) = pipe().map_err(refused)?;
        let (alive, ours_alive) = pipe().map_err(refused)?;
        match sys::fork(OF_A_COMMAND).map_err(refused)? {
            Forked::Child => {
                drop((status, ours_alive));
                self.close_others(&output, &told, &alive);
                init::main(request, &self.ready, output, told, &alive)
            }
            Forked::Parent { pid, pidfd } => {
                let started = Report::Started(pid.as_raw_nonzero().get()).to_line();
                // A worker that is gone is noticed by the loop.
                let _worker_gone = theirs.write_all(started.as_bytes());
                Ok(Running {
                    init: pid,
                    init_fd: pidfd,
                    control: theirs,
                    status,
                    _alive: ours_alive,
                    deadline: Instant::now() + request.timeout,
                    killed_for: None,
                    memory_limit: None,
                    before,
                })
            }
        }
    }

    /// In a fresh init: the keeper's sockets, lock and other commands are none of its business.
    fn close_others(&self, output: &OwnedFd, told: &OwnedFd, alive: &OwnedFd) {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let mut keep = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        keep.extend([output.as_fd(), told.as_fd(), alive.as_fd(), self.ready.users.as_fd()]);
        keep.extend(self.ready.groups.iter().flat_map(Groups::descriptors));
        let rules = [&self.ready.rules, &self.ready.removal_rules];
        keep.extend(rules.into_iter().flatten().map(AsFd::as_fd));
        if sys::close_all_but(&keep).is_err() {
            sys::exit(1);
        }
    }

    /// Reaps an init, which the kernel lets go only when its namespace is empty, and tells the worker.
    fn ended(&self, mut command: Running) {
        sys::reap(command.init);
        let mut line = String::new();
        let _none_is_seen = fcntl_setfl(&command.status, OFlags::NONBLOCK);
        let _torn_is_seen = File::from(command.status).take(4096).read_to_string(&mut line);
        let told = Report::parse(&line);
        let mut reports = Vec::new();
        let after = self.ready.groups.as_ref().map(Groups::counters).unwrap_or_default();
        let is_over = command.killed_for == Some(End::OverLimit) && told.is_none();
        if is_over || after.killed > command.before.killed {
            let limit = command.memory_limit.unwrap_or(self.limits.memory_bytes);
            reports.push(Report::Met(Limit::Memory(limit)));
        }
        if after.refused > command.before.refused {
            reports.push(Report::Met(Limit::Processes(self.limits.processes.into())));
        }
        if let Some(bytes) = self.full_scratch() {
            reports.push(Report::Met(Limit::Scratch(bytes)));
        }
        reports.push(match (command.killed_for, told) {
            // It may have ended a moment before it was killed.
            (_, Some(report)) => report,
            (Some(reason), None) => Report::Ended { end: reason, leftovers: 0 },
            // Its init was killed with it, by the kernel or an operator.
            (None, None) => Report::Ended { end: End::Signaled(9), leftovers: 0 },
        });
        self.release_if_idle();
        for report in reports {
            let told = command.control.write_all(report.to_line().as_bytes());
            if told.is_err_and(|error| error.kind() != ErrorKind::Interrupted) {
                return;
            }
        }
    }

    fn release_if_idle(&self) {
        if self.commands.is_empty()
            && let Some(lock) = self.lock
        {
            lock.release();
        }
    }

    /// The bytes that the cell's own folders have, when one of them is full.
    fn full_scratch(&self) -> Option<u64> {
        let seen = scratch_folders();
        let is_full = seen.iter().any(|it| it.f_bavail == 0 || it.f_ffree == 0);
        is_full.then(|| seen.iter().map(|it| it.f_blocks * it.f_frsize).sum())
    }
}

/// The cell's own folders in memory.
fn scratch_folders() -> Vec<rustix::fs::StatVfs> {
    let folders = ["tmp", "home", "dev/shm"].into_iter();
    let seen = folders.map(|folder| rustix::fs::statvfs(Path::new(root::BASE).join(folder)));
    seen.filter_map(Result::ok).collect()
}

/// The bytes that are in them.
fn scratch_bytes() -> u64 {
    scratch_folders().iter().map(|it| (it.f_blocks - it.f_bfree) * it.f_frsize).sum()
}

/// Both ends, the reading one first; neither blocks a reader for ever.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((read, write))
}
