use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use crate::ApiState;
use crate::act::export;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::CanAdminister;

/// The stream of an export.
pub(crate) struct Exported(Response);

impl IntoResponse for Exported {
    fn into_response(self) -> Response {
        self.0
    }
}

/// Streams a session with all that its requests, files and outputs need. Like `explain` it shows whole requests, so it
/// wants the same permission.
pub(crate) async fn show(
    access: CanAdminister,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Exported, ApiError> {
    let row = at.find(&state, access.org).await?;
    let share = state.streams().take(&access)?;
    let lines = export(&state, row).await?.map(move |line| {
        let _held_to_the_end = &share;
        line.inspect_err(|error| tracing::warn!(%error, "an export broke off"))
    });
    let headers = [(CONTENT_TYPE, "application/x-ndjson"), (CACHE_CONTROL, "no-store")];
    Ok(Exported((headers, Body::from_stream(lines)).into_response()))
}
