use axum::Json;
use axum::extract::{Path, State};

use crate::ApiState;
use crate::act::{DiffQuery, diff};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{CanRead, Params};
use crate::view::DiffView;

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Params(query): Params<DiffQuery>,
) -> Result<Json<DiffView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    Ok(Json(diff(&state, &row, query).await?))
}
