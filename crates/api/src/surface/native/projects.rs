use axum::Json;
use axum::extract::State;
use futures::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use store::ProjectRow;

use crate::ApiState;
use crate::act::{is_checkout, location, workspace};
use crate::error::ApiError;
use crate::surface::extract::{Body, CanPrompt, CanRead, Params};
use crate::view::ProjectView;

pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
) -> Result<Json<Vec<ProjectView>>, ApiError> {
    let rows = state.store().projects(access.org).await?;
    let shown = rows.into_iter().enumerate().map(|(at, row)| {
        let state = &state;
        async move { if at < MAX_LOOKS { shown_project(state, row).await } else { row.into() } }
    });
    Ok(Json(join_all(shown).await))
}

/// The most projects of a list whose directories are looked into.
const MAX_LOOKS: usize = 200;

/// Shows a project, and whether its directory is a checkout on this machine.
async fn shown_project(state: &ApiState, row: ProjectRow) -> ProjectView {
    let is_checkout = is_checkout(state, &row.worktree).await;
    let view = ProjectView::from(row);
    if is_checkout { view.with_git() } else { view }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Directory {
    directory: Option<String>,
}

/// Returns the project of a directory, or of the managed workspace without one. Creates it if it is new.
pub(crate) async fn init(
    access: CanPrompt,
    State(state): State<ApiState>,
    Params(query): Params<Directory>,
    Body(body): Body<Directory>,
) -> Result<Json<ProjectView>, ApiError> {
    let directory = body.directory.or(query.directory);
    let workspace = workspace(state.settings(), directory.as_deref()).await?;
    let now = state.clock().now_ms();
    if workspace.repository.is_some() {
        // Its workspaces come with its sessions.
        let project = state.store().ensure_project(access.org, workspace.directory, now).await?;
        return Ok(Json(project.into()));
    }
    let (project, _) = location(state.store(), access.org, workspace, now).await?;
    Ok(Json(shown_project(&state, project).await))
}
