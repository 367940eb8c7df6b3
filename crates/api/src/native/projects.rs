use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use store::ProjectRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::extract::{Body, CanPrompt, CanRead, Params};
use crate::resolve::{self, workspace};
use crate::view::TimeView;

/// A project, in the shape that stock clients know too.
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

pub(super) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Json<Vec<ProjectView>>, ApiError> {
    let rows = state.store().projects(access.org).await?;
    Ok(Json(rows.into_iter().map(Into::into).collect()))
}

impl ProjectView {
    /// A directory that is no project yet, as stock clients know it.
    pub(crate) fn unknown(worktree: String) -> Self {
        let time = TimeView::created(0);
        Self { id: "global".to_owned(), worktree, time, sandboxes: [] }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Directory {
    directory: Option<String>,
}

/// The project of a directory, made when it is new. Without a directory, the managed workspace.
pub(crate) async fn init(
    access: CanPrompt,
    State(state): State<ApiState>,
    Params(query): Params<Directory>,
    Body(body): Body<Directory>,
) -> Result<Json<ProjectView>, ApiError> {
    let directory = body.directory.or(query.directory);
    let workspace = workspace(state.settings(), directory.as_deref()).await?;
    let now = state.clock().now_ms();
    let (project, _) = resolve::location(state.store(), access.org, workspace, now).await?;
    Ok(Json(project.into()))
}
