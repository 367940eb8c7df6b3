//! The client subcommands, as people and scripts run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::executable::executable;
use crate::process::{known, without_our_settings};
use crate::world::{PROFILE_VARIABLE, World};

/// How long a client may take.
const LIMIT: Duration = Duration::from_secs(90);

/// The executable, with variables for the service's URL and key.
#[derive(Debug, Clone)]
pub struct Cli {
    program: PathBuf,
    environment: Vec<(&'static str, String)>,
    directory: PathBuf,
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Ended {
    /// Parses standard output as lines of JSON.
    ///
    /// # Errors
    /// When a line is not JSON.
    pub fn json_lines(&self) -> Result<Vec<Value>> {
        let read = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
        self.out.lines().map(read).collect()
    }

    /// Parses the last line of `run --json`.
    ///
    /// # Errors
    /// When there is no output.
    pub fn report(&self) -> Result<Value> {
        self.json_lines()?.pop().with_context(|| format!("no output; {}", self.err))
    }
}

impl Cli {
    /// Returns the command line for the service at `url`, with `key`.
    ///
    /// # Errors
    /// When there is no executable.
    pub fn new(url: &str, key: &str) -> Result<Self> {
        Self::with(vec![
            ("OPENCODE_CLOUD_URL", url.to_owned()),
            ("OPENCODE_CLOUD_KEY", key.to_owned()),
        ])
    }

    /// Returns a command line with only the client profile that services of this world write.
    ///
    /// # Errors
    /// When there is no executable.
    pub fn of_profile(world: &World) -> Result<Self> {
        Self::with(vec![(PROFILE_VARIABLE, world.profile().display().to_string())])
    }

    fn with(environment: Vec<(&'static str, String)>) -> Result<Self> {
        Ok(Self { program: executable()?, environment, directory: std::env::temp_dir() })
    }

    /// Changes the working directory.
    #[must_use]
    pub fn within(mut self, directory: &Path) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        without_our_settings(&mut command);
        command.args(args).current_dir(&self.directory);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it cannot be started, or does not end in time.
    pub async fn run(&self, args: &[&str]) -> Result<Ended> {
        finish(self.command(args), None).await
    }

    /// Like [`Cli::run`], with standard input.
    ///
    /// # Errors
    /// Those of [`Cli::run`].
    pub async fn run_with_input(&self, args: &[&str], input: &str) -> Result<Ended> {
        finish(self.command(args), Some(input)).await
    }

    /// Starts a command and leaves it running.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, args: &[&str]) -> Result<Running> {
        let mut command = tokio::process::Command::from(self.command(args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let out = child.stdout.take().context("a pipe")?;
        Ok(Running { child, lines: BufReader::new(out).lines(), out: String::new() })
    }
}

/// Runs a command to its end, with a deadline.
pub(crate) async fn finish(command: Command, input: Option<&str>) -> Result<Ended> {
    let mut command = tokio::process::Command::from(command);
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes()).await?;
    }
    let Ok(output) = timeout(LIMIT, child.wait_with_output()).await else {
        bail!("it still runs after {} s", LIMIT.as_secs());
    };
    let output = output?;
    let [out, err] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Ended { code: output.status.code(), out, err })
}

/// A running command. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    out: String,
}

impl Running {
    /// Reads its output until a line contains `text`.
    ///
    /// # Errors
    /// When no line does before its end, or in time.
    pub async fn until(&mut self, text: &str) -> Result<String> {
        let read = async {
            while let Some(line) = self.lines.next_line().await? {
                self.out.push_str(&line);
                self.out.push('\n');
                if line.contains(text) {
                    return Ok(line);
                }
            }
            bail!("it ended without `{text}`: {}", self.out)
        };
        timeout(LIMIT, read).await.with_context(|| format!("no `{text}` in time"))?
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(known(self.child.id().context("it has ended")?)?, signal)?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn end(mut self) -> Result<Ended> {
        let wait = async {
            while let Some(line) = self.lines.next_line().await? {
                self.out.push_str(&line);
                self.out.push('\n');
            }
            let mut err = String::new();
            if let Some(mut pipe) = self.child.stderr.take() {
                pipe.read_to_string(&mut err).await?;
            }
            let status = self.child.wait().await?;
            Ok(Ended { code: status.code(), out: self.out, err })
        };
        timeout(LIMIT, wait).await.context("it does not end")?
    }
}
