//! Stops a Postgres of ours that an earlier run left behind.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::BootError;

const POLL: Duration = Duration::from_millis(50);
/// The time for its checkpoint.
const FAST_PATIENCE: Duration = Duration::from_secs(30);
const IMMEDIATE_PATIENCE: Duration = Duration::from_secs(5);

/// Stops the postmaster that runs in `pgdata`, if there is one. The caller holds the data folder, so its
/// starter is dead. Then removes the lock files that it left there and in `sockets`: Postgres refuses to start where
/// another process got a number that stands in them, or where one is empty.
///
/// Only a process with that working directory is touched.
pub(super) async fn stop(pgdata: &Path, sockets: Option<&Path>) -> Result<(), BootError> {
    let pid_file = pgdata.join("postmaster.pid");
    let text = read_if_there(&pid_file)?;
    let named = text.as_deref().and_then(first_number).filter(|pid| stands_in(*pid, pgdata));
    // A file that a loss of power emptied names nobody.
    let Some(pid) = named.or_else(|| find_standing(pgdata)) else {
        return remove_locks(&pid_file, text.as_deref(), sockets);
    };
    warn!(%pid, "a postgres of an earlier run is still there; stopping it first");
    for (signal, patience) in [(Signal::INT, FAST_PATIENCE), (Signal::QUIT, IMMEDIATE_PATIENCE)] {
        // It may end between our look and this signal.
        let _gone = kill_process(pid, signal);
        let _gone = kill_process(pid, Signal::CONT);
        let asked = Instant::now();
        while asked.elapsed() < patience {
            if !stands_in(pid, pgdata) {
                return remove_locks(&pid_file, read_if_there(&pid_file)?.as_deref(), sockets);
            }
            sleep(POLL).await;
        }
    }
    Err(BootError::OrphanStays { pid: pid.as_raw_nonzero().get() })
}

/// Removes the lock files of a Postgres that is gone, which it removes itself when it stops in order.
fn remove_locks(
    pid_file: &Path,
    text: Option<&str>,
    sockets: Option<&Path>,
) -> Result<(), BootError> {
    if let Some(text) = text {
        let pid = first_number(text).map(|pid| pid.as_raw_nonzero().get());
        warn!(pid, "removing the pid file of a postgres that is gone");
        remove_if_there(pid_file)?;
    }
    let Some(folder) = sockets else { return Ok(()) };
    for entry in fs::read_dir(folder).map_err(BootError::io("read", folder))? {
        let path = entry.map_err(BootError::io("read", folder))?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name.starts_with(b".s.PGSQL.") {
            remove_if_there(&path)?;
        }
    }
    Ok(())
}

fn read_if_there(path: &Path) -> Result<Option<String>, BootError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(BootError::io("read", path)(error)),
    }
}

fn remove_if_there(path: &Path) -> Result<(), BootError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(BootError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Returns the process that the first line of a lock file names.
fn first_number(text: &str) -> Option<Pid> {
    text.lines().next()?.trim().parse().ok().and_then(Pid::from_raw)
}

/// Returns the postmaster of a folder whose own file does not name it.
fn find_standing(pgdata: &Path) -> Option<Pid> {
    let is_postgres = |pid: Pid| {
        let program = fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero()));
        stands_in(pid, pgdata) && program.is_ok_and(|path| path.ends_with("postgres"))
    };
    let parent = |pid: Pid| {
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        line.trim().parse().ok().and_then(Pid::from_raw)
    };
    let all = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Its helpers stand there too.
    numbers.find_map(|number| {
        let pid = Pid::from_raw(number).filter(|pid| is_postgres(*pid))?;
        (!parent(pid).is_some_and(is_postgres)).then_some(pid)
    })
}

/// Returns whether the process has that working directory, as a postmaster has its own folder. A dead process
/// has none, even before it was waited for.
fn stands_in(pid: Pid, folder: &Path) -> bool {
    let link = format!("/proc/{}/cwd", pid.as_raw_nonzero());
    fs::read_link(link).is_ok_and(|cwd| cwd == folder)
}
