//! Routes for repositories on people's own machines.

use axum::Json;
use axum::extract::State;

use crate::ApiState;
use crate::act::{HereRequest, HereView, UploadView, here, store_upload};
use crate::error::ApiError;
use crate::surface::extract::{Body, CanPrompt, LargeRead, Pack};
use crate::surface::native::import::drain;

/// Names a repository of one's own machine, and learns which of its commits are here.
pub(crate) async fn name(
    access: CanPrompt,
    State(state): State<ApiState>,
    Body(request): Body<HereRequest>,
) -> Result<Json<HereView>, ApiError> {
    here(&state, access.org, request).await.map(Json)
}

/// Takes a pack of git objects.
pub(crate) async fn upload(
    access: CanPrompt,
    _large: LargeRead,
    State(state): State<ApiState>,
    Pack(mut body): Pack,
) -> Result<Json<UploadView>, ApiError> {
    let stored = store_upload(&state, access.org, &mut body).await;
    if stored.is_err() {
        drain(&mut body).await;
    }
    stored.map(Json)
}
