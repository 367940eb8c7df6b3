//! Asks: calls that wait for somebody's answer.

use axum::Json;
use axum::extract::{Path, State};
use domain::TimestampMs;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ApiState;
use crate::act::{AnswerRequest, answer};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{Body, CanPrompt, CanRead, Params};
use crate::text::id;
use crate::view::AskView;

/// The asks to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AskQuery {
    /// Those of this session only.
    session: Option<String>,
}

/// Lists the asks that wait, the oldest first.
pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Params(query): Params<AskQuery>,
) -> Result<Json<Vec<AskView>>, ApiError> {
    let session = query.session.as_deref().map(id).transpose()?;
    let asks = state.store().pending_asks(access.org, session).await?;
    Ok(Json(asks.into_iter().map(AskView::from).collect()))
}

/// Lists a session's asks that wait.
pub(crate) async fn of_session(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<Vec<AskView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let asks = state.store().pending_asks(access.org, Some(row.at.session)).await?;
    Ok(Json(asks.into_iter().map(AskView::from).collect()))
}

/// The ask in a path.
#[derive(Debug, Deserialize)]
pub(crate) struct Named {
    ask: String,
}

/// Answers an ask.
pub(crate) async fn reply(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(named): Path<Named>,
    Body(request): Body<AnswerRequest>,
) -> Result<StatusCode, ApiError> {
    answer(&state, &access, id(&named.ask)?, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A permission that somebody has saved for a project.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SavedView {
    id: String,
    #[serde(rename = "projectID")]
    project: String,
    action: String,
    pattern: String,
    /// The id of the key that saved it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<String>,
    time: SavedTime,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SavedTime {
    saved: TimestampMs,
}

/// The saved permissions to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SavedQuery {
    /// Those of this project only.
    project: Option<String>,
}

/// Lists saved permissions, the newest first.
pub(crate) async fn saved(
    access: CanRead,
    State(state): State<ApiState>,
    Params(query): Params<SavedQuery>,
) -> Result<Json<Vec<SavedView>>, ApiError> {
    let project = query.project.as_deref().map(id).transpose()?;
    let saved = state.store().kept_permissions(access.org, project).await?;
    let shown = saved.into_iter().map(|kept| SavedView {
        id: kept.id,
        project: kept.project.to_string(),
        action: kept.saved.action,
        pattern: kept.saved.pattern,
        by: kept.by.map(|author| author.key),
        time: SavedTime { saved: kept.saved_ms },
    });
    Ok(Json(shown.collect()))
}

/// The saved permission in a path.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedSaved {
    saved: String,
}

/// Takes a saved permission back: later calls are asked about again.
pub(crate) async fn forget(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(named): Path<NamedSaved>,
) -> Result<StatusCode, ApiError> {
    match state.store().forget_permission(access.org, named.saved).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiError::NotFound("a saved permission with this id was")),
    }
}
