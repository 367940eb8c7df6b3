//! The agents that a prompt may choose in a project.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::Value;
use store::SettingsOf;

use crate::ApiState;
use crate::act::settings_of;
use crate::error::ApiError;
use crate::surface::extract::CanRead;
use crate::text::id;
use crate::view::agents;

pub(crate) async fn of_project(
    access: CanRead,
    State(state): State<ApiState>,
    Path(project): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let project = state.store().project(access.org, id(&project)?).await?;
    let settings = settings_of(&state, access.org, SettingsOf::Project(project.id)).await?;
    let shown = agents(&settings).into_iter().filter(|agent| agent["hidden"] == false);
    Ok(Json(shown.collect()))
}
