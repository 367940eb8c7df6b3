//! Runs git's commands in cells.

use std::path::Path;
use std::time::Duration;

use sandbox::{
    Cell, Command, DiskShare, End, HiddenPaths, LiveOutput, LocationLock, Outcome, Reach,
    SandboxError,
};
use tokio_util::sync::CancellationToken;
use workspaces::Git;

use super::{Fault, Fill, Fills};

/// The longest time for a command that reads or writes a whole repository.
pub(super) const LONG: Duration = Duration::from_secs(20 * 60);
/// The most bytes of output that are kept, at the beginning and the end each.
const KEEP: usize = 4 * 1024;

/// Where a command runs: a directory that is all it sees of the service.
pub(super) struct Bench<'a> {
    pub(super) name: String,
    pub(super) directory: &'a Path,
    pub(super) lock: Option<LocationLock>,
}

impl Fill<'_> {
    /// Runs a command in the Location's directory.
    pub(super) async fn run(
        &self,
        stage: &str,
        git: Git,
        timeout: Duration,
    ) -> Result<String, Fault> {
        let name = format!("fill {}", self.at.location);
        let bench = Bench { name, directory: &self.root, lock: self.lock.clone() };
        run(self.fills, &bench, stage, git, timeout).await
    }
}

/// Runs a command and returns its output.
pub(super) async fn run(
    fills: &Fills,
    bench: &Bench<'_>,
    stage: &str,
    git: Git,
    timeout: Duration,
) -> Result<String, Fault> {
    let command = Command {
        program: git.program.into(),
        args: git.args.into_iter().map(Into::into).collect(),
        directory: bench.directory.to_path_buf(),
        env: git.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
        timeout,
        keep_bytes: KEEP,
        lock: bench.lock.clone(),
        cell: Cell {
            name: bench.name.clone(),
            workspace: Some(bench.directory.to_path_buf()),
            shown: Some("/workspace".into()),
            protect: false,
            network: Reach::None,
            hidden: HiddenPaths::default(),
        },
        outputs: Vec::new(),
        share: DiskShare::default(),
        read_only: Vec::new(),
        live: LiveOutput::default(),
    };
    let outcome = fills.sandbox.run(command, &CancellationToken::new()).await;
    let outcome = outcome.map_err(|error| unrun(stage, &error))?;
    let said = format!("{}{}", outcome.output.head, outcome.output.tail);
    if outcome.end == End::Exited(0) { Ok(said) } else { Err(failed(stage, &outcome, &said)) }
}

fn unrun(stage: &str, error: &SandboxError) -> Fault {
    match error {
        SandboxError::Superseded { .. } => Fault::Store(store::StoreError::Superseded),
        SandboxError::Refused(why) => {
            Fault::ends("no_sandbox", format!("{stage}: git runs in the sandbox only, and {why}"))
        }
        SandboxError::NotStarted(_)
        | SandboxError::NotMade(_)
        | SandboxError::SupervisorLost
        | SandboxError::Unkillable(_)
        | SandboxError::System(_) => {
            Fault::later(format!("{stage}: git could not be run: {error}"))
        }
    }
}

fn failed(stage: &str, outcome: &Outcome, said: &str) -> Fault {
    if let Some(limit) = outcome.limits.first() {
        let text = format!(
            "{stage}: git met a limit of this service ({limit}); a smaller repository would fit"
        );
        return Fault::ends("limit", text);
    }
    let tail: Vec<&str> =
        said.lines().filter(|line| !line.trim().is_empty()).rev().take(3).collect();
    let tail: String = tail.into_iter().rev().collect::<Vec<_>>().join("; ");
    match outcome.end {
        End::TimedOut => Fault::ends(
            "too_slow",
            format!("{stage}: git did not end in time; a smaller repository would"),
        ),
        End::Cancelled => Fault::later(format!("{stage}: git was stopped")),
        End::Signaled(signal) => Fault::later(format!("{stage}: git was ended by signal {signal}")),
        End::Exited(_) | End::OverLimit => {
            Fault::ends("git_refused", format!("{stage}: git said: {tail}"))
        }
    }
}
