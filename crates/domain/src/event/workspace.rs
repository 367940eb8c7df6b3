use serde::{Deserialize, Serialize};

use crate::{CallId, FencingToken, MessageId, Seq, SessionError, SnapshotTree, TurnId};

use super::{is_false, is_zero};

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileStatus {
    /// It is new.
    Added,
    /// Its content or its mode changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Below the Location's directory.
    pub path: String,
    /// What happened.
    pub status: FileStatus,
    /// Lines that are new.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub additions: i64,
    /// Lines that are gone.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletions: i64,
    /// A unified diff, as far as one is kept: at most 16 KiB, of text only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

/// A file of the workspace that a Capture or a Revert leaves as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftFile {
    /// Below the Location's directory.
    pub path: String,
    /// Why.
    pub why: LeftReason,
}

/// Why a file is left as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftReason {
    /// It is larger than a Workspace Snapshot keeps.
    TooLarge,
    /// It lies deeper than a Workspace Snapshot looks.
    TooDeep,
    /// It is a pipe, a socket or a device.
    Special,
    /// It may not be read.
    Unreadable,
    /// Something is there that no Workspace Snapshot has: somebody has changed it meanwhile.
    Changed,
}

/// Payload of `workspace.snapshotted`: a Capture whose pack is stored. With the tree itself for its `parent`, and no pack, it is an
/// earlier one once more: the files were looked at, and are as that one has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSnapshotted {
    /// The token under which it was taken.
    pub token: FencingToken,
    /// Its number under that token; a later one is greater.
    pub ordinal: i64,
    /// The files.
    pub tree: SnapshotTree,
    /// The tree before it; `None` for the Location's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SnapshotTree>,
    /// The blob with what this tree has and earlier ones had not; `None` when they have all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
    /// Bytes of that blob.
    pub bytes: i64,
    /// The turn whose calls were the reason for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// No call was the reason for it: the Location's first, or taken around a Revert.
    #[serde(default, skip_serializing_if = "is_false")]
    pub base: bool,
    /// What differs from `parent`, at most 1,000 files, in order of their paths.
    pub files: Vec<FileChange>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: i64,
    /// Empty directories that are new since `parent` or gone, at most 1,000, in order of their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<String>,
    /// Files that are in no tree, as far as they are new or were changed since an earlier Capture; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<LeftFile>,
}

/// Payload of `workspace.restored`: a worker with a disk of its own has made the Location's files anew, for this
/// session's first drain under its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRestored {
    /// The token under which it was done.
    pub token: FencingToken,
    /// What the files were made of; `None` when there was no Workspace Snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotTree>,
    /// Calls of the session whose effects on files are gone. The model is told in a notice, before its next turn.
    pub lost: Vec<CallId>,
    /// Files that were in no Workspace Snapshot, and are gone too, as far as the session knew of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_files: Vec<LeftFile>,
}

/// Payload of `revert.staging`: files are about to be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertStaging {
    /// The boundary message.
    pub message: MessageId,
    /// The log from this event on is reverted.
    pub from: Seq,
    /// The files as they were before any Revert that is not committed.
    pub original: SnapshotTree,
    /// The files as they were before the boundary message; `None` when no turn since has changed any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<SnapshotTree>,
    /// Which files are put back to `target`.
    pub paths: RevertPaths,
    /// Which files an earlier Revert had put back, and are put back to `original` unless `paths` has them.
    #[serde(default, skip_serializing_if = "RevertPaths::is_empty")]
    pub undone: RevertPaths,
    /// The Context Epoch that comes back once it is committed.
    pub back: RevertedTo,
}

/// Which files a Revert is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RevertPaths {
    /// All: more were changed than are listed.
    All,
    /// These, below the Location's directory, in their order and once each. One that ends with a slash is a directory
    /// without what is in it.
    Only(Vec<String>),
}

impl Default for RevertPaths {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl RevertPaths {
    /// Whether it is about none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(paths) if paths.is_empty())
    }
}

/// What the model had last been told of its context before a boundary message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RevertedTo {
    /// The Context Epoch; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i32>,
    /// Its Context Snapshot at that point, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Payload of `revert.staged`: the session stands before the boundary message, and can still be brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertStaged {
    /// The boundary message.
    pub message: MessageId,
    /// The log from this event on is reverted.
    pub from: Seq,
    /// The files as they were before; `None` when none were looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<SnapshotTree>,
    /// Which files were put back, and come back when it is cleared.
    #[serde(default, skip_serializing_if = "RevertPaths::is_empty")]
    pub paths: RevertPaths,
    /// What was put back: from how the files were to how they are, at most 1,000.
    pub files: Vec<FileChange>,
    /// How many more there are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: i64,
    /// Files that the reverted turns may have changed, and that are as those turns left them; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftFile>,
    /// The Context Epoch that comes back once it is committed.
    pub back: RevertedTo,
}

/// Payload of `revert.cleared`: nothing is reverted any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RevertCleared {
    /// Set when it could not be staged: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `revert.committed`: what was reverted never comes back. Repeats what was staged, so that it can be
/// written without a look-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertCommitted {
    /// The boundary message.
    pub message: MessageId,
    /// The log from this event on is reverted.
    pub from: Seq,
    /// The Context Epoch that is active again.
    pub back: RevertedTo,
}
