//! The repository of a session, and its work as a patch or a bundle.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use blobs::BlobKey;
use domain::OrgId;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use store::{BlobUse, OutRow, SessionRow};
use tokio::time::{Instant, sleep};

use crate::ApiState;
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::blob::stream_blob;
use crate::surface::extract::CanRead;
use crate::view::RepositoryView;

/// The media type of a patch.
pub(crate) const PATCH: &str = "text/x-diff";
/// The media type of a bundle.
pub(crate) const BUNDLE: &str = "application/x-git-bundle";
/// How often it is looked whether a worker has made a patch or bundle.
const LOOK: Duration = Duration::from_millis(250);
/// How long a request waits for that. A large workspace takes a while, and a retry begins a new one.
const PATIENCE: Duration = Duration::from_mins(10);

/// A patch; 204 if nothing has changed.
pub(crate) struct PatchFile(Response);

/// A bundle; 204 if nothing has changed.
pub(crate) struct BundleFile(Response);

impl IntoResponse for PatchFile {
    fn into_response(self) -> Response {
        self.0
    }
}

impl IntoResponse for BundleFile {
    fn into_response(self) -> Response {
        self.0
    }
}

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<RepositoryView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let origin = state.store().origin(row.at.location_ref()).await?;
    origin
        .map(|origin| Json(origin.into()))
        .ok_or(ApiError::NotFound("a repository of the session was"))
}

/// Writes the session's work as one patch: commits and what is not committed alike.
pub(crate) async fn patch(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<PatchFile, ApiError> {
    let row = at.find(&state, access.org).await?;
    out(&state, row, "patch", PATCH).await.map(PatchFile)
}

/// Writes the session's commits, and one of what is not committed, as a git bundle.
pub(crate) async fn bundle(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<BundleFile, ApiError> {
    let row = at.find(&state, access.org).await?;
    out(&state, row, "bundle", BUNDLE).await.map(BundleFile)
}

/// Asks for a patch or a bundle of a session, waits until a worker has made it, and answers with it.
async fn out(
    state: &ApiState,
    row: SessionRow,
    kind: &'static str,
    content: &'static str,
) -> Result<Response, ApiError> {
    let (store, org) = (state.store(), row.at.org);
    if store.origin(row.at.location_ref()).await?.is_none() {
        return Err(ApiError::NotFound("a repository of the session was"));
    }
    let id = store.ask_out(row.at, kind, state.clock().now_ms()).await?;
    let begun = Instant::now();
    let made = loop {
        let made = store.session_out(org, id.clone()).await?;
        if made.state != "asked" {
            break made;
        }
        if begun.elapsed() > PATIENCE {
            let message = "no worker has made it in time; see that workers run, and ask again";
            return Err(ApiError::Unavailable { message, cause: None });
        }
        sleep(LOOK).await;
    };
    if let Some(fault) = &made.fault {
        return Err(ApiError::Conflict(fault.clone()));
    }
    let mut response = match &made.blob {
        None => StatusCode::NO_CONTENT.into_response(),
        Some((name, bytes)) => stream_blob(state, key_of(org, name)?, *bytes, content)?,
    };
    name(&mut response, &made)?;
    Ok(response)
}

/// Adds the commits by which a client knows what it has got.
fn name(response: &mut Response, made: &OutRow) -> Result<(), ApiError> {
    let named = [("x-oc-base", &made.base), ("x-oc-head", &made.head), ("x-oc-wip", &made.wip)];
    for (header, commit) in named {
        let Some(commit) = commit else { continue };
        let value =
            HeaderValue::from_str(commit).map_err(|error| ApiError::Internal(error.into()))?;
        response.headers_mut().insert(HeaderName::from_static(header), value);
    }
    Ok(())
}

fn key_of(org: OrgId, name: &str) -> Result<BlobKey, ApiError> {
    BlobKey::new(&org.to_string(), BlobUse::Out.kind(), name)
        .map_err(|error| ApiError::Internal(error.into()))
}
