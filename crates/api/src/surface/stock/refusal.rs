use axum::extract::{RawPathParams, State};
use http::{HeaderMap, Uri};

use super::answer::Client;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::CanRead;
use crate::text::id;

/// Refuses an operation that we do not offer. The released terminal client shows no error of some, so that what was typed
/// seems to vanish: it gets the sentence as a notice too.
pub(crate) async fn refuse(
    access: CanRead,
    State(state): State<ApiState>,
    headers: HeaderMap,
    params: RawPathParams,
    uri: Uri,
    why: &'static str,
) -> ApiError {
    let session = params.iter().find_map(|(name, value)| (name == "session").then_some(value));
    if let (Client::Released, Some(session)) = (Client::of(&headers), session) {
        match id(session) {
            Ok(session) => match state.store().session(access.org, session).await {
                // `opencode run --share` ignores the answer and opens its stream afterwards.
                Ok(row) if uri.path().ends_with("/share") => {
                    state.feeds().notify(&row, why);
                    state.feeds().notify_next(&row, why);
                }
                Ok(row) => state.feeds().notify(&row, why),
                Err(error) => return error.into(),
            },
            Err(error) => return error,
        }
    }
    ApiError::NotOffered(why)
}
