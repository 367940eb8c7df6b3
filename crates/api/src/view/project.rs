use serde::Serialize;
use store::ProjectRow;

use super::session::TimeView;

/// A project, in a shape that stock clients also understand.
#[derive(Debug, Serialize)]
pub(crate) struct ProjectView {
    id: String,
    worktree: String,
    time: TimeView,
    sandboxes: [String; 0],
}

impl From<ProjectRow> for ProjectView {
    fn from(row: ProjectRow) -> Self {
        let time = TimeView { updated: Some(row.created_ms), ..TimeView::created(row.created_ms) };
        Self { id: row.id.into(), worktree: row.worktree, time, sandboxes: [] }
    }
}

impl ProjectView {
    /// Shows a directory that is not a project yet.
    pub(crate) fn unknown(worktree: String) -> Self {
        let time = TimeView::created(0);
        Self { id: "global".to_owned(), worktree, time, sandboxes: [] }
    }
}
