//! What surrounds every request: its id, its span, its line in the log, and the body of its failure.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use tracing::Instrument;

use crate::ApiState;
use crate::dialect::Dialect;
use crate::error::{ApiError, Failure};

const REQUEST_ID: &str = "x-request-id";
const MAX_REQUEST_ID: usize = 64;

/// The paths that want no key: `exceptions.txt`, which only shrinks.
const OPEN: &str = include_str!("exceptions.txt");

/// The id of a request: the client's, if it is a plain word of at most 64 characters, else a random one.
#[derive(Debug, Clone)]
struct RequestId(String);

impl RequestId {
    fn of(headers: &HeaderMap) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let given = headers
            .get(REQUEST_ID)
            .and_then(|value| value.to_str().ok())
            .filter(|id| !id.is_empty() && id.len() <= MAX_REQUEST_ID && id.bytes().all(plain));
        Self(given.map_or_else(|| uuid::Uuid::new_v4().simple().to_string(), str::to_owned))
    }
}

/// Runs a request within its span. The log has its route (never its query, which may hold a key),
/// status and duration; bodies are never logged.
pub(crate) async fn scope(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let dialect = Dialect::of(request.uri().path());
    let method = request.method().clone();
    let route =
        request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", request_id = %id.0, %method, route);
    let began = state.clock().monotonic();
    async move {
        let mut response = next.run(request).await;
        let took_ms = (state.clock().monotonic() - began).as_millis();
        let status = response.status().as_u16();
        if let Some(failure) = response.extensions_mut().remove::<Failure>() {
            match &failure.cause {
                Some(cause) => tracing::error!(status, took_ms, error = %cause, "request failed"),
                None => tracing::debug!(status, took_ms, code = failure.code, "request refused"),
            }
            response = render(&failure, dialect, &id);
        } else {
            tracing::debug!(status, took_ms, "request answered");
        }
        if let Ok(value) = HeaderValue::from_str(&id.0) {
            response.headers_mut().insert(REQUEST_ID, value);
        }
        response
    }
    .instrument(span)
    .await
}

fn render(failure: &Failure, dialect: Dialect, id: &RequestId) -> Response {
    let mut body = match dialect {
        Dialect::Native => json!({
            "error": { "code": failure.code, "message": failure.message },
            "request_id": id.0,
        }),
        Dialect::Stock => json!({
            "name": stock_name(failure),
            "data": { "message": failure.message },
            "request_id": id.0,
        }),
    };
    match (dialect, &failure.reason, &failure.busy) {
        (Dialect::Native, Some(reason), _) => body["error"]["reason"] = json!(reason),
        // Its clients look for the tag.
        (Dialect::Stock, _, Some(session)) => {
            body["_tag"] = json!("SessionBusyError");
            body["sessionID"] = json!(session);
            body["message"] = json!(failure.message);
        }
        _ => {}
    }
    let mut response = (failure.status, body.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if failure.status == StatusCode::UNAUTHORIZED {
        let realm = HeaderValue::from_static(r#"Basic realm="Secure Area""#);
        headers.insert(WWW_AUTHENTICATE, realm);
    }
    if failure.status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The released client's names, as far as it has them.
fn stock_name(failure: &Failure) -> &'static str {
    match failure.status {
        StatusCode::NOT_FOUND => "NotFoundError",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::CONFLICT if failure.busy.is_some() => "SessionBusyError",
        StatusCode::CONFLICT => "ConflictError",
        status if status.is_client_error() => "BadRequest",
        _ => "UnknownError",
    }
}

/// Lets a request in when it carries a valid key, or wants none; what it proved goes with it.
pub(crate) async fn authenticate(
    State(state): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    if !OPEN.lines().any(|open| open == path) {
        let proved = state.authenticator().authenticate(request.headers(), request.uri().query());
        match proved.await {
            Ok(access) => {
                request.extensions_mut().insert(access);
            }
            Err(error) => return ApiError::from(error).into_response(),
        }
    }
    next.run(request).await
}
