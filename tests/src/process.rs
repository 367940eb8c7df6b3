//! A server as a child process that cannot outlive its test.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use boot::{GuardedChild, GuardedCommand, StopSignal};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::time::timeout;

use crate::world::PROFILE_VARIABLE;

/// How many lines of a log are shown when a test fails.
const SHOWN_LINES: usize = 80;

/// A running server with its output in files.
///
/// Dropped while it runs, it is killed with its process group, and the end of its output is shown: that is
/// how a test that fails tells why. If the test's process dies, a watcher ends the server.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: GuardedChild,
    pid: u32,
    out: PathBuf,
    err: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `program`. Its output goes to `NAME.out` and `NAME.err` in `logs`, appended. What people may
    /// have in their environment for our executable is taken out; `environment` is put in.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        name: &str,
        program: &Path,
        args: &[String],
        environment: &[(String, String)],
        logs: &Path,
    ) -> Result<Self> {
        let [out, err] = ["out", "err"].map(|kind| logs.join(format!("{name}.{kind}")));
        let open = |path: &Path| File::options().create(true).append(true).open(path);
        let mut guarded = GuardedCommand::new(program, StopSignal::Terminate);
        let command = guarded.command();
        command.args(args).stdout(open(&out)?).stderr(open(&err)?).current_dir(logs);
        without_our_settings(command);
        command.envs(environment.iter().cloned());
        let child =
            guarded.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.pid().context("a child that was just started has a process id")?;
        Ok(Self { name: name.to_owned(), child, pid, out, err, ended: None })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it has printed on standard output so far, earlier processes of this name included.
    #[must_use]
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// What it has printed on standard error so far, earlier processes of this name included.
    #[must_use]
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.err).unwrap_or_default()
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.pid().context("it has ended")?;
        kill_process(known(pid)?, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Waits for its end, at most `limit`.
    ///
    /// # Errors
    /// When it still runs then.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        if let Some(status) = self.ended {
            return Ok(status);
        }
        let status = timeout(limit, self.child.wait())
            .await
            .map_err(|_| anyhow!("{} still runs after {} s", self.name, limit.as_secs()))??;
        self.ended = Some(status);
        Ok(status)
    }

    /// Whether it runs.
    pub async fn is_running(&mut self) -> bool {
        self.wait(Duration::from_millis(1)).await.is_err()
    }

    /// The end of its output, for people.
    #[must_use]
    pub fn tail(&self) -> String {
        let mut shown = String::new();
        for (kind, text) in [("stdout", self.stdout()), ("stderr", self.stderr())] {
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(SHOWN_LINES);
            shown.push_str(&format!("--- {} of {} ---\n", kind, self.name));
            shown.push_str(&lines[from..].join("\n"));
            shown.push('\n');
        }
        shown
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if let Some(pid) = self.child.pid().and_then(|pid| known(pid).ok()) {
            // It was not waited for, so the id is still its own; it may have ended all the same.
            let _ended_already = kill_process_group(pid, Signal::KILL);
            let _ended_already = kill_process(pid, Signal::KILL);
        }
        let _stderr_is_gone = write!(std::io::stderr(), "{}", self.tail());
    }
}

/// Takes every variable out that our executable, or a stock client, would read as a setting.
pub(crate) fn without_our_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let ours = ["OPENCODE", "OPENAI_", "OC_", "RUST_LOG"];
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    // Nobody's own client profile is read or written.
    command.env(PROFILE_VARIABLE, "/dev/null/profile.toml");
}

pub(crate) fn known(pid: u32) -> Result<Pid> {
    let raw = i32::try_from(pid)?;
    Pid::from_raw(raw).with_context(|| format!("{pid} is no process id"))
}
