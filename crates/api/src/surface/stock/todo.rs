//! A session's list of tasks.

use axum::Json;
use axum::extract::{Path, State};
use serde_json::Value;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::CanRead;
use crate::view::stock_todos;

/// Lists the tasks, in the model's order.
pub(crate) async fn list(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<Vec<Value>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let list = state.store().todos(access.org, row.at.session).await?;
    Ok(Json(list.as_deref().map(stock_todos).unwrap_or_default()))
}
