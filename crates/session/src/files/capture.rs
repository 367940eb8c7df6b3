use domain::{FileChange, FileStatus, SnapshotTree, TurnId, WorkspaceSnapshotted};
use session_rules::storable;
use snapshots::{Captured, ChangeStatus, FileChanges, TreeId};

use super::Files;

/// A tree whose pack is stored and whose row is not written yet. Dropped, its changes are the next capture's to tell.
pub(crate) struct Capture {
    files: Files,
    captured: Option<Captured>,
}

impl Capture {
    pub(super) fn new(files: Files, captured: Captured) -> Self {
        Self { files, captured: Some(captured) }
    }

    /// The event whose row it is. `turn`: the turn whose calls were the reason for it, if any were.
    pub(crate) fn event(&self, turn: Option<TurnId>) -> Option<WorkspaceSnapshotted> {
        let captured = self.captured.as_ref()?;
        let (files, more) = changes(&captured.changes);
        Some(WorkspaceSnapshotted {
            token: captured.token,
            ordinal: captured.ordinal,
            tree: tree(&captured.tree),
            parent: captured.parent.as_ref().map(tree),
            pack: captured.pack.clone(),
            bytes: count(captured.bytes),
            base: turn.is_none(),
            turn,
            files,
            more,
        })
    }

    /// The row is committed.
    pub(crate) fn written(mut self) {
        if let Some(captured) = self.captured.take() {
            self.files.ended(captured, true);
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(captured) = self.captured.take() {
            self.files.ended(captured, false);
        }
    }
}

/// A tree as events name it.
pub(crate) fn tree(tree: &TreeId) -> SnapshotTree {
    SnapshotTree::try_from(tree.to_string()).expect("a tree's id prints as 64 hex digits")
}

/// Changes as events tell them, and how many more there are.
pub(crate) fn changes(changes: &FileChanges) -> (Vec<FileChange>, i64) {
    let told = |change: &snapshots::FileChange| FileChange {
        path: change.path.clone(),
        status: match change.status {
            ChangeStatus::Added => FileStatus::Added,
            ChangeStatus::Modified => FileStatus::Modified,
            ChangeStatus::Deleted => FileStatus::Deleted,
        },
        additions: count(change.additions),
        deletions: count(change.deletions),
        patch: change.patch.as_deref().map(|patch| storable(patch).into_owned()),
    };
    let more = i64::try_from(changes.more).unwrap_or(i64::MAX);
    (changes.files.iter().map(told).collect(), more)
}

fn count(of: u64) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
