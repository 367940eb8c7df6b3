//! The two addresses that browsers visit on their way to an identity provider and back. They answer redirects, and to
//! a test its page.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use domain::IdpId;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use oidc::Return;
use serde::Deserialize;

use super::sso_page;
use crate::ApiState;
use crate::act::sso::{self, ATTEMPT_LIFE, Asked, Ended, SsoFailure};
use crate::surface::extract::Visiting;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct StartQuery {
    /// The page to come back to.
    #[serde(rename = "return")]
    return_to: Option<String>,
    /// Makes it a test.
    ticket: Option<String>,
    /// The person proves anew who they are.
    #[serde(default)]
    anew: bool,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct BackQuery {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// An answer that no cache keeps, and whose address no other page is told.
fn answer(status: StatusCode, cookies: impl IntoIterator<Item = Option<HeaderValue>>) -> Response {
    let mut response = status.into_response();
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    for cookie in cookies.into_iter().flatten() {
        headers.append(SET_COOKIE, cookie);
    }
    response
}

fn redirect(to: &str, cookies: impl IntoIterator<Item = Option<HeaderValue>>) -> Response {
    let mut response = answer(StatusCode::FOUND, cookies);
    // Whatever is no header is no address either.
    let to =
        HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/login?error=start_again"));
    response.headers_mut().insert(LOCATION, to);
    response
}

/// Sends the browser to the login page with a code, and says the rest in the log.
fn failed(
    idp: &str,
    failure: &SsoFailure,
    cookies: impl IntoIterator<Item = Option<HeaderValue>>,
) -> Response {
    let code = failure.code();
    let idp = crate::text::shown(idp);
    match failure {
        SsoFailure::Service(error) => {
            let failure = error.failure();
            let cause = failure.cause.unwrap_or(failure.message);
            tracing::error!(idp, code, cause, "a sign-in at an identity provider has failed");
        }
        refused @ (SsoFailure::Provider(_)
        | SsoFailure::Unknown
        | SsoFailure::Again
        | SsoFailure::Disabled
        | SsoFailure::Linked) => {
            tracing::info!(idp, code, reason = %refused, "a sign-in at an identity provider was refused")
        }
    }
    redirect(&format!("/login?error={code}"), cookies)
}

/// Sends a browser to the provider.
pub(crate) async fn start(
    State(state): State<ApiState>,
    Path(idp): Path<String>,
    Query(query): Query<StartQuery>,
    Visiting(visit): Visiting,
    headers: HeaderMap,
) -> Response {
    let Ok(known) = idp.parse::<IdpId>() else { return failed(&idp, &SsoFailure::Unknown, []) };
    let asked = Asked {
        return_to: query.return_to.as_deref(),
        ticket: query.ticket.as_deref(),
        anew: query.anew,
    };
    match sso::start(&state, known, asked, &visit).await {
        Ok(sent) => {
            let site = &state.settings().site;
            let name = site.sso_cookie(&sent.state);
            let cookie = site.set_sso_cookie(&name, &sent.browser, ATTEMPT_LIFE / 1000);
            let dropped = site.drop_sso_cookies(&headers);
            redirect(sent.url.as_str(), dropped.into_iter().chain([cookie]))
        }
        Err(failure) => failed(&idp, &failure, []),
    }
}

/// Takes a browser back from the provider.
pub(crate) async fn back(
    State(state): State<ApiState>,
    Path(idp): Path<String>,
    Query(query): Query<BackQuery>,
    Visiting(visit): Visiting,
    headers: HeaderMap,
) -> Response {
    let Ok(known) = idp.parse::<IdpId>() else { return failed(&idp, &SsoFailure::Unknown, []) };
    let site = &state.settings().site;
    let BackQuery { code, state: back_state, iss, error, error_description } = query;
    let back = Return { code, iss, error, error_description };
    // Two cookies of one name: somebody else has planted one, and neither counts.
    let read = |name: &str| auth::read_cookie(&headers, name).ok().flatten();
    let mut name = site.sso_cookie(back_state.as_deref().unwrap_or_default());
    let mut browser = read(&name);
    if browser.is_none() {
        name = site.only_sso_cookie();
        browser = read(&name);
    }
    let none = site.no_sso_cookie(&name);
    let (browser, back_state) = (browser.as_deref(), back_state.as_deref());
    match sso::finish(&state, known, browser, back_state, back, &visit).await {
        Ok(Ended::LoggedIn { cookie, to }) => {
            let cookie = site.set_cookie(cookie.text(), auth::LOGIN_LIFE / 1000);
            redirect(&to, [none, cookie])
        }
        Ok(Ended::Linked { to }) => redirect(&to, [none]),
        Ok(Ended::Tested { to: Some(to), .. }) => redirect(&to, [none]),
        Ok(Ended::Tested { report, name, to: None }) => {
            let mut response = answer(StatusCode::OK, [none]);
            let nonce = oidc::random_text();
            let policy = format!(
                "default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
            );
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
            headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            headers
                .extend(HeaderValue::try_from(policy).ok().map(|it| (CONTENT_SECURITY_POLICY, it)));
            *response.body_mut() = sso_page::page(&name, &report, &nonce).into();
            response
        }
        // Whoever sends a browser here with a forged answer does not take its own sign-in away.
        Err(failure @ (SsoFailure::Again | SsoFailure::Unknown)) => failed(&idp, &failure, []),
        Err(failure) => failed(&idp, &failure, [none]),
    }
}
