//! Answers that are a page of something long.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName};
use serde::Serialize;

/// Names the place where the next page begins. Without it this page is the last one.
const NEXT: HeaderName = HeaderName::from_static("x-next-cursor");

/// A page as JSON. A page is bounded by bytes as well as by rows: only `next` says whether there may be more.
pub(crate) fn paged(items: impl Serialize, next: Option<String>) -> Response {
    let mut response = Json(items).into_response();
    if let Some(next) = next.and_then(|next| HeaderValue::try_from(next).ok()) {
        let headers = response.headers_mut();
        headers.insert(NEXT, next);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("X-Next-Cursor"));
    }
    response
}
