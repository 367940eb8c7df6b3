//! The parts of repositories that a cell shows of its workspace, and whether they are still right for a command.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, statat};

use super::front::GitFront;
use super::open_workspace;
use crate::command::{Command, SandboxError};

/// The repositories that a cell keeps from its commands.
#[derive(Clone)]
pub(crate) struct KeptRepositories {
    /// The `.git` at the top, as its commands see it.
    pub(crate) front: Option<Arc<GitFront>>,
    /// The paths that were read-only when it was made.
    pub(crate) known: Identities,
}

impl KeptRepositories {
    /// Makes the `.git` like the person's own, for a command. The inner error says why this cell is not for the command: it
    /// would see what it should not, or its view cannot be made.
    pub(crate) async fn begin(
        &self,
        workspace: &Path,
        command: &Command,
    ) -> Result<Result<GitUse, String>, SandboxError> {
        if command.read_only.is_empty() {
            return Ok(Ok(GitUse::default()));
        }
        let (kept, path, paths) =
            (self.clone(), workspace.to_path_buf(), command.read_only.clone());
        blocking(move || {
            let now = open_workspace(&path).map_err(|error| error.to_string())?;
            let are_covered = identities(&now, &paths).iter().all(|it| kept.known.contains(it));
            if !are_covered {
                return Err("the repositories in it keep being changed".to_owned());
            }
            let Some(front) = kept.front else { return Ok(GitUse::default()) };
            let notes = front.begin().map_err(|error| format!("its view of .git: {error}"))?;
            Ok(GitUse { front: Some(front), notes })
        })
        .await
    }
}

/// A command that uses a front, until it is settled.
#[derive(Default)]
pub(crate) struct GitUse {
    front: Option<Arc<GitFront>>,
    /// Sentences about what it does not show.
    notes: Vec<String>,
}

impl GitUse {
    /// Puts back what the command has changed in its `.git`. Returns sentences about what was not, and about what it did not see.
    pub(crate) async fn settle(mut self) -> Result<Vec<String>, SandboxError> {
        let mut notes = std::mem::take(&mut self.notes);
        if let Some(front) = self.front.take() {
            notes.extend(blocking(move || front.end()).await?);
        }
        Ok(notes)
    }
}

impl Drop for GitUse {
    fn drop(&mut self) {
        if let Some(front) = &self.front {
            front.abandon();
        }
    }
}

/// Paths below a workspace, with their devices and inodes.
pub(crate) type Identities = BTreeSet<(PathBuf, Option<(u64, u64)>)>;

pub(crate) fn identities(workspace: &OwnedFd, paths: &[PathBuf]) -> Identities {
    let identity = |path: &PathBuf| {
        let stat = statat(workspace, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((stat.st_dev, stat.st_ino))
    };
    paths.iter().map(|path| (path.clone(), identity(path))).collect()
}

/// Returns what a cell shows read-only: all that the command may not change, but for a `.git` that has a front.
pub(crate) fn shown_read_only(command: &Command, has_front: bool) -> Vec<PathBuf> {
    let is_fronted = |path: &&PathBuf| has_front && *path == Path::new(".git");
    command.read_only.iter().filter(|path| !is_fronted(path)).cloned().collect()
}

/// Runs file work on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| SandboxError::System(error.into()))
}
