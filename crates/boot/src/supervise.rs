//! Keeps a child server running.

use std::future::Future;
use std::time::Duration;

use tasks::{CancellationToken, OnCancel, OnError, TaskFailure, TaskGroup, TaskKind};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::BootError;
use crate::guarded::GuardedChild;
use crate::log_file::LogFile;

const SUPERVISE: TaskKind = TaskKind::new("supervise", OnError::StopRole, OnCancel::Wait);
const TRIM_LOG: TaskKind = TaskKind::new("trim log", OnError::Log, OnCancel::Abort);

const TRIM_EVERY: Duration = Duration::from_secs(60);
/// The time for an orderly end: Postgres writes all dirty pages.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// The longest time for asking, the stronger signal, and killing together.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(45);

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LAST_DELAY: Duration = Duration::from_secs(5);
/// The run time after which a server's failures are forgotten.
const GOOD_RUN: Duration = Duration::from_secs(60);
/// The most restarts in a row without a good run between them: about a minute.
const MAX_RESTARTS: u32 = 15;

/// The reason why we stop restarting a server.
#[derive(Debug, Error)]
#[error("{name} ended {MAX_RESTARTS} times in a row; see its log {log}")]
struct GaveUp {
    name: &'static str,
    log: String,
}

/// A server that is restarted if it ends by itself. Dropping it stops the server without waiting.
#[derive(Debug)]
pub(crate) struct Supervised {
    group: TaskGroup,
    pid: watch::Receiver<Option<u32>>,
}

impl Supervised {
    /// Takes over a running `child`. `restart` starts the next one and waits until it is ready.
    pub(crate) fn new<S, F>(
        name: &'static str,
        child: GuardedChild,
        log: LogFile,
        restart: S,
    ) -> Self
    where
        S: Fn() -> F + Send + 'static,
        F: Future<Output = Result<GuardedChild, BootError>> + Send + 'static,
    {
        let group = TaskGroup::root(name);
        let (told, pid) = watch::channel(child.pid());
        let log_path = log.path().display().to_string();
        let cancel = group.token();
        group.spawn(SUPERVISE, async move {
            match keep_running(name, child, restart, &cancel, &told).await {
                Ended::Stopped => Ok(()),
                Ended::GaveUp => Err(GaveUp { name, log: log_path }),
            }
        });
        group.spawn(TRIM_LOG, async move {
            loop {
                sleep(TRIM_EVERY).await;
                if let Err(error) = log.trim() {
                    warn!(name, %error, "cannot trim the log of a child");
                }
            }
            #[expect(unreachable_code, reason = "names the error type of a loop without end")]
            Ok::<(), std::convert::Infallible>(())
        });
        Self { group, pid }
    }

    /// Returns the current process id; `None` between an end and a restart.
    pub(crate) fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Waits until we give up on the server.
    pub(crate) async fn failed(&self) -> TaskFailure {
        self.group.failed().await
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(self) {
        self.group.shutdown(SHUTDOWN_GRACE).await;
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.group.token().cancel();
    }
}

enum Ended {
    Stopped,
    GaveUp,
}

async fn keep_running<S, F>(
    name: &'static str,
    mut child: GuardedChild,
    restart: S,
    cancel: &CancellationToken,
    pid: &watch::Sender<Option<u32>>,
) -> Ended
where
    S: Fn() -> F,
    F: Future<Output = Result<GuardedChild, BootError>>,
{
    let mut restarts = 0;
    loop {
        let started = Instant::now();
        pid.send_replace(child.pid());
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                match child.stop(STOP_PATIENCE).await {
                    Ok(status) => info!(name, %status, "child stopped"),
                    Err(error) => error!(name, %error, "cannot wait for a child"),
                }
                return Ended::Stopped;
            }
            ended = child.wait() => match ended {
                Ok(status) => warn!(name, %status, "child ended unexpectedly; it is started again"),
                Err(error) => error!(name, %error, "cannot wait for a child; it is started again"),
            }
        }
        pid.send_replace(None);
        if started.elapsed() >= GOOD_RUN {
            restarts = 0;
        }
        child = loop {
            if restarts == MAX_RESTARTS {
                return Ended::GaveUp;
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ended::Stopped,
                () = sleep(delay_before(restarts)) => {}
            }
            restarts += 1;
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Ended::Stopped,
                next = restart() => match next {
                    Ok(child) => break child,
                    Err(error) => error!(name, %error, restarts, "cannot start a child again"),
                }
            }
        };
        info!(name, pid = child.pid(), restarts, "child runs again");
    }
}

/// Returns a delay that doubles from a tenth of a second to five seconds.
fn delay_before(restarts: u32) -> Duration {
    FIRST_DELAY.saturating_mul(2_u32.saturating_pow(restarts)).min(LAST_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_grow_and_are_bounded() {
        let delays: Vec<_> = (0..8).map(|n| delay_before(n).as_millis()).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(delay_before(u32::MAX), LAST_DELAY);
    }
}
