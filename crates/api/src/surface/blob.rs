//! A blob as the body of an answer, in pieces: a large one is never whole in memory.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use blobs::{BlobError, BlobKey};
use bytes::Bytes;
use futures::stream::try_unfold;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};

use crate::ApiState;
use crate::error::ApiError;

/// The bytes of a blob that are read at once.
const PIECE: u64 = 1024 * 1024;

/// Returns an answer with a blob of `bytes` bytes and the media type `content`.
///
/// # Errors
/// When this gateway does not see the workers' blobs.
pub(crate) fn stream_blob(
    state: &ApiState,
    key: BlobKey,
    bytes: i64,
    content: &'static str,
) -> Result<Response, ApiError> {
    let blobs = state.blobs().cloned().ok_or(UNSEEN)?;
    let size = u64::try_from(bytes).unwrap_or(0);
    let pieces = try_unfold((blobs, key, 0), move |(blobs, key, at)| async move {
        if at >= size {
            return Ok::<_, BlobError>(None);
        }
        let piece: Bytes = blobs.get_range(&key, at..(at + PIECE).min(size)).await?;
        let next = at + piece.len() as u64;
        Ok((!piece.is_empty()).then_some((piece, (blobs, key, next))))
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(content)),
        (CONTENT_LENGTH, HeaderValue::from(size)),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The refusal of a gateway that does not see the workers' blobs.
pub(crate) const UNSEEN: ApiError = ApiError::NotOffered(
    "this gateway cannot read the workers' blobs: ask another one, or start it with the workers' --blob-url",
);
