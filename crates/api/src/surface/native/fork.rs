use axum::Json;
use axum::extract::{Path, State};

use crate::ApiState;
use crate::act::{ForkRequest, forked};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanPrompt};
use crate::view::SessionView;

pub(crate) async fn fork(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<ForkRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = forked(&state, row, request).await?;
    dialect.session(&state, row).await
}
