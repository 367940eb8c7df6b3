//! The state of a Location's files, as the log tells it.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{
    CallId, FencingToken, LeftFile, RevertPaths, Seq, SnapshotTree, ToolSettled, TurnId,
    WorkspaceRestored, WorkspaceSnapshotted,
};

use crate::CallState;

/// The most unsaved calls to remember; the newest stay. Where nothing is captured, their number has no end.
const MOST: usize = 256;

/// A committed Capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capture {
    /// Its number in the log.
    pub(crate) seq: Seq,
    /// The beginning of the turn whose calls caused it; its own number if no call did.
    pub(crate) began: Seq,
    /// The files.
    pub(crate) tree: SnapshotTree,
    /// The tree before it; `None` for the Location's first Capture.
    pub(crate) parent: Option<SnapshotTree>,
    /// Whether no call caused it.
    pub(crate) base: bool,
    /// The files that differ from `parent`, and directories with a trailing slash; `None` if more differ than are
    /// listed.
    pub(crate) paths: Option<Arc<[String]>>,
    /// Files that it left out.
    pub(crate) skipped: Arc<[LeftFile]>,
}

/// A settled call whose effects on files are in no committed Capture yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsaved {
    /// The call.
    pub call: CallId,
    /// Its turn.
    pub turn: TurnId,
    /// Its tool.
    pub tool: String,
    /// One line for people.
    pub title: String,
}

/// Everything except the Captures: small, and cheap to copy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) unsaved: Arc<Vec<Unsaved>>,
    /// Lost effects that the model does not know of yet.
    pub(crate) lost: Arc<Vec<Unsaved>>,
    /// Files that Captures left out: at most 256, the newest.
    pub(crate) skipped: Arc<Vec<LeftFile>>,
    /// Lost files that the model does not know of yet.
    pub(crate) lost_files: Arc<Vec<LeftFile>>,
    /// The token of the last restore of the files.
    pub(crate) restored: Option<FencingToken>,
    /// Captures up to this number, and their contents, belong to a Location that the session has left.
    pub(crate) since: Seq,
}

impl Capture {
    pub(crate) fn new(seq: Seq, began: Seq, taken: &WorkspaceSnapshotted) -> Self {
        let files = taken.files.iter().map(|file| file.path.clone());
        let paths = files.chain(taken.directories.iter().map(|path| format!("{path}/")));
        Self {
            seq,
            began,
            tree: taken.tree.clone(),
            parent: taken.parent.clone(),
            base: taken.base,
            paths: (taken.more == 0).then(|| paths.collect()),
            skipped: taken.skipped.clone().into(),
        }
    }
}

impl Files {
    /// Adds a call that has its result. Even a failed call may have changed files before it failed.
    pub(crate) fn settled(&mut self, seq: Seq, call: &CallState, settled: &ToolSettled) {
        if !call.may_have_changed_files() || seq <= self.since {
            return;
        }
        let unsaved = Arc::make_mut(&mut self.unsaved);
        if unsaved.len() == MOST {
            unsaved.remove(0);
        }
        unsaved.push(Unsaved {
            call: settled.call.clone(),
            turn: settled.turn.clone(),
            tool: call.intent.tool.clone(),
            title: settled.title.clone(),
        });
    }

    /// Clears the unsaved calls when a Capture is committed that began after all of them had their results.
    pub(crate) fn saved(&mut self) {
        self.unsaved = Arc::default();
    }

    /// Adds files that a Capture left out.
    pub(crate) fn left_out(&mut self, files: &[LeftFile]) {
        for file in files {
            let skipped = Arc::make_mut(&mut self.skipped);
            skipped.retain(|known| known.path != file.path);
            if skipped.len() == MOST {
                skipped.remove(0);
            }
            skipped.push(file.clone());
        }
    }

    pub(crate) fn restored(&mut self, restored: &WorkspaceRestored) {
        self.restored = Some(restored.token);
        let lost: BTreeSet<&CallId> = restored.lost.iter().collect();
        let gone = self.unsaved.iter().filter(|unsaved| lost.contains(&unsaved.call)).cloned();
        if !lost.is_empty() {
            Arc::make_mut(&mut self.lost).extend(gone.collect::<Vec<_>>());
        }
        if !restored.lost_files.is_empty() {
            Arc::make_mut(&mut self.lost_files).extend(restored.lost_files.iter().cloned());
        }
        self.skipped = Arc::default();
        self.saved();
    }

    /// Forgets the files: from `seq` on the session has others.
    pub(crate) fn left(&mut self, seq: Seq) {
        *self = Self { since: self.since.max(seq), ..Self::default() };
    }
}

/// Returns the files before the event `seq`, as far as Captures show them.
pub(crate) fn tree_before(captures: &[Capture], since: Seq, seq: Seq) -> Option<&SnapshotTree> {
    let ours = || captures.iter().filter(|capture| capture.seq > since);
    match ours().find(|capture| capture.began >= seq && !capture.base) {
        // Changes by others in between happened before that Capture.
        Some(next) => next.parent.as_ref(),
        None => ours().rfind(|capture| capture.began < seq).map(|capture| &capture.tree),
    }
}

/// Returns the files that Captures of the session's calls left out from the event `seq` on.
pub(crate) fn skipped_since(captures: &[Capture], since: Seq, seq: Seq) -> Vec<LeftFile> {
    let later = captures.iter().filter(|capture| capture.seq > since && capture.began >= seq);
    let mut files: Vec<LeftFile> = Vec::new();
    for file in later.filter(|capture| !capture.base).flat_map(|capture| capture.skipped.iter()) {
        files.retain(|known| known.path != file.path);
        files.push(file.clone());
    }
    files
}

/// Returns the files that the session's calls changed from the event `seq` on.
pub(crate) fn changed_since(captures: &[Capture], since: Seq, seq: Seq) -> RevertPaths {
    let later = captures.iter().filter(|capture| capture.seq > since && capture.began >= seq);
    let mut paths = BTreeSet::new();
    for capture in later.filter(|capture| !capture.base) {
        match &capture.paths {
            Some(more) => paths.extend(more.iter().cloned()),
            None => return RevertPaths::All,
        }
    }
    RevertPaths::Only(paths.into_iter().collect())
}
