//! Projects for stock clients.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::CanRead;
use crate::text::id;

/// Lists the directories of a project: it has one.
pub(crate) async fn directories(
    access: CanRead,
    State(state): State<ApiState>,
    Path(project): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    Ok(Json(json!([{ "directory": project.worktree }])))
}
