use std::time::Duration;

use axum::Json;
use axum::body::BodyDataStream;
use axum::extract::State;
use futures::StreamExt;
use schemars::JsonSchema;
use serde::Serialize;

use crate::ApiState;
use crate::act::{FilesFate, ImportQuery, import};
use crate::error::ApiError;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{CanPrompt, LargeRead, Params, Upload};
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
    _large: LargeRead,
    State(state): State<ApiState>,
    Params(query): Params<ImportQuery>,
    Upload(mut body): Upload,
) -> Result<Json<ImportView>, ApiError> {
    let done = match import(&state, &access, query, &mut body).await {
        Ok(done) => done,
        Err(error) => {
            drain(&mut body).await;
            return Err(error);
        }
    };
    let Json(session) = Dialect::Native.session(&state, done.row).await?;
    let (events, files, left_out) = (done.events, done.files, done.left_out);
    Ok(Json(ImportView { session, events, files, left_out }))
}

/// The most bytes of a refused body that are read, and for how long. A client that is still sending would otherwise lose
/// the answer with the connection.
const DRAINED: usize = 64 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(5);

pub(crate) async fn drain(body: &mut BodyDataStream) {
    let read = async {
        let mut left = DRAINED;
        while let Some(Ok(piece)) = body.next().await {
            left = left.saturating_sub(piece.len());
            if left == 0 {
                break;
            }
        }
    };
    // The answer counts, whether all was read or not.
    let _in_time = tokio::time::timeout(DRAIN_TIME, read).await;
}
