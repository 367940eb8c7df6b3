use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CallId, FencingToken, MessageId, Seq, SessionError, SnapshotTree, TurnId, words};

use super::{is_false, is_zero};

words! {
    /// The kind of change of a file.
    pub enum FileStatus {
        /// It is new.
        Added = "added",
        /// Its content or its mode changed.
        Modified = "modified",
        /// It is gone.
        Deleted = "deleted",
    }
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileChange {
    /// The path below the Location's directory.
    pub path: String,
    /// The kind of change.
    pub status: FileStatus,
    /// The number of added lines.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub additions: i64,
    /// The number of removed lines.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deletions: i64,
    /// A unified diff of at most 16 KiB, for text only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

/// A workspace file that a Capture or a Revert leaves alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftFile {
    /// The path below the Location's directory.
    pub path: String,
    /// The reason.
    pub why: LeftReason,
}

words! {
    /// The reason why a file is left alone.
    pub enum LeftReason {
        /// It is larger than a Workspace Snapshot keeps.
        TooLarge = "too-large",
        /// It is deeper than a Workspace Snapshot looks.
        TooDeep = "too-deep",
        /// It is a pipe, a socket or a device.
        Special = "special",
        /// It cannot be read.
        Unreadable = "unreadable",
        /// Its content is in no Workspace Snapshot, because somebody has changed it meanwhile.
        Changed = "changed",
    }
}

/// Payload of `workspace.snapshotted`: a Capture whose pack is stored. If `parent` equals `tree` and there is no
/// pack, it confirms an earlier Capture: the files were checked and have not changed.
/// earlier one once more: the files were looked at, and are as that one has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceSnapshotted {
    /// The token of the worker that took it.
    pub token: FencingToken,
    /// Its number under that token. Later ones are greater.
    pub ordinal: i64,
    /// The files.
    pub tree: SnapshotTree,
    /// The tree before it; `None` for the Location's first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SnapshotTree>,
    /// The blob with the content that earlier trees do not have; `None` if they have everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
    /// The size of that blob, in bytes.
    pub bytes: i64,
    /// The turn whose calls caused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Whether no call caused it: the Location's first Capture, or one around a Revert.
    #[serde(default, skip_serializing_if = "is_false")]
    pub base: bool,
    /// The changed files since `parent`, at most 1,000, ordered by path.
    pub files: Vec<FileChange>,
    /// The number of further changed files.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: i64,
    /// Empty directories that were added or removed since `parent`, at most 1,000, ordered by path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<String>,
    /// Files that are in no tree, if they are new or have changed since an earlier Capture; at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<LeftFile>,
}

/// Payload of `workspace.restored`: a worker with its own disk has restored the Location's files, for this session's
/// first drain under its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceRestored {
    /// The token of the worker that did it.
    pub token: FencingToken,
    /// The restored tree; `None` if there was no Workspace Snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotTree>,
    /// Calls of the session whose effects on files are lost. A notice tells the model before its next turn.
    pub lost: Vec<CallId>,
    /// Lost files that were in no Workspace Snapshot, as far as the session knew of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_files: Vec<LeftFile>,
}

/// Payload of `revert.staging`: files are about to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevertStaging {
    /// The boundary message.
    pub message: MessageId,
    /// The first reverted event of the log.
    pub from: Seq,
    /// The files before any Revert that is not committed.
    pub original: SnapshotTree,
    /// The files before the boundary message; `None` if no turn since has changed any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<SnapshotTree>,
    /// The files to restore from `target`.
    pub paths: RevertPaths,
    /// The files that an earlier Revert has restored. They come back from `original`, unless `paths` has them.
    #[serde(default, skip_serializing_if = "RevertPaths::is_empty")]
    pub undone: RevertPaths,
    /// The Context Epoch that becomes active again with the commit.
    pub back: RevertedTo,
}

/// The files of a Revert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RevertPaths {
    /// All files, because more were changed than are listed.
    All,
    /// These files, as ordered unique paths below the Location's directory. A path with a trailing slash is a
    /// directory without its contents.
    Only(Vec<String>),
}

impl Default for RevertPaths {
    fn default() -> Self {
        Self::Only(Vec::new())
    }
}

impl RevertPaths {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Only(paths) if paths.is_empty())
    }
}

/// The context that the model had last received before a boundary message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RevertedTo {
    /// The Context Epoch; `None` before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i32>,
    /// Its Context Snapshot at that point, as JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
}

/// Payload of `revert.staged`: the session is back before the boundary message, and the Revert can be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevertStaged {
    /// The boundary message.
    pub message: MessageId,
    /// The first reverted event of the log.
    pub from: Seq,
    /// The files before the Revert; `None` if no files were involved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<SnapshotTree>,
    /// The restored files, which come back when the Revert is undone.
    #[serde(default, skip_serializing_if = "RevertPaths::is_empty")]
    pub paths: RevertPaths,
    /// The changes by the Revert, at most 1,000.
    pub files: Vec<FileChange>,
    /// The number of further changes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: i64,
    /// Files that the reverted turns may have changed and that the Revert left alone; at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<LeftFile>,
    /// The Context Epoch that becomes active again with the commit.
    pub back: RevertedTo,
}

/// Payload of `revert.cleared`: nothing is reverted any more.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RevertCleared {
    /// The reason why it could not be staged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `revert.committed`: the reverted part never comes back. It repeats facts of `revert.staged`, so that
/// writing it needs no look-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevertCommitted {
    /// The boundary message.
    pub message: MessageId,
    /// The first reverted event of the log.
    pub from: Seq,
    /// The Context Epoch that is active again.
    pub back: RevertedTo,
}
