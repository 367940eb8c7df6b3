use schemars::JsonSchema;
use serde::Serialize;
use store::ProjectRow;
use workspaces::Address;

use super::session::TimeView;

/// A project, in a shape that stock clients also understand.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ProjectView {
    id: String,
    worktree: String,
    /// The name of a repository's project.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// `git` for the project of a repository, or of a git checkout on the service's machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    vcs: Option<&'static str>,
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
        Self::of(row.id.into(), row.worktree, time)
    }
}

/// Returns the name of a repository by its project's directory: the path at its server, or what somebody's folder is called.
fn repository_name(worktree: &str) -> Option<String> {
    if let Some(address) = Address::of_directory(worktree) {
        return address.ok().map(|address| address.path);
    }
    let sent = worktree.strip_prefix("/here/")?;
    Some(sent.rsplit_once('-').map_or(sent, |(name, _)| name).to_owned())
}

impl ProjectView {
    /// Shows a directory that is not a project yet.
    pub(crate) fn unknown(worktree: String) -> Self {
        Self::of("global".to_owned(), worktree, TimeView::created(0))
    }

    /// Says that the project's directory belongs to a git checkout.
    pub(crate) fn with_git(self) -> Self {
        Self { vcs: Some("git"), ..self }
    }

    fn of(id: String, worktree: String, time: TimeView) -> Self {
        let icon = IconView::of(&worktree);
        let name = repository_name(&worktree);
        let vcs = name.is_some().then_some("git");
        Self { id, worktree, name, vcs, time, sandboxes: [], icon }
    }
}
