//! Stock clients fork, move, undo and redo, and look at what was changed.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;
use store::SessionRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::extract::{Body, CanPrompt, CanRead, Params, id};
use crate::native::{
    At, DiffQuery, ForkRequest, MoveRequest, RevertRequest, UnrevertRequest, asked, diff, fork,
    revert, summary, unrevert,
};
use crate::view::{FileView, SessionView};

/// A session with how much it changed.
pub(super) async fn shown(state: &ApiState, row: SessionRow) -> Result<SessionView, ApiError> {
    let summary = summary(state, &row).await?;
    Ok(SessionView::stock(row, &state.settings().version).summed(summary))
}

/// The fork works on the same files.
pub(super) async fn fork_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<ForkRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = fork(&state, row, request).await?;
    Ok(Json(shown(&state, row).await?))
}

pub(super) async fn revert_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<RevertRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = revert(&state, row, request).await?;
    Ok(Json(shown(&state, row).await?))
}

pub(super) async fn unrevert_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<UnrevertRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = unrevert(&state, row, request).await?;
    Ok(Json(shown(&state, row).await?))
}

pub(super) async fn diff_route(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<Vec<FileView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    Ok(Json(diff(&state, &row, query).await?.files))
}

#[derive(Debug, Deserialize)]
pub(super) struct StockMove {
    #[serde(rename = "sessionID")]
    session_id: String,
    destination: Destination,
    #[serde(rename = "moveChanges")]
    move_changes: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Destination {
    directory: String,
}

/// Held until the session has moved.
pub(super) async fn move_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Body(request): Body<StockMove>,
) -> Result<StatusCode, ApiError> {
    let row = state.store().session(access.org, id(&request.session_id)?).await?;
    if request.move_changes.unwrap_or(false) {
        return Err(ApiError::invalid(
            "changes are not taken to another directory: leave `moveChanges` out, or use \
             /platform/session/{session}/move with `carry`",
        ));
    }
    let directory = Some(request.destination.directory);
    let to = MoveRequest { directory, ..MoveRequest::default() };
    asked(&state, &row, to).await?.done(&state, &row).await?;
    Ok(StatusCode::NO_CONTENT)
}
