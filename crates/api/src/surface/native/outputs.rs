//! The complete outputs of a session's calls, of which their results show the ends.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use blobs::{BlobError, BlobKey};
use http::header::{CONTENT_DISPOSITION, HeaderValue};
use serde::Deserialize;
use store::BlobUse;

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::blob::{UNSEEN, stream_blob};
use crate::surface::extract::CanRead;

/// The media type of an output. A command may print bytes that are no text; nobody guesses what they are.
pub(crate) const OUTPUT: &str = "text/plain; charset=utf-8";

/// A complete output.
pub(crate) struct OutputFile(Response);

impl IntoResponse for OutputFile {
    fn into_response(self) -> Response {
        self.0
    }
}

/// The last part of an output's path.
#[derive(Debug, Deserialize)]
pub(crate) struct OutputName {
    output: String,
}

/// Writes a complete output that a result of the session names. One that has expired is not found.
pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(OutputName { output }): Path<OutputName>,
) -> Result<OutputFile, ApiError> {
    let row = at.find(&state, access.org).await?;
    let gone = || ApiError::NotFound("an output of that name was");
    // No name of a result is anything else, and no other one is a key of object storage.
    let key = BlobKey::new(&row.at.org.to_string(), BlobUse::ToolOutput.kind(), &output);
    let key = key.map_err(|_| gone())?;
    if !state.store().has_kept_output(row.at.org, row.at.session, output).await? {
        return Err(gone());
    }
    let blobs = state.blobs().ok_or(UNSEEN)?;
    let size = match blobs.size(&key).await {
        Ok(size) => size,
        Err(BlobError::NotFound(_)) => return Err(gone()),
        Err(error) => return Err(ApiError::Internal(error.into())),
    };
    let size = i64::try_from(size).map_err(|error| ApiError::Internal(error.into()))?;
    let mut response = stream_blob(&state, key, size, OUTPUT)?;
    // It is a command's text: no browser opens it as a page of the service.
    let saved = HeaderValue::from_static("attachment");
    response.headers_mut().insert(CONTENT_DISPOSITION, saved);
    Ok(OutputFile(response))
}
