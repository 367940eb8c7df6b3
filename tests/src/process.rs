//! A server as a child process that cannot outlive its test.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use boot::{GuardedChild, GuardedCommand, StopSignal};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::time::timeout;

use crate::world::PROFILE_VARIABLE;

/// The number of log lines that a failed test shows.
const SHOWN_LINES: usize = 80;

/// A running server with its output in files.
///
/// Dropping it while it runs kills its process group and shows the end of its output, so that a failed test says why.
/// If the test's process dies, a watcher ends the server.
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
    /// Starts `program`, and appends its output to `NAME.out` and `NAME.err` in `logs`. Removes variables that our
    /// executable would read, then adds `environment`.
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

    /// Returns its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns its standard output so far, with that of earlier processes of this name.
    #[must_use]
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.out).unwrap_or_default()
    }

    /// Returns its standard error so far, with that of earlier processes of this name.
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

    /// Waits at most `limit` for its end.
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

    /// Returns whether it runs.
    pub async fn is_running(&mut self) -> bool {
        self.wait(Duration::from_millis(1)).await.is_err()
    }

    /// Returns the end of its output, for people.
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
            // It was not waited for, so the id is still its own, although it may have ended.
            let _ended_already = kill_process_group(pid, Signal::KILL);
            let _ended_already = kill_process(pid, Signal::KILL);
        }
        let _stderr_is_gone = write!(std::io::stderr(), "{}", self.tail());
    }
}

/// Removes every variable that our executable, or a stock client, would read as a setting.
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

/// Runs a program to its end.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<Output> {
    let output = Command::new(program)
        .args(args)
        .output()
        .with_context(|| format!("{program} cannot be run; install it"))?;
    ensure!(
        output.status.success(),
        "`{program} {}` failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}
