//! Middleware around every request: its id, its span, its line in the log, and the body of an error.

use std::net::SocketAddr;

use auth::{AuthError, Shown};
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};
use tracing::Instrument;

use super::gate::guarded;
use crate::ApiState;
use crate::error::{ApiError, Failure, MissingAsk};
use crate::site::Site;
use crate::surface::{Dialect, Parting, wall};

const REQUEST_ID: &str = "x-request-id";
const MAX_REQUEST_ID: usize = 64;
const CLEAR_SITE_DATA: HeaderName = HeaderName::from_static("clear-site-data");

/// The id of a request: the client's if it is a plain word of at most 64 characters, otherwise a random one.
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

/// Runs a request within its span. Logs its route (never its query, which may contain a key), its status and its
/// duration. Bodies are never logged.
pub(crate) async fn scope(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let id = RequestId::of(request.headers());
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let route =
        request.extensions().get::<MatchedPath>().map_or("unknown", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", request_id = %id.0, %method, route = route.as_str());
    let is_browser = wall::is_browser(request.headers());
    let began = state.clock().monotonic();
    async move {
        let mut response = next.run(request).await;
        let took = state.clock().monotonic() - began;
        let took_ms = took.as_millis();
        let failed = response.extensions().get::<Failure>().map(|failure| failure.status);
        let status = failed.unwrap_or(response.status()).as_u16();
        telemetry::metrics().request(&route, status, took);
        if let Some(failure) = response.extensions_mut().remove::<Failure>() {
            match &failure.cause {
                Some(cause) => tracing::error!(status, took_ms, error = %cause, "request failed"),
                None => tracing::debug!(status, took_ms, code = failure.code, "request refused"),
            }
            let kept =
                [SET_COOKIE, CLEAR_SITE_DATA].map(|name| response.headers_mut().remove(&name));
            response = render(&failure, &path, &id, is_browser);
            for (name, value) in [SET_COOKIE, CLEAR_SITE_DATA].into_iter().zip(kept) {
                response.headers_mut().extend(value.map(|value| (name, value)));
            }
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

fn render(failure: &Failure, path: &str, id: &RequestId, is_browser: bool) -> Response {
    // The schemas of the released contract take no other member, so that there the id of the request is in its header only.
    let body = match Dialect::of(path) {
        Dialect::Native => native_body(failure, id),
        Dialect::Stock => tagged_body(failure).unwrap_or_else(|| {
            if path.starts_with("/api/") { second_body(failure, path) } else { stock_body(failure) }
        }),
    };
    let mut response = (failure.status, body.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A browser would store the key and send it with any page's requests.
    if failure.status == StatusCode::UNAUTHORIZED && !is_browser {
        let realm = HeaderValue::from_static(r#"Basic realm="Secure Area""#);
        headers.insert(WWW_AUTHENTICATE, realm);
    }
    if matches!(failure.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn native_body(failure: &Failure, id: &RequestId) -> Value {
    let mut body = json!({
        "error": { "code": failure.code, "message": failure.message },
        "request_id": id.0,
    });
    if let Some(reason) = &failure.reason {
        body["error"]["reason"] = json!(reason);
    }
    body
}

/// Returns the body of an error that stock clients know by its tag in both of their APIs.
fn tagged_body(failure: &Failure) -> Option<Value> {
    let Failure { busy, missing_ask, message, .. } = failure;
    match (busy, missing_ask) {
        (Some(session), _) => {
            Some(json!({ "_tag": "SessionBusyError", "sessionID": session, "message": message }))
        }
        (None, Some(MissingAsk { request, is_permission })) => {
            let tag =
                if *is_permission { "PermissionNotFoundError" } else { "QuestionNotFoundError" };
            Some(json!({ "_tag": tag, "requestID": request, "message": message }))
        }
        (None, None) => None,
    }
}

fn stock_body(failure: &Failure) -> Value {
    json!({ "name": stock_name(failure), "data": { "message": failure.message } })
}

/// Returns the body of an error of the stock clients' second API, which tells errors apart by `_tag`.
fn second_body(failure: &Failure, path: &str) -> Value {
    let session = path.strip_prefix("/api/session/").and_then(|rest| rest.split('/').next());
    let tag = match (failure.status, session) {
        (StatusCode::NOT_FOUND, Some(session)) => {
            let message = &failure.message;
            return json!({ "_tag": "SessionNotFoundError", "sessionID": session, "message": message });
        }
        (StatusCode::NOT_FOUND, None) => "NotFoundError",
        (StatusCode::UNAUTHORIZED, _) => "UnauthorizedError",
        (StatusCode::FORBIDDEN, _) => "ForbiddenError",
        (StatusCode::CONFLICT, _) => "ConflictError",
        (StatusCode::SERVICE_UNAVAILABLE, _) => "ServiceUnavailableError",
        (status, _) if status.is_client_error() => "InvalidRequestError",
        _ => return stock_body(failure),
    };
    json!({ "_tag": tag, "message": failure.message })
}

/// Returns the stock clients' name for the error, if they have one.
fn stock_name(failure: &Failure) -> &'static str {
    match failure.status {
        StatusCode::NOT_FOUND => "NotFoundError",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::CONFLICT => "ConflictError",
        status if status.is_client_error() => "BadRequest",
        _ => "UnknownError",
    }
}

/// Returns whether the request may come from a browser's `EventSource`. That cannot set a header, so its key may be
/// in the query.
fn is_stream(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    request.method() == http::Method::GET && (path.ends_with("/event") || path.ends_with("/log"))
}

/// Lets a request pass if it shows a good key or login, or needs none. Attaches the belief in it, and guards the answer
/// with that.
pub(crate) async fn authenticate(
    State(state): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Response {
    let site = &state.settings().site;
    let origins = &state.settings().origins;
    let matched = request.extensions().get::<MatchedPath>();
    if matched.is_some_and(|path| super::VISITED.contains(path.as_str())) {
        // Cookies of ours count there as far as they are of this sign-in, and only under our own names.
        if wall::is_foreign_name(request.headers(), site) {
            return wall::misdirected().into_response();
        }
        return next.run(request).await;
    }
    if let Err(barred) = wall::check(request.method(), request.headers(), origins, site) {
        return barred.into_response();
    }
    if matched.is_some_and(|path| super::OPEN.contains(path.as_str())) {
        return next.run(request).await;
    }
    let query = request.uri().query().filter(|_| is_stream(&request));
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
    let (method, headers) = (request.method(), request.headers());
    let proved = async {
        let shown = Shown::read(headers, query, site.cookie())?;
        if matches!(shown, Shown::Cookie(_)) {
            wall::own_page(method, headers, site).map_err(Refused::Barred)?;
        }
        let believed = state.authenticator().authenticate(&shown, peer).await?;
        Ok::<_, Refused>((shown, believed))
    };
    let (shown, believed) = match proved.await {
        Ok(proved) => proved,
        Err(Refused::Barred(barred)) => return barred.into_response(),
        Err(Refused::Unproved(_)) if wall::is_foreign_name(headers, site) => {
            return wall::misdirected().into_response();
        }
        Err(Refused::Unproved(error)) => return unproved(error, site),
    };
    request.extensions_mut().insert(believed.clone());
    let fresh = state.authenticator().renewed_cookie(&shown, &believed).await;
    let mut response = next.run(request).await;
    if response.extensions_mut().remove::<Parting>().is_none() {
        response = guarded(response, believed);
    }
    if let Some(cookie) =
        fresh.and_then(|next| site.set_cookie(next.text(), auth::LOGIN_LIFE / 1000))
        && !response.headers().contains_key(SET_COOKIE)
    {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Why a request is not let through.
enum Refused {
    /// Its page or host may not show a login.
    Barred(ApiError),
    /// It proves nobody.
    Unproved(AuthError),
}

impl From<AuthError> for Refused {
    fn from(error: AuthError) -> Self {
        Self::Unproved(error)
    }
}

/// Returns the answer to a request that proves nobody. Cookies that are no use any more are taken away.
fn unproved(error: AuthError, site: &Site) -> Response {
    let is_planted = matches!(error, AuthError::Cookie(_));
    let is_over = is_planted || matches!(error, AuthError::LoginOver);
    let mut response = ApiError::from(error).into_response();
    if is_over && let Some(none) = site.no_cookie() {
        response.headers_mut().insert(SET_COOKIE, none);
    }
    if is_planted && site.may_clear_all() {
        // The other cookie is of a path or domain that we cannot know.
        response.headers_mut().insert(CLEAR_SITE_DATA, HeaderValue::from_static("\"cookies\""));
    }
    response
}
