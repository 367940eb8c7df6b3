//! Routes for repositories on people's own machines.

use axum::Json;
use axum::extract::State;

use crate::ApiState;
use crate::act::{HereRequest, HereView, UploadView, here, store_upload};
use crate::error::ApiError;
use crate::surface::extract::{Body, CanPrompt, Pack, UploadPlace};

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
    _place: UploadPlace,
    State(state): State<ApiState>,
    Pack(mut body): Pack,
) -> Result<Json<UploadView>, ApiError> {
    store_upload(&state, access.org, &mut body).await.map(Json)
}
