use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ApiState;
use crate::act::{FilesFate, ImportQuery, import};
use crate::error::ApiError;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{CanPrompt, Params, Upload, UploadPlace};
use crate::view::SessionView;

/// A session that was imported.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ImportView {
    session: SessionView,
    /// The number of events of its log.
    events: i64,
    files: FilesFate,
    /// The parts of the export that the session does not have, for people.
    left_out: Vec<String>,
}

pub(crate) async fn take(
    access: CanPrompt,
    _place: UploadPlace,
    State(state): State<ApiState>,
    Params(query): Params<ImportQuery>,
    Upload(body): Upload,
) -> Result<Json<ImportView>, ApiError> {
    let done = import(&state, &access, query, body).await?;
    let Json(session) = Dialect::Native.session(&state, done.row).await?;
    let (events, files, left_out) = (done.events, done.files, done.left_out);
    Ok(Json(ImportView { session, events, files, left_out }))
}
