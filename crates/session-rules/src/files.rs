//! Events about files that were restored on the worker's own disk.

use domain::{NoticeKind, WorkspaceRestored};

use crate::draft::Draft;
use crate::rules::{Rules, WorkspaceState};
use crate::settle::notice;
use crate::texts;

impl Rules<'_> {
    /// Writes which effects are lost, in the session's first drain under a token whose holder has restored the files.
    pub(crate) fn note_restored(&self, draft: &mut Draft<'_>) {
        let WorkspaceState::Restored { token, tree } = self.workspace else { return };
        if draft.history().restored() == Some(token) {
            return;
        }
        let lost = draft.history().unsaved().iter().map(|unsaved| unsaved.call.clone()).collect();
        let lost_files = draft.history().skipped().to_vec();
        draft.push(WorkspaceRestored { token, tree: tree.cloned(), lost, lost_files });
    }
}

/// Tells the model, before its next turn, which effects and files are lost.
pub(crate) fn tell_lost(draft: &mut Draft<'_>) {
    let history = draft.history();
    if !history.lost().is_empty() || !history.lost_files().is_empty() {
        let text = texts::files_lost(history.lost(), history.lost_files());
        notice(draft, NoticeKind::FilesLost, &text);
    }
}
