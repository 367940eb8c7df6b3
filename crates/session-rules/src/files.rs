//! What a drain says of files that it finds on a disk of its own.

use domain::{NoticeKind, WorkspaceRestored};

use crate::draft::Draft;
use crate::rules::{Rules, WorkspaceState};
use crate::settle::notice;
use crate::texts;

impl Rules<'_> {
    /// The session's first drain under a token whose holder has made the files anew: which effects are gone.
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

/// Tells the model, before its next turn, which effects and files are gone.
pub(crate) fn tell_lost(draft: &mut Draft<'_>) {
    let history = draft.history();
    if !history.lost().is_empty() || !history.lost_files().is_empty() {
        let text = texts::files_lost(history.lost(), history.lost_files());
        notice(draft, NoticeKind::FilesLost, &text);
    }
}
