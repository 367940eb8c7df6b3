//! A child server that stops when our process dies, for whatever reason.
//!
//! ```text
//! us ──pipe──▶ watcher (sh)          end of file on the pipe: ask, wait, insist
//!  └─fork─▶ sh ─exec─▶ the server    same process id, our own child: its exit status is real
//! ```
//!
//! A parent-death signal would not work: it fires when the *thread* that started the child ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin};
use tokio::time::timeout;
use tracing::warn;

use crate::BootError;

/// Starts the watcher, then becomes the server. The watcher is forked twice, so that the server does not find
/// it among its children. A line on the pipe means that the server has ended; end of file without a line
/// means that our process has. A stopped server is continued, so that it can react. A server that was not
/// reaped yet counts as ended.
const GUARD: &str = r#"
signal=$1 last=$2 patience=$3
shift 3
exec 3<&0 </dev/null
(
  (
    read -r line <&3 && exit 0
    kill -s "$signal" $$
    kill -s CONT $$
    while [ "$patience" -gt 0 ]; do
      case $(cut -d ' ' -f 3 /proc/$$/stat) in '' | Z | X) exit 0 ;; esac
      sleep 1
      patience=$((patience - 1))
    done
    kill -s "$last" $$
  ) >/dev/null 2>&1 &
)
exec 3<&-
exec "$@"
"#;

/// The time that an orphaned server has for its orderly end.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(30);
/// The time that a server has after the last signal.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// The signals that stop a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT, then SIGQUIT: Postgres's fast and immediate shutdown.
    Interrupt,
    /// SIGTERM, then SIGKILL.
    Terminate,
}

impl StopSignal {
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Interrupt => ["INT", "QUIT"],
            Self::Terminate => ["TERM", "KILL"],
        }
    }

    fn signals(self) -> [Signal; 2] {
        match self {
            Self::Interrupt => [Signal::INT, Signal::QUIT],
            Self::Terminate => [Signal::TERM, Signal::KILL],
        }
    }
}

/// The command line of a child server.
#[derive(Debug)]
pub struct GuardedCommand {
    command: Command,
    stop: StopSignal,
}

impl GuardedCommand {
    /// Makes the command line of a server that `stop` stops. The server gets no standard input, and its own
    /// process group, so that Ctrl-C on the terminal reaches only us.
    #[must_use]
    pub fn new(program: &Path, stop: StopSignal) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GUARD, "guard"]).args(stop.names());
        command.arg(ORPHAN_PATIENCE.as_secs().to_string()).arg(program);
        command.process_group(0);
        Self { command, stop }
    }

    /// Returns the command, to set arguments, environment, folder, user and output. Arguments are added to
    /// the server's. The guard owns its standard input.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// Starts the server and its watcher. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The shell cannot be started. A missing program shows as exit status 127 or 126.
    pub fn spawn(mut self) -> Result<GuardedChild, BootError> {
        self.command.stdin(Stdio::piped());
        let mut child = tokio::process::Command::from(self.command)
            .spawn()
            .map_err(BootError::io("run", Path::new("/bin/sh")))?;
        let pipe = child.stdin.take();
        Ok(GuardedChild { child, pipe, stop: self.stop })
    }
}

/// A running child server. Dropping it asks the server to stop and does not wait.
#[derive(Debug)]
pub struct GuardedChild {
    child: Child,
    /// Open as long as we live. Taken out of `child`, whose `wait` would close it.
    pipe: Option<ChildStdin>,
    stop: StopSignal,
}

impl GuardedChild {
    /// Returns the server's process id, until the server was waited for.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the server has ended. Cancel safe.
    ///
    /// # Errors
    /// The system cannot wait for it.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await?;
        if let Some(mut pipe) = self.pipe.take() {
            // The watcher may have ended too; then nobody reads the line.
            let _nobody_listens = pipe.write_all(b"\n").await;
        }
        Ok(status)
    }

    /// Asks the server to stop, waits up to `patience`, sends the stronger signal, and finally kills it.
    ///
    /// # Errors
    /// The system cannot wait for it.
    pub async fn stop(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let [ask, insist] = self.stop.signals();
        for (signal, patience) in [(ask, patience), (insist, LAST_PATIENCE)] {
            self.signal(signal);
            self.signal(Signal::CONT);
            if let Ok(status) = timeout(patience, self.wait()).await {
                return status;
            }
            warn!(pid = self.pid(), ?signal, "child does not stop");
        }
        self.signal(Signal::KILL);
        self.wait().await
    }

    /// Gives away the end of the pipe that keeps the server alive. The server is asked to stop once every
    /// copy of the descriptor is closed; we no longer stop it.
    ///
    /// # Errors
    /// The server has ended, or the descriptor cannot be taken from the runtime.
    pub fn into_lifeline(mut self) -> io::Result<OwnedFd> {
        let pipe = self.pipe.take().ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.into_owned_fd()
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw)
        else {
            return; // it has ended and was waited for
        };
        // Our child was not waited for, so the process id is still its own. It may be a zombie.
        if let Err(error) = kill_process(pid, signal) {
            warn!(%error, ?pid, "cannot signal child");
        }
    }
}
