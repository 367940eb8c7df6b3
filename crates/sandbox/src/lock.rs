//! The lock of a Location on a shared disk: whoever changes files there holds it, a new owner waits for them or kills
//! their tools.
//!
//! ```text
//! LOCATION.lock        the token      held shared by a supervisor or keeper, and by a worker for each change of its own
//! LOCATION.lock.tools  nothing        held shared by a keeper while a command of its cell lives; by a supervisor and by
//!                                     all that it starts, which inherit it read-only
//!
//! supervisor: flock(shared) both ─▶ token in the file ≤ ours? ─▶ command, with the descriptor of .tools alone
//! worker:     flock(shared) lock ─▶ token in the file ≤ ours? ─▶ change ─▶ unlock
//! new owner:  flock(exclusive) both, waiting ≤ 1 s ─▶ else kills the holders of .tools ─▶ writes its token ─▶ unlocks
//! ```
//!
//! Whoever works for the old owner either holds the lock before the new owner has it, and is waited for or killed, or
//! takes it afterwards, finds the newer token, and changes nothing. There is no third case: both read and write the
//! token under the lock. A command has no descriptor of the file with the token; what it has names it as a tool when
//! its supervisor is gone.
//!
//! A file system shared by several machines must carry `flock` across them; holders on another machine cannot
//! be killed from here, and the answer is [`LockError::StillHeld`].

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::Pid;

use crate::kill;

/// How often a lock that is held is tried again.
const RETRY: Duration = Duration::from_millis(10);
/// How long supervisors may take to end what they started, before they are killed with it.
const GRACE: Duration = Duration::from_millis(500);
/// How long killed holders may take to be gone.
const DEATH: Duration = Duration::from_secs(1);

/// A Location's lock file, and the fencing token under which this worker owns the Location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationLock {
    /// The file; made when missing, its folder is not.
    pub path: PathBuf,
    /// The fencing token, as a number that only grows.
    pub token: i64,
}

impl LocationLock {
    /// The file that tools hold.
    fn tools(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".tools");
        path.into()
    }
}

/// The lock, held shared until this is dropped: no new owner takes the Location over meanwhile.
#[derive(Debug)]
#[must_use = "the lock is let go at once"]
pub struct Held {
    _lock: File,
}

/// The same, with what a supervisor's commands inherit.
#[derive(Debug)]
pub(crate) struct HeldForTools {
    _lock: Held,
    /// The supervisor's own, by which a new owner finds it whatever its commands do with theirs.
    _tools: File,
    _inherited: File,
}

/// Why a Location cannot be taken over, or no longer be worked in.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A newer owner has been here: stop work in this Location.
    #[error("the Location has a newer owner (its lock holds token {newest}, ours is {ours})")]
    Superseded {
        /// Our token.
        ours: i64,
        /// The token in the file.
        newest: i64,
    },
    /// Someone holds the lock who could not be found or killed here: try again, do not start tools.
    #[error("the lock {} is still held after its holders {killed:?} were killed", path.display())]
    StillHeld {
        /// The lock file.
        path: PathBuf,
        /// The processes that were killed.
        killed: BTreeSet<i32>,
    },
    /// The lock file cannot be used.
    #[error("cannot use the lock file {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// An error with its cause, in one line.
pub(crate) fn explain(error: &LockError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Makes sure that no tool process of an earlier owner lives, and that none can start any more.
///
/// Waits at most `wait` for the holders to end, then kills those of this machine. Returns the processes killed.
/// Blocks for at most `wait` + 1.5 s: call it from a blocking thread.
pub fn acquire_or_kill(lock: &LocationLock, wait: Duration) -> Result<BTreeSet<i32>, LockError> {
    let failed = |source| LockError::Io { path: lock.path.clone(), source };
    let file = open(&lock.path).map_err(failed)?;
    let tools = open(&lock.tools()).map_err(failed)?;
    let both = |wait| Ok(try_exclusive(&file, wait)? && try_exclusive(&tools, wait)?);
    let mut killed = BTreeSet::new();
    if !both(wait).map_err(failed)? {
        // A supervisor that is asked to end kills all that it started, also what has closed the lock, and then ends.
        // A worker that holds the lock for a change of its own is not ours to kill.
        killed = holders(&tools).map_err(failed)?;
        killed.iter().for_each(|pid| kill::ask_to_end(*pid));
        if !both(GRACE).map_err(failed)? {
            killed.extend(kill_holders(&tools).map_err(failed)?);
            if !both(DEATH).map_err(failed)? {
                return Err(LockError::StillHeld { path: lock.path.clone(), killed });
            }
        }
    }
    check_token(&file, lock)?;
    file.write_all_at(format!("{:020}\n", lock.token).as_bytes(), 0).map_err(failed)?;
    Ok(killed)
}

/// Whether this worker's token is still the newest: the cheap look before a change that no process makes.
/// A lock file that does not exist yet has seen no newer owner.
pub fn prove(lock: &LocationLock) -> Result<(), LockError> {
    match File::open(&lock.path) {
        Ok(file) => check_token(&file, lock),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(LockError::Io { path: lock.path.clone(), source }),
    }
}

/// Takes the lock for a change that this process makes itself. Waits for a new owner that is just taking over, at most
/// a second: call it from a blocking thread.
///
/// # Errors
/// [`LockError::Superseded`] when there is a newer owner: change nothing.
pub fn hold(lock: &LocationLock) -> Result<Held, LockError> {
    let file = hold_shared(lock, &lock.path)?;
    check_token(&file, lock)?;
    Ok(Held { _lock: file })
}

/// Takes the lock for a supervisor. All that it starts inherits, through `exec`, a read-only descriptor of the file that
/// marks tools: the marks last until the last of them is gone. It is one of their own: whoever lets go of it takes nothing from
/// the supervisor.
pub(crate) fn hold_for_tools(lock: &LocationLock) -> Result<HeldForTools, LockError> {
    let held = hold(lock)?;
    let tools = hold_shared(lock, &lock.tools())?;
    let inherited = hold_shared(lock, &lock.tools())?;
    fcntl_setfd(inherited.as_fd(), FdFlags::empty())
        .map_err(|errno| LockError::Io { path: lock.tools(), source: errno.into() })?;
    Ok(HeldForTools { _lock: held, _tools: tools, _inherited: inherited })
}

/// Opens a file for reading alone.
fn open_to_read(path: &Path) -> Result<File, LockError> {
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = openat(CWD, path, flags, Mode::from_raw_mode(0o666));
    let failed = |errno: Errno| LockError::Io { path: path.to_path_buf(), source: errno.into() };
    Ok(File::from(fd.map_err(failed)?))
}

/// Opens a file for reading alone, and holds it shared.
fn hold_shared(lock: &LocationLock, path: &Path) -> Result<File, LockError> {
    let file = open_to_read(path)?;
    share(&file, lock)?;
    Ok(file)
}

fn share(file: &File, lock: &LocationLock) -> Result<(), LockError> {
    let failed = |source| LockError::Io { path: lock.path.clone(), source };
    let taken = retry(DEATH, || flock(file, FlockOperation::NonBlockingLockShared));
    if taken.map_err(failed)? {
        return Ok(());
    }
    Err(LockError::StillHeld { path: lock.path.clone(), killed: BTreeSet::new() })
}

/// The lock of a cell's Location: open for as long as the cell lives, held while a command of it does.
///
/// The launcher opens it, and the keeper inherits it: the lock of one is that of the other. A keeper that is killed leaves
/// it held until the launcher, which inherits the keeper's children, has seen the last of them end.
#[derive(Debug)]
pub(crate) struct CellLock {
    path: PathBuf,
    lock: File,
    tools: File,
}

impl CellLock {
    pub(crate) fn open(path: &Path) -> Result<Self, LockError> {
        let lock = LocationLock { path: path.to_path_buf(), token: 0 };
        Ok(Self { lock: open_to_read(path)?, tools: open_to_read(&lock.tools())?, path: lock.path })
    }

    /// Holds it for a command that is about to start, under this token.
    pub(crate) fn hold(&self, token: i64) -> Result<(), LockError> {
        let ours = LocationLock { path: self.path.clone(), token };
        share(&self.lock, &ours)?;
        let held = share(&self.tools, &ours).and_then(|()| check_token(&self.lock, &ours));
        if held.is_err() {
            self.release();
        }
        held
    }

    /// Lets go of it: no process of the cell is left.
    pub(crate) fn release(&self) {
        for file in [&self.tools, &self.lock] {
            let _was_held = flock(file, FlockOperation::NonBlockingUnlock);
        }
    }

    pub(crate) fn descriptors(&self) -> [std::os::fd::BorrowedFd<'_>; 2] {
        [self.lock.as_fd(), self.tools.as_fd()]
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn check_token(file: &File, lock: &LocationLock) -> Result<(), LockError> {
    let failed = |source| LockError::Io { path: lock.path.clone(), source };
    let mut bytes = [0; 32];
    let count = file.read_at(&mut bytes, 0).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    let newest = match text.trim() {
        "" => return Ok(()), // nobody has taken it yet
        number => number.parse().map_err(|error| failed(io::Error::other(error)))?,
    };
    if newest > lock.token {
        return Err(LockError::Superseded { ours: lock.token, newest });
    }
    Ok(())
}

fn try_exclusive(file: &File, wait: Duration) -> io::Result<bool> {
    retry(wait, || flock(file, FlockOperation::NonBlockingLockExclusive))
}

fn retry(wait: Duration, attempt: impl Fn() -> rustix::io::Result<()>) -> io::Result<bool> {
    let deadline = Instant::now() + wait;
    loop {
        match attempt() {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(RETRY);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// SIGKILLs the holders, and what is below them.
fn kill_holders(file: &File) -> io::Result<BTreeSet<i32>> {
    let mut found = holders(file)?;
    let below: Vec<_> = found.iter().filter_map(|pid| Pid::from_raw(*pid)).collect();
    found.extend(below.into_iter().flat_map(kill::descendants));
    found.iter().for_each(|pid| kill::process(*pid));
    Ok(found)
}

/// The other processes that hold the lock shared. A process that only has the file open waits as we do, and one that
/// holds it exclusively is another owner in the middle of a takeover: neither is ours to kill.
fn holders(file: &File) -> io::Result<BTreeSet<i32>> {
    let wanted = file.metadata()?;
    let own = rustix::process::getpid().as_raw_nonzero().get();
    Ok(kill::all_processes()
        .filter(|pid| *pid != own && holds_shared(*pid, (wanted.dev(), wanted.ino())))
        // It holds what its keepers do, and lets go when they are gone; it serves other Locations too.
        .filter(|pid| !kill::is_launcher(*pid))
        .collect())
}

/// Whether a descriptor of `pid` carries the shared lock of the file (`lock:` lines of `/proc/PID/fdinfo`).
fn holds_shared(pid: i32, (device, inode): (u64, u64)) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let is_file = fs::metadata(descriptor.path())
            .is_ok_and(|seen| (seen.dev(), seen.ino()) == (device, inode));
        let info = || {
            let number = descriptor.file_name();
            fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", number.display()))
        };
        is_file && info().is_ok_and(|info| carries_shared_flock(&info))
    })
}

fn carries_shared_flock(fdinfo: &str) -> bool {
    fdinfo
        .lines()
        .any(|line| line.starts_with("lock:") && line.contains("FLOCK") && line.contains(" READ "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock_at(directory: &tempfile::TempDir, token: i64) -> LocationLock {
        LocationLock { path: directory.path().join("lock"), token }
    }

    #[test]
    fn an_older_owner_is_superseded_and_the_same_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (lock_at(&directory, 7), lock_at(&directory, 8));
        prove(&old).unwrap();
        assert_eq!(acquire_or_kill(&new, Duration::ZERO).unwrap(), BTreeSet::new());
        acquire_or_kill(&new, Duration::ZERO).unwrap();
        for refused in [
            acquire_or_kill(&old, Duration::ZERO).map(drop),
            prove(&old),
            hold(&old).map(drop),
            hold_for_tools(&old).map(drop),
        ] {
            assert!(matches!(refused, Err(LockError::Superseded { ours: 7, newest: 8 })));
        }
        drop(hold_for_tools(&new).unwrap());
    }

    // Finding store 19: between a worker's look at the token and its change, a new owner could take over.
    #[test]
    fn a_new_owner_waits_for_a_change_and_kills_no_worker() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (lock_at(&directory, 1), lock_at(&directory, 2));
        let changing = hold(&old).unwrap();
        let refused = acquire_or_kill(&new, Duration::ZERO);
        assert!(matches!(refused, Err(LockError::StillHeld { killed, .. }) if killed.is_empty()));
        prove(&old).unwrap();
        drop(changing);
        acquire_or_kill(&new, Duration::ZERO).unwrap();
        assert!(matches!(hold(&old), Err(LockError::Superseded { ours: 1, newest: 2 })));
    }

    #[test]
    fn two_tools_of_one_owner_hold_it_together() {
        let directory = tempfile::tempdir().unwrap();
        let lock = lock_at(&directory, 1);
        let (first, second) = (hold_for_tools(&lock).unwrap(), hold_for_tools(&lock).unwrap());
        drop(first);
        // Our own process is a holder that is never killed: the lock stays held, and we are told.
        let refused = acquire_or_kill(&lock, Duration::ZERO);
        assert!(matches!(refused, Err(LockError::StillHeld { killed, .. }) if killed.is_empty()));
        drop(second);
        acquire_or_kill(&lock, Duration::ZERO).unwrap();
    }

    #[test]
    fn only_shared_flocks_are_recognised() {
        assert!(carries_shared_flock("pos:\t0\nlock:\t1: FLOCK  ADVISORY  READ 9 00:1:2 0 EOF\n"));
        assert!(!carries_shared_flock("lock:\t1: FLOCK  ADVISORY  WRITE 9 00:1:2 0 EOF\n"));
        assert!(!carries_shared_flock("pos:\t0\nflags:\t02\n"));
    }
}
