use domain::{
    FencingToken, FileChange, FileStatus, LeftFile, LeftReason, SnapshotTree, TurnId,
    WorkspaceSnapshotted,
};
use session_rules::storable;
use snapshots::{Captured, ChangeStatus, FileChanges, PackRef, Skipped, TreeId, Why};

use super::Files;

/// The result of a look at the files.
pub(crate) enum Looked {
    /// They have changed, and the pack is stored.
    Changed(Captured),
    /// They are as in an earlier capture whose row is written.
    AsBefore(Recorded),
}

/// A capture whose row is written.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(super) token: FencingToken,
    pub(super) ordinal: i64,
    pub(super) tree: TreeId,
}

impl Recorded {
    pub(super) fn of(row: &PackRef) -> Self {
        Self { token: row.token, ordinal: row.ordinal, tree: row.tree }
    }
}

/// The result of a look that is not written yet. If it is dropped unwritten, the next capture has its changes.
pub(crate) struct Capture {
    files: Files,
    looked: Option<Looked>,
}

impl Capture {
    pub(super) fn new(files: Files, looked: Looked) -> Self {
        Self { files, looked: Some(looked) }
    }

    /// Returns whether it has changes that need a row.
    pub(crate) fn has_changes(&self) -> bool {
        matches!(self.looked, Some(Looked::Changed(_)))
    }

    /// Returns the event for the capture. `turn` is the turn whose calls caused it, if any did. Unchanged files
    /// repeat the capture that has them.
    pub(crate) fn event(&self, turn: Option<TurnId>) -> Option<WorkspaceSnapshotted> {
        let base = turn.is_none();
        Some(match self.looked.as_ref()? {
            Looked::Changed(captured) => {
                let (files, more) = changes(&captured.changes);
                WorkspaceSnapshotted {
                    token: captured.token,
                    ordinal: captured.ordinal,
                    tree: tree(&captured.tree),
                    parent: captured.parent.as_ref().map(tree),
                    pack: captured.pack.clone(),
                    bytes: count(captured.bytes),
                    base,
                    turn,
                    files,
                    more,
                    directories: directories(&captured.changes),
                    skipped: skipped(&captured.skipped),
                }
            }
            Looked::AsBefore(recorded) => WorkspaceSnapshotted {
                token: recorded.token,
                ordinal: recorded.ordinal,
                tree: tree(&recorded.tree),
                parent: Some(tree(&recorded.tree)),
                pack: None,
                bytes: 0,
                base,
                turn,
                files: Vec::new(),
                more: 0,
                directories: Vec::new(),
                skipped: Vec::new(),
            },
        })
    }

    /// Notes that its row is committed.
    pub(crate) fn written(mut self) {
        self.ends(true);
    }

    fn ends(&mut self, written: bool) {
        match self.looked.take() {
            Some(Looked::Changed(captured)) => self.files.ended(captured, written),
            Some(Looked::AsBefore(_)) | None => {}
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.ends(false);
    }
}

/// Returns a tree's name in events.
pub(crate) fn tree(tree: &TreeId) -> SnapshotTree {
    SnapshotTree::try_from(tree.to_string()).expect("a tree's id prints as 64 hex digits")
}

/// Returns changes in the form of events, and the number of further ones.
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

fn directories(changes: &FileChanges) -> Vec<String> {
    changes.directories.iter().map(|path| storable(path).into_owned()).collect()
}

fn skipped(skipped: &Skipped) -> Vec<LeftFile> {
    let told = |(path, why): &(String, Why)| LeftFile {
        path: storable(path).into_owned(),
        why: match why {
            Why::TooLarge => LeftReason::TooLarge,
            Why::TooDeep => LeftReason::TooDeep,
            Why::Special => LeftReason::Special,
            Why::Unreadable => LeftReason::Unreadable,
        },
    };
    skipped.first.iter().map(told).collect()
}

fn count(of: u64) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
