//! Carries out the file actions of a Revert and a Move.

use std::collections::BTreeSet;

use domain::{ErrorCode, RevertPaths, SessionError, SnapshotTree};
use history::Reverting;
use session_rules::{FilesPlan, MovePlan, Next, PutBack, RestoredFiles, storable};
use snapshots::Touched;
use tracing::warn;

use super::{Files, FilesError, changes};
use crate::drain::{Drain, Stop};

/// Returns the user's error for files that could not be captured or restored.
fn failed(error: &FilesError) -> SessionError {
    SessionError {
        code: ErrorCode::WorkspaceSnapshotFailed.into(),
        message: format!(
            "the workspace's files could not be captured or put back: {error}; try again"
        ),
    }
}

impl Drain<'_> {
    /// Carries out a Revert's action on files, up to the boundary.
    pub(crate) async fn revert_files(&mut self, plan: FilesPlan) -> Result<Next, Stop> {
        let next = match plan {
            FilesPlan::Capture => {
                let original = self.capture_all().await?;
                let observed = self.observe(&[]).await;
                self.write(|rules, draft| rules.captured(draft, original.clone(), &observed))
                    .await?
            }
            FilesPlan::Restore(steps) => {
                let restored = self.put_back(&steps).await?;
                let observed = self.observe(&[]).await;
                self.write(|rules, draft| rules.restored(draft, restored.clone(), &observed))
                    .await?
            }
        };
        self.written(&next);
        Ok(next)
    }

    /// Moves the session. Files that are copied are captured first.
    pub(crate) async fn move_on(&mut self, plan: MovePlan) -> Result<Next, Stop> {
        let carried = if plan.carry { self.capture_all().await?.map(Some) } else { Ok(None) };
        let observed = self.observe(&[]).await;
        let next =
            self.write(|rules, draft| rules.moved(draft, plan, carried.clone(), &observed)).await?;
        self.written(&next);
        Ok(next)
    }

    /// Captures all files. The next write has the row.
    async fn capture_all(&mut self) -> Result<Result<SnapshotTree, SessionError>, Stop> {
        let Some(files) = self.files.held().cloned() else {
            return Ok(Err(failed(&FilesError::Off)));
        };
        self.finish_capture().await?;
        self.files.around(Touched::Anything);
        self.finish_capture().await?;
        let tree = if files.is_dirty() { Err(FilesError::Uncaptured) } else { files.tree().await };
        Ok(tree.and_then(|tree| tree.ok_or(FilesError::Uncaptured)).map_err(|error| failed(&error)))
    }

    /// Restores files, and returns the changes. The next write has the row of the result.
    async fn put_back(
        &mut self,
        steps: &[PutBack],
    ) -> Result<Result<RestoredFiles, SessionError>, Stop> {
        let Some(files) = self.files.held().cloned() else {
            return Ok(Err(failed(&FilesError::Off)));
        };
        self.finish_capture().await?;
        let done = restore(&files, steps).await;
        if done.is_err()
            && let Some(Reverting::Staging(staging)) = self.log.history().revert()
            && let Err(error) = files.put_back(&staging.original, all_paths(steps).as_ref()).await
        {
            warn!(
                error = &error as &dyn std::error::Error,
                "some files are put back and some are not"
            );
        }
        // Whatever the outcome is.
        self.files.around(Touched::Nothing);
        self.finish_capture().await?;
        let told = match done {
            Ok(left) => tell(&files, self.log.history().revert(), left).await,
            Err(error) => Err(error),
        };
        Ok(told.map_err(|error| {
            warn!(error = &error as &dyn std::error::Error, "files could not be put back");
            failed(&error)
        }))
    }
}

/// Restores trees, one step after the other. Returns the paths that were left alone.
async fn restore(files: &Files, steps: &[PutBack]) -> Result<BTreeSet<String>, FilesError> {
    let mut left = BTreeSet::new();
    for PutBack { tree, paths } in steps {
        left.extend(files.put_back(tree, paths.as_ref()).await?.left);
    }
    if !left.is_empty() {
        warn!(files = left.len(), "files that no snapshot has stay as they are");
    }
    Ok(left)
}

/// Returns the paths of all steps; `None` for everything.
fn all_paths(steps: &[PutBack]) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for step in steps {
        all.extend(step.paths.as_ref()?.iter().cloned());
    }
    Some(all)
}

/// Returns the changes of a Revert: the same list whoever has done it, and however often.
async fn tell(
    files: &Files,
    revert: Option<&Reverting>,
    left: BTreeSet<String>,
) -> Result<RestoredFiles, FilesError> {
    let Some(Reverting::Staging(staging)) = revert else { return Ok(RestoredFiles::default()) };
    let Some(target) = &staging.target else { return Ok(RestoredFiles::default()) };
    let paths = match &staging.paths {
        RevertPaths::All => None,
        RevertPaths::Only(paths) => Some(paths.iter().cloned().collect()),
    };
    let (files, more) = changes(&files.diff(&staging.original, target, paths.as_ref()).await?);
    let left = left.iter().map(|path| storable(path).into_owned()).collect();
    Ok(RestoredFiles { files, more, left })
}
