//! Answers that are more than one JSON value of a type: a page of something long, and JSON that a handler wrote itself.

use std::marker::PhantomData;

use axum::response::{IntoResponse, Response};
use http::header::{ACCESS_CONTROL_EXPOSE_HEADERS, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Uri};
use serde::Serialize;

use crate::error::ApiError;

/// Names the place where the next page begins. Without it this page is the last one.
const NEXT: HeaderName = HeaderName::from_static("x-next-cursor");

/// A page as JSON. A page is bounded by bytes as well as by rows: only `next` says whether there may be more.
pub(crate) struct Paged<T> {
    pub(crate) items: T,
    pub(crate) next: Option<String>,
}

impl<T: Serialize> IntoResponse for Paged<T> {
    fn into_response(self) -> Response {
        // Into a buffer of its own: the writer of `axum::Json` takes each piece of text through a slower door.
        let mut response = match JsonText::of(&self.items) {
            Ok(text) => text.into_response(),
            Err(error) => return ApiError::internal(error).into_response(),
        };
        if let Some(next) = self.next.and_then(|next| HeaderValue::try_from(next).ok()) {
            let headers = response.headers_mut();
            headers.insert(NEXT, next);
            let exposed = HeaderValue::from_static("X-Next-Cursor, Link");
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        }
        response
    }
}

/// Returns the header `Link` of a page whose next one is the same request with the parameter `before` at `next`.
pub(crate) fn link_to_next(uri: &Uri, next: &str) -> Option<HeaderValue> {
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    // A key in the query is not repeated in an answer.
    let kept = pairs.filter(|(name, _)| name != "before" && name != "auth_token");
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let query = query.extend_pairs(kept).append_pair("before", next).finish();
    HeaderValue::try_from(format!("<{}?{query}>; rel=\"next\"", uri.path())).ok()
}

/// JSON text that a handler has already, of the shape `T`.
pub(crate) struct JsonText<T> {
    text: Vec<u8>,
    of: PhantomData<fn() -> T>,
}

impl<T> JsonText<T> {
    pub(crate) fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { text: text.into(), of: PhantomData }
    }
}

impl<T: Serialize> JsonText<T> {
    pub(crate) fn of(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self::new)
    }
}

impl<T> IntoResponse for JsonText<T> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], self.text).into_response()
    }
}
