use axum::Json;
use axum::extract::{Path, State};

use super::inbox::ControlView;
use crate::ApiState;
use crate::act::{MoveRequest, asked};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{Body, CanPrompt};

pub(crate) async fn post(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<MoveRequest>,
) -> Result<Json<ControlView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let asked = asked(&state, &row, request).await?;
    Ok(Json(asked.admit(&state, &row).await?.into()))
}
