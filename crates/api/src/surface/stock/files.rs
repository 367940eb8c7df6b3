//! Shows stock clients a session's changes of files, and moves a session to another directory.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;

use crate::ApiState;
use crate::act::{DiffQuery, MoveRequest, asked, diff};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{Body, CanPrompt, CanRead, Params};
use crate::text::id;
use crate::view::FileView;

pub(crate) async fn diff_route(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<Vec<FileView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    Ok(Json(diff(&state, &row, query).await?.files))
}

#[derive(Debug, Deserialize)]
pub(crate) struct StockMove {
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

/// Moves a session. The request is held until the move is done.
pub(crate) async fn move_route(
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
