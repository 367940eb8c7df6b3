//! The process between a worker and a command. Its stdin is a socket to the worker, its stdout and stderr are the
//! command's.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait,
    waitid,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::{End, Limit, TOO_LONG};
use crate::control::Report;
use crate::filter::{Filters, Sockets};
use crate::kill;
use crate::limits::{self, Limits};
use crate::lock::{self, LocationLock, LockError};
use crate::memory::{self, Look};
use crate::sys;
use crate::walls::{self, Grant};

/// The name by which supervisors of one service know each other.
const SUPERVISOR: &std::ffi::CStr = c"oc-supervisor";

/// The walls of tier C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls {
    /// No newer ABI of landlock is asked for.
    pub(crate) newest: i32,
    /// Its limits.
    pub(crate) limits: Limits,
    /// The bytes of its largest file.
    pub(crate) file_bytes: u64,
    /// The paths that the command may reach.
    pub(crate) paths: Vec<(Grant, PathBuf)>,
}

/// The request of a worker to its supervisor, as its command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) timeout: Duration,
    pub(crate) lock: Option<LocationLock>,
    /// Behind what the command runs, where it is bounded.
    pub(crate) walls: Option<Walls>,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
}

impl Job {
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec![self.timeout.as_millis().to_string().into()];
        match &self.lock {
            Some(lock) => args.extend([lock.token.to_string().into(), lock.path.clone().into()]),
            None => args.push("-".into()),
        }
        match &self.walls {
            Some(Walls { newest, limits, file_bytes, paths }) => {
                args.extend([paths.len().to_string().into(), newest.to_string().into()]);
                let Limits { memory_bytes, all_cells_bytes, processes } = limits;
                let numbers = [*memory_bytes, *all_cells_bytes, u64::from(*processes), *file_bytes];
                args.extend(numbers.map(|number| number.to_string().into()));
                for (grant, path) in paths {
                    args.extend([grant.letter().into(), path.clone().into()]);
                }
            }
            None => args.push("-".into()),
        }
        args.push(self.program.clone().into());
        args.extend(self.args.iter().cloned());
        args
    }

    fn parse(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let timeout = Duration::from_millis(args.next()?.to_str()?.parse().ok()?);
        let token = args.next()?;
        let lock = if token == "-" {
            None
        } else {
            let token = token.to_str()?.parse().ok()?;
            Some(LocationLock { path: args.next()?.into(), token })
        };
        let count = args.next()?;
        let walls = if count == "-" {
            None
        } else {
            let count: usize = count.to_str()?.parse().ok()?;
            let newest = args.next()?.to_str()?.parse().ok()?;
            let memory_bytes = args.next()?.to_str()?.parse().ok()?;
            let all_cells_bytes = args.next()?.to_str()?.parse().ok()?;
            let processes = args.next()?.to_str()?.parse().ok()?;
            let limits = Limits { memory_bytes, all_cells_bytes, processes };
            let file_bytes = args.next()?.to_str()?.parse().ok()?;
            let wall = |_| Some((Grant::of(&args.next()?)?, PathBuf::from(args.next()?)));
            let paths = (0..count).map(wall).collect::<Option<Vec<_>>>()?;
            Some(Walls { newest, limits, file_bytes, paths })
        };
        Some(Self { timeout, lock, walls, program: args.next()?.into(), args: args.collect() })
    }
}

/// Runs the supervisor: what the hidden subcommand given to [`crate::ProcessSandbox::new`] calls, before anything
/// else of the process is set up, with the arguments after the subcommand. They are private to this crate.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(job) = Job::parse(args) else { return ExitCode::from(2) };
    // Whoever started the service may have left descriptors open in it, which are no command's.
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    if sys::close_all_but(&[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]).is_err() {
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(supervise(&job))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_worker_is_told_or_gone) => ExitCode::FAILURE,
    }
}

async fn supervise(job: &Job) -> io::Result<()> {
    let socket = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    let mut worker = UnixStream::from_std(socket)?;
    let report = match run(job, &mut worker).await {
        Ok((end, leftovers, memory_limit)) => {
            if let Some(limit) = memory_limit {
                let met = Report::Met(Limit::Memory(limit));
                worker.write_all(met.to_line().as_bytes()).await?;
            }
            Report::Ended { end, leftovers }
        }
        Err(Refusal::Superseded(newest)) => Report::Superseded(newest),
        Err(Refusal::Other(why)) => Report::Refused(why),
    };
    worker.write_all(report.to_line().as_bytes()).await
}

enum Refusal {
    Superseded(i64),
    Other(String),
}

impl Refusal {
    fn because(what: &str, error: impl Into<io::Error>) -> Self {
        Self::Other(format!("{what}: {}", error.into()))
    }
}

/// Starts the command, waits for the first reason to end it, and leaves no process of it behind. Returns its end, how many
/// processes it left, and the limit on memory for which it was ended.
async fn run(job: &Job, worker: &mut UnixStream) -> Result<(End, u32, Option<u64>), Refusal> {
    let _only_a_name = rustix::thread::set_name(SUPERVISOR);
    // A session of our own: Ctrl-C at the worker's terminal is the worker's affair.
    setsid().map_err(|errno| Refusal::because("cannot make a session", errno))?;
    sys::lower_own_session();
    // Whatever the command's processes do, they end up as children of ours, where they can be found.
    set_child_subreaper(Some(getpid()))
        .map_err(|errno| Refusal::because("cannot become a subreaper", errno))?;
    let mut asked_to_end = signal(SignalKind::terminate())
        .map_err(|error| Refusal::because("cannot listen for SIGTERM", error))?;
    let _held = match &job.lock {
        Some(lock) => Some(lock::hold_for_tools(lock).map_err(|error| match error {
            LockError::Superseded { newest, .. } => Refusal::Superseded(newest),
            LockError::StillHeld { .. } => Refusal::Other(error.to_string()),
            LockError::Io { source, .. } => Refusal::because("cannot lock the Location", source),
        })?),
        None => None,
    };
    let mut child_changed = signal(SignalKind::child())
        .map_err(|error| Refusal::because("cannot listen for SIGCHLD", error))?;
    let main = spawn(job)?;
    // A worker that is gone already is noticed below.
    let _worker_gone = worker.write_all(report_started(main).as_bytes()).await;
    let mut memory_limit = None;
    let killed_for = tokio::select! {
        biased;
        () = end_of_command(main, &mut child_changed) => None,
        () = end_of(worker) => Some(End::Cancelled),
        _ = asked_to_end.recv() => Some(End::Cancelled),
        () = tokio::time::sleep(job.timeout) => Some(End::TimedOut),
        limit = too_much_memory(job) => {
            memory_limit = Some(limit);
            Some(End::OverLimit)
        }
    };
    let (status, leftovers) = kill_all(main).await;
    let own_end = match status.map(|status| (status.exit_status(), status.terminating_signal())) {
        Some((Some(code), _)) => End::Exited(code),
        Some((None, Some(signal))) => End::Signaled(signal),
        Some((None, None)) | None => {
            return Err(Refusal::Other("the command's end could not be seen".to_owned()));
        }
    };
    Ok((killed_for.unwrap_or(own_end), leftovers, memory_limit))
}

/// Returns the limit on memory that the command is beyond, when it is.
async fn too_much_memory(job: &Job) -> u64 {
    let Some(walls) = &job.walls else { return std::future::pending().await };
    let Limits { memory_bytes, all_cells_bytes, .. } = walls.limits;
    while let Look::Next(pause) = memory::look(&[getpid()], 0, memory_bytes) {
        if memory::is_largest_of_too_much(all_cells_bytes) {
            return all_cells_bytes;
        }
        tokio::time::sleep(pause).await;
    }
    memory_bytes
}

fn report_started(main: Pid) -> String {
    Report::Started(main.as_raw_nonzero().get()).to_line()
}

fn spawn(job: &Job) -> Result<Pid, Refusal> {
    let mut command = Command::new(&job.program);
    command.args(&job.args).stdin(Stdio::null()).process_group(0);
    if let Some(walls) = &job.walls {
        confine(&mut command, walls).map_err(|error| Refusal::because("no walls", error))?;
    }
    match command.spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) if error.kind() == io::ErrorKind::ArgumentListTooLong => {
            Err(Refusal::Other(TOO_LONG.to_owned()))
        }
        Err(error) => Err(Refusal::because(&format!("{}", job.program.display()), error)),
    }
}

/// Has the command go behind the walls of tier C before it begins.
fn confine(command: &mut Command, walls: &Walls) -> io::Result<()> {
    let grants = walls.paths.iter().map(|(grant, path)| (path.as_path(), *grant));
    let rules = walls::rules(grants, false, walls.newest).map_err(io::Error::other)?;
    let rules = rules.ok_or_else(|| io::Error::other("this kernel has no landlock"))?;
    let filters = Filters::compile(Sockets::PairsOnly)?.without_memory_files()?;
    let (processes, file_bytes) = (walls.limits.processes, walls.file_bytes);
    let behind_walls = move || {
        let _least_of_all = std::fs::write("/proc/self/oom_score_adj", "500");
        sys::be_nice();
        // Of all processes of this user, the service's too.
        limits::limit_process(processes.saturating_mul(8), file_bytes)?;
        sys::drop_capabilities()?;
        rustix::thread::set_no_new_privs(true)?;
        sys::restrict_self(rules.as_fd())?;
        filters.install()
    };
    sys::before_exec(command, behind_walls);
    Ok(())
}

/// Returns when the command's main process has ended, and leaves it unreaped: until then its number, which is its
/// group's too, cannot be anyone else's.
async fn end_of_command(main: Pid, child_changed: &mut Signal) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(main), options), Ok(None) | Err(Errno::INTR)) {
        child_changed.recv().await;
    }
}

/// Returns when the worker has closed its end, or the kernel has done so for a dead one.
async fn end_of(worker: &mut UnixStream) {
    let mut byte = [0];
    while matches!(worker.read(&mut byte).await, Ok(count) if count > 0) {}
}

/// SIGKILLs everything below us until nothing is left, however long that takes. Returns how the main process ended
/// and how many others were seen alive.
async fn kill_all(main: Pid) -> (Option<WaitStatus>, u32) {
    let main_number = main.as_raw_nonzero().get();
    let mut status = None;
    let mut others = BTreeSet::new();
    if !kill::is_only_child(main) {
        others = kill::descendants(getpid());
        others.remove(&main_number);
    }
    let mut pause = Duration::from_millis(1);
    loop {
        if status.is_none() {
            kill::group(main_number); // its number cannot be anyone else's before we have reaped it
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, how))) if pid == main => status = Some(how),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => break, // some child lives
                Err(_no_child_is_left) => {
                    let count = u32::try_from(others.len()).unwrap_or(u32::MAX);
                    return (status, count);
                }
            }
        }
        for pid in kill::descendants(getpid()) {
            if pid != main_number {
                others.insert(pid);
            }
            kill::process(pid);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_survives_its_command_line() {
        let lock = LocationLock { path: "/tmp/a b".into(), token: 1 << 41 };
        for lock in [None, Some(lock)] {
            let paths = lock.iter().map(|lock| (Grant::All, lock.path.clone())).collect();
            let limits = Limits { memory_bytes: 1 << 40, all_cells_bytes: 1 << 41, processes: 7 };
            let walls = lock.is_some().then_some(Walls { newest: 3, limits, file_bytes: 9, paths });
            let job = Job {
                timeout: Duration::from_secs(3),
                lock,
                walls,
                program: "/bin/sh".into(),
                args: vec!["-c".into(), "--timeout".into()],
            };
            assert_eq!(Job::parse(job.to_args()), Some(job));
        }
        assert_eq!(Job::parse(["x".into()]), None);
    }
}
