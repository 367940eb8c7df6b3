use schemars::JsonSchema;
use serde::Serialize;
use store::ProjectRow;

use super::session::TimeView;

/// A project, in a shape that stock clients also understand.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProjectView {
    id: String,
    worktree: String,
    time: TimeView,
    sandboxes: [String; 0],
    icon: IconView,
}

/// How clients draw a project without a picture.
#[derive(Debug, Serialize, JsonSchema)]
struct IconView {
    color: &'static str,
}

/// The colours that the released web client knows. It tries to set one for each project that has none.
const COLORS: [&str; 6] = ["pink", "mint", "orange", "purple", "cyan", "lime"];

impl IconView {
    /// Returns the icon of a directory: always the same.
    fn of(worktree: &str) -> Self {
        let sum: usize = worktree.bytes().map(usize::from).sum();
        Self { color: COLORS[sum % COLORS.len()] }
    }
}

impl From<ProjectRow> for ProjectView {
    fn from(row: ProjectRow) -> Self {
        let time = TimeView { updated: Some(row.created_ms), ..TimeView::created(row.created_ms) };
        let icon = IconView::of(&row.worktree);
        Self { id: row.id.into(), worktree: row.worktree, time, sandboxes: [], icon }
    }
}

impl ProjectView {
    /// Shows a directory that is not a project yet.
    pub(crate) fn unknown(worktree: String) -> Self {
        let time = TimeView::created(0);
        let icon = IconView::of(&worktree);
        Self { id: "global".to_owned(), worktree, time, sandboxes: [], icon }
    }
}
