//! What the log says of a Location's files.

use std::collections::BTreeSet;
use std::sync::Arc;

use domain::{
    CallId, FencingToken, LeftFile, RevertPaths, Seq, SnapshotTree, ToolSettled, TurnId,
    WorkspaceRestored, WorkspaceSnapshotted,
};

use crate::CallState;

/// Calls that are remembered as unsaved: of more, the newest. Where nothing is captured there is no end of them.
const MOST: usize = 256;

/// A Capture that is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capture {
    /// Its place in the log.
    pub(crate) seq: Seq,
    /// Where the turn began whose calls were the reason for it; its own place when none were.
    pub(crate) began: Seq,
    /// The files.
    pub(crate) tree: SnapshotTree,
    /// The tree before it; `None` for the Location's first.
    pub(crate) parent: Option<SnapshotTree>,
    /// No call was the reason for it.
    pub(crate) base: bool,
    /// The files that differ from `parent`, and directories with a slash at their end; `None` when more do than are
    /// listed.
    pub(crate) paths: Option<Arc<[String]>>,
    /// Files that it has left out.
    pub(crate) skipped: Arc<[LeftFile]>,
}

/// A settled call of which no committed Capture says that it has its effects on files.
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

/// All of it but the Captures: little, and cheap to copy.
#[derive(Debug, Clone, Default)]
pub(crate) struct Files {
    pub(crate) unsaved: Arc<Vec<Unsaved>>,
    /// Effects that are gone, and that the model has not been told of.
    pub(crate) lost: Arc<Vec<Unsaved>>,
    /// Files that Captures have left out: at most 256, the newest.
    pub(crate) skipped: Arc<Vec<LeftFile>>,
    /// Those that are gone, and that the model has not been told of.
    pub(crate) lost_files: Arc<Vec<LeftFile>>,
    /// The token under which the files were made anew last.
    pub(crate) restored: Option<FencingToken>,
    /// Captures up to here, and what they have, are of a Location that is not the session's own any more.
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
    /// A call has its result. Whether it failed says nothing of what it has changed until then.
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

    /// A Capture is committed: it was begun when all of these had their results.
    pub(crate) fn saved(&mut self) {
        self.unsaved = Arc::default();
    }

    /// A Capture has left these files out.
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

    /// The session's files are others from `seq` on.
    pub(crate) fn left(&mut self, seq: Seq) {
        *self = Self { since: self.since.max(seq), ..Self::default() };
    }
}

/// The files as they were before the event `seq`, as far as Captures tell.
pub(crate) fn tree_before(captures: &[Capture], since: Seq, seq: Seq) -> Option<&SnapshotTree> {
    let ours = || captures.iter().filter(|capture| capture.seq > since);
    match ours().find(|capture| capture.began >= seq && !capture.base) {
        // What others have changed in between was changed before it.
        Some(next) => next.parent.as_ref(),
        None => ours().rfind(|capture| capture.began < seq).map(|capture| &capture.tree),
    }
}

/// The files that Captures of the session's calls have left out from the event `seq` on.
pub(crate) fn skipped_since(captures: &[Capture], since: Seq, seq: Seq) -> Vec<LeftFile> {
    let later = captures.iter().filter(|capture| capture.seq > since && capture.began >= seq);
    let mut files: Vec<LeftFile> = Vec::new();
    for file in later.filter(|capture| !capture.base).flat_map(|capture| capture.skipped.iter()) {
        files.retain(|known| known.path != file.path);
        files.push(file.clone());
    }
    files
}

/// The files that the session's calls have changed from the event `seq` on.
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
