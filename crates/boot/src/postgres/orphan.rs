//! Stops a Postgres of ours that an earlier run left behind.

use std::fs;
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
/// starter is dead.
///
/// Only a process with that working directory is touched. If another process got the number in the pid file,
/// the file is removed, because Postgres would refuse to start.
pub(super) async fn stop(pgdata: &Path) -> Result<(), BootError> {
    let pid_file = pgdata.join("postmaster.pid");
    let Ok(text) = fs::read_to_string(&pid_file) else { return Ok(()) };
    let number = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok());
    let Some(pid) = number.and_then(Pid::from_raw) else { return Ok(()) };
    if !stands_in(pid, pgdata) {
        let stranger = Path::new("/proc").join(pid.as_raw_nonzero().to_string()).exists();
        if stranger && pid != rustix::process::getpid() {
            warn!(%pid, "removing the pid file of a postgres that is gone");
            fs::remove_file(&pid_file).map_err(BootError::io("remove", &pid_file))?;
        }
        return Ok(());
    }
    warn!(%pid, "a postgres of an earlier run is still there; stopping it first");
    for (signal, patience) in [(Signal::INT, FAST_PATIENCE), (Signal::QUIT, IMMEDIATE_PATIENCE)] {
        // It may end between our look and this signal.
        let _gone = kill_process(pid, signal);
        let _gone = kill_process(pid, Signal::CONT);
        let asked = Instant::now();
        while asked.elapsed() < patience {
            if !stands_in(pid, pgdata) {
                return Ok(());
            }
            sleep(POLL).await;
        }
    }
    Err(BootError::OrphanStays { pid: pid.as_raw_nonzero().get() })
}

/// Returns whether the process has that working directory, as a postmaster has its own folder. A dead process
/// has none, even before it was waited for.
fn stands_in(pid: Pid, folder: &Path) -> bool {
    let link = format!("/proc/{}/cwd", pid.as_raw_nonzero());
    fs::read_link(link).is_ok_and(|cwd| cwd == folder)
}
