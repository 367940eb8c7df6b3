//! One process of `dev-cluster`: its start, its end and its first answer.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use boot::{GuardedChild, GuardedCommand, StopSignal};

use crate::serve::ServeError;

/// How long a process may take until it first answers.
const START: Duration = Duration::from_secs(30);

/// One process of the cluster.
pub(super) struct Process {
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) url: String,
    pub(super) args: Vec<String>,
    /// Settings that a list of processes must not show to other users.
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) child: Option<GuardedChild>,
    pub(super) pid: u32,
    pub(super) ended: Option<std::time::Instant>,
}

impl Process {
    /// One that does not run yet.
    pub(super) fn new(
        name: String,
        role: &'static str,
        url: String,
        args: Vec<String>,
        variables: Vec<(&'static str, String)>,
    ) -> Self {
        let (child, pid, ended) = (None, 0, None);
        Self { name, role, url, args, variables, child, pid, ended }
    }

    /// Starts it. Its output goes into its own file in `logs`.
    ///
    /// # Errors
    /// When that file or the process cannot be made.
    pub(super) fn start(&mut self, logs: &Path) -> Result<(), ServeError> {
        let path = logs.join(format!("{}.log", self.name));
        let open = || File::options().create(true).append(true).mode(0o600).open(&path);
        let (out, err) = open().and_then(|out| Ok((out, open()?))).map_err(|error| {
            ServeError::stopped(&format!("{} cannot be written", path.display()), &error)
        })?;
        let this = std::env::current_exe()
            .map_err(|error| ServeError::stopped("this executable cannot be found", &error))?;
        let mut command = GuardedCommand::new(&this, StopSignal::Terminate);
        command.command().args(&self.args).envs(self.variables.iter().cloned());
        command.command().stdout(out).stderr(err);
        let child = command.spawn()?;
        self.pid = child.pid().unwrap_or_default();
        self.child = Some(child);
        self.ended = None;
        Ok(())
    }

    /// Notes that the process has exited by itself, and returns its status, once.
    pub(super) async fn has_ended(&mut self) -> Option<std::io::Result<ExitStatus>> {
        let child = self.child.as_mut()?;
        let status = tokio::time::timeout(Duration::ZERO, child.wait()).await.ok()?;
        self.child = None;
        self.ended = Some(std::time::Instant::now());
        Some(status)
    }
}

/// Describes the end of a process for people.
pub(super) fn ended(status: &std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with exit code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(error) => format!("ended ({error})"),
    }
}

/// Waits until `url` answers with success.
///
/// # Errors
/// It does not in time.
pub(super) async fn answers(url: &str) -> Result<(), ServeError> {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(1))
        .no_proxy()
        .build()
        .map_err(|error| ServeError::stopped("cannot ask the processes", &error))?;
    let ready = async {
        loop {
            if client.get(url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(START, ready).await.map_err(|_| {
        ServeError::Stopped(format!(
            "{url} did not answer within {} s; see the logs in the data folder",
            START.as_secs()
        ))
    })
}
