//! The process that starts cells for one worker: our executable again, started before anything secret is read, with one
//! thread and an empty environment. Where it is root's, it has the rights that the worker's commands must never have, and
//! that the worker itself has given up. A guard above it starts another one where it is killed.
//!
//! Invariant: it inherits what a killed keeper leaves, and keeps that cell's lock until the last of it is gone.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, WaitOptions, chdir, getpid, set_child_subreaper, setsid, wait, waitpid,
};

use crate::filter::{Filters, Sockets};
use crate::keeper::{self, Inherited};
use crate::kill;
use crate::limits;
use crate::lock::CellLock;
use crate::sys::{self, Forked};
use crate::wire::{self, CellAnswer, CellRequest};

/// A launcher that runs, as its worker has it. It ends with its socket, when its last keeper has.
#[derive(Debug)]
pub struct Launcher {
    /// `None` only while it is dropped.
    guard: Option<Child>,
    socket: UnixStream,
}

impl Launcher {
    /// Starts one: `executable` calls [`main`] when its arguments are `prefix`.
    ///
    /// # Errors
    /// When the executable cannot be run.
    pub fn start(executable: &Path, prefix: &[OsString]) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let guard = Command::new(executable)
            .args(prefix)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { guard: Some(guard), socket })
    }

    /// Asks it for a cell. `BrokenPipe`: it and its guard are gone.
    pub(crate) fn ask(&self, request: &CellRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(&self.socket, request, fds)
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        let Some(mut guard) = self.guard.take() else { return };
        // Nobody waits here until the last keeper has ended, and a process for which nobody waits stays as a zombie.
        let waiting = thread::Builder::new().name("launcher-end".to_owned());
        let _without_a_thread_it_stays = waiting.spawn(move || guard.wait());
    }
}

/// Runs the launcher: what the hidden subcommand given to [`Launcher::start`] calls, before anything else of the process is
/// set up. Its standard input is a socket to the worker.
pub fn main() -> ExitCode {
    match start_again_when_killed() {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

/// The guard: the launcher is its child, on the same socket. The worker may have no right to start one.
fn start_again_when_killed() -> io::Result<ExitCode> {
    // A signal that ends a service goes to all of its processes, and this one ends with its child.
    let _blocked = sys::signals_as_descriptor(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    rustix::thread::set_name(kill::LAUNCHER)?;
    loop {
        let child = match sys::fork(0)? {
            Forked::Child => {
                return Ok(serve().map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS));
            }
            Forked::Parent { pid, .. } => pid,
        };
        match retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()))? {
            Some((_, status)) if status.signaled() => {}
            Some((_, status)) if status.exit_status() == Some(0) => return Ok(ExitCode::SUCCESS),
            _ => return Ok(ExitCode::FAILURE),
        }
    }
}

/// Says why it ends. Its worker sees the socket end, and says so.
fn fail(error: &io::Error) -> ExitCode {
    let line = format!("the sandbox's launcher cannot work: {error}\n");
    let _unwritable = rustix::io::write(io::stderr(), line.as_bytes());
    ExitCode::FAILURE
}

/// A cell that was started.
struct Cell {
    keeper: Pid,
    lives: bool,
    lock: Option<CellLock>,
    _uids: Option<UnixDatagram>,
}

fn serve() -> io::Result<()> {
    let worker = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 10)?;
    let worker = UnixStream::from(worker);
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    sys::dup_onto(nothing.as_fd(), 0)?;
    sys::dup_onto(nothing.as_fd(), 1)?;
    drop(nothing);
    let _leads_one_already = setsid(); // Ctrl-C at the worker's terminal is the worker's affair
    chdir("/")?;
    set_child_subreaper(Some(getpid()))?;
    let signals = sys::signals_as_descriptor(&[libc::SIGCHLD, libc::SIGTERM])?;
    let filters = Filters::compile(Sockets::Usual)?;
    let mut cells: Vec<Cell> = Vec::new();
    let mut wanted = true;
    while wanted || !cells.is_empty() {
        let (mut asked, mut changed) = (false, false);
        {
            let mut fds = vec![PollFd::new(&signals, PollFlags::IN)];
            if wanted {
                fds.push(PollFd::new(&worker, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            changed |= !fds[0].revents().is_empty();
            asked |= fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        }
        if changed {
            let mut seen = [0; 512];
            let _what_came = rustix::io::read(&signals, &mut seen);
            reap(&mut cells);
        }
        if asked {
            match wire::receive::<CellRequest>(&worker) {
                Ok(Some((request, descriptors))) => {
                    cells.extend(start(&request, descriptors, &filters));
                }
                Ok(None) | Err(_) => wanted = false,
            }
        }
    }
    Ok(())
}

/// Starts a keeper. Why it could not is the keeper's to tell, or its socket's end does.
fn start(request: &CellRequest, descriptors: Vec<OwnedFd>, filters: &Filters) -> Option<Cell> {
    let [worker, workspace] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    let refuse = |why: &str| {
        let _worker_gone = wire::send(&worker, &CellAnswer::Refused(why.to_owned()), &[]);
    };
    let lock = match request.lock.as_deref().map(CellLock::open).transpose() {
        Ok(lock) => lock,
        Err(error) => {
            refuse(&crate::lock::explain(&error));
            return None;
        }
    };
    let (uid, uids) = if request.privileged {
        match reserve(request.uids) {
            Some((uid, reserved)) => (uid, Some(reserved)),
            None => {
                refuse("no user id is free; give a larger --sandbox-uids");
                return None;
            }
        }
    } else {
        (0, None)
    };
    match sys::fork(0) {
        Ok(Forked::Child) => {
            let filters = filters.clone();
            let lock = lock.as_ref();
            keeper::main(request, Inherited { worker, workspace, lock, uid, filters })
        }
        Ok(Forked::Parent { pid, .. }) => {
            Some(Cell { keeper: pid, lives: true, lock, _uids: uids })
        }
        Err(error) => {
            refuse(&format!("cannot fork: {error}"));
            None
        }
    }
}

/// Finds two ids that no other cell of this machine has: each pair is the name of a socket, which one process may have.
fn reserve((first, count): (u32, u32)) -> Option<(u32, UnixDatagram)> {
    let pairs = count / 2;
    // Launchers begin in different places, so that they seldom meet.
    let begin = getpid().as_raw_nonzero().get().unsigned_abs().wrapping_mul(37);
    (0..pairs).find_map(|step| {
        let uid = first + (begin.wrapping_add(step) % pairs) * 2;
        let name = SocketAddr::from_abstract_name(format!("opencode-cloud/uid/{uid}")).ok()?;
        Some((uid, UnixDatagram::bind_addr(&name).ok()?))
    })
}

/// Takes note of who has ended. A cell is forgotten when its keeper is gone and nothing that it left lives: what a killed
/// keeper had started dies with it, a moment later, as a child of ours.
fn reap(cells: &mut Vec<Cell>) {
    while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
        if let Some(cell) = cells.iter_mut().find(|cell| cell.keeper == pid) {
            cell.lives = false;
        }
    }
    if cells.iter().all(|cell| cell.lives) {
        return;
    }
    let keepers: BTreeSet<_> = cells
        .iter()
        .filter(|cell| cell.lives)
        .map(|cell| cell.keeper.as_raw_nonzero().get())
        .collect();
    if !kill::has_other_children(&keepers) {
        cells.retain(|cell| {
            if let Some(lock) = cell.lock.as_ref().filter(|_| !cell.lives) {
                lock.release();
            }
            if !cell.lives {
                limits::remove_groups_of(cell.keeper);
            }
            cell.lives
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // In the second look, each tier that was tried and did not work left a zombie.
    #[test]
    fn a_launcher_that_is_dropped_leaves_no_zombie() {
        let launcher = Launcher::start(Path::new("/bin/cat"), &[]).expect("it starts");
        let pid = launcher.guard.as_ref().expect("a guard").id();
        let is_there = || Path::new(&format!("/proc/{pid}")).exists();
        assert!(is_there());
        drop(launcher);
        for _ in 0..500 {
            if !is_there() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("process {pid} is left");
    }
}
