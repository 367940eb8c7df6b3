//! How people begin and end logins. The pages that call this are the console's.

use access::Actor;
use auth::Token;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use domain::OrgId;
use http::StatusCode;
use http::header::SET_COOKIE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{IdpOffer, LinkMaker, Via};

use super::me::{LoginView, MeView, me_of};
use crate::ApiState;
use crate::act::{Begun, begin_by_code, begin_by_key, begin_by_link, refuse_confined, sso};
use crate::error::ApiError;
use crate::surface::Parting;
use crate::surface::extract::{Body, Caller, OwnPage, Params};
use crate::text::secret;

/// The ways to sign in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaysView {
    /// Whether a person's key begins a login.
    key: bool,
    /// Whether a one-time link does.
    link: bool,
    /// Whether an owner's recovery code does.
    code: bool,
    /// Those who vouch for people.
    sso: Vec<SsoWayView>,
    /// The service's version.
    version: String,
}

/// Somebody who vouches for people.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SsoWayView {
    /// Its id.
    id: String,
    /// Its name.
    name: String,
    /// The path that begins a sign-in there.
    start: String,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct WaysQuery {
    /// Whose ways. Absent: those of the only organisation that the service has.
    organization: Option<String>,
}

pub(crate) async fn ways(
    State(state): State<ApiState>,
    Params(query): Params<WaysQuery>,
) -> Result<Json<WaysView>, ApiError> {
    let version = state.settings().version.clone();
    // An organisation that nobody knows has no ways either: a stranger learns nothing of which there are.
    // `org_…` is how people and pages see it; a bare number is how operators do.
    let named = query.organization.as_deref().map(|id| id.strip_prefix("org_").unwrap_or(id));
    let offered = match named.map(str::parse::<OrgId>) {
        None => state.store().offered_idps(None).await?,
        Some(Ok(org)) => state.store().offered_idps(Some(org)).await?,
        Some(Err(_)) => Vec::new(),
    };
    let sso = offered.into_iter().map(|IdpOffer { id, name }| SsoWayView {
        start: format!("/auth/start/{id}"),
        id: id.to_string(),
        name,
    });
    Ok(Json(WaysView { key: true, link: true, code: true, sso: sso.collect(), version }))
}

/// The answer to a request that has begun a login: who one is, and the cookie.
pub(crate) struct LoggedIn {
    view: MeView,
    cookie: Option<http::HeaderValue>,
}

impl IntoResponse for LoggedIn {
    fn into_response(self) -> Response {
        let mut response = Json(self.view).into_response();
        response.headers_mut().extend(self.cookie.map(|cookie| (SET_COOKIE, cookie)));
        response
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct LinkRequest {
    token: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct KeyLoginRequest {
    key: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CodeLoginRequest {
    /// Six groups of five letters and digits. Case, spaces and hyphens do not matter.
    code: String,
}

/// Begins a login with a one-time link.
pub(crate) async fn by_link(
    page: OwnPage,
    State(state): State<ApiState>,
    Body(request): Body<LinkRequest>,
) -> Result<LoggedIn, ApiError> {
    let begun = begin_by_link(&state, secret("token", &request.token)?, &page.visit).await?;
    logged_in(&state, begun).await
}

/// Begins a login with a person's key.
pub(crate) async fn by_key(
    page: OwnPage,
    State(state): State<ApiState>,
    Body(request): Body<KeyLoginRequest>,
) -> Result<LoggedIn, ApiError> {
    let key = secret("key", &request.key)?.trim().to_owned();
    let begun = begin_by_key(&state, key, &page.visit).await?;
    logged_in(&state, begun).await
}

/// Begins a login of an owner with a recovery code.
pub(crate) async fn by_code(
    page: OwnPage,
    State(state): State<ApiState>,
    Body(request): Body<CodeLoginRequest>,
) -> Result<LoggedIn, ApiError> {
    let begun = begin_by_code(&state, secret("code", &request.code)?, &page.visit).await?;
    logged_in(&state, begun).await
}

async fn logged_in(state: &ApiState, begun: Begun) -> Result<LoggedIn, ApiError> {
    let Begun { org, user, cookie, expires_ms } = begun;
    let login = LoginView { id: cookie.login_id().to_string(), expires_at: expires_ms };
    let standing = state.store().principal(org, Actor::User(user)).await?;
    let view = me_of(state, org, standing, None, Some(login)).await?;
    let cookie = state.settings().site.set_cookie(cookie.text(), auth::LOGIN_LIFE / 1000);
    Ok(LoggedIn { view, cookie })
}

/// An answer that takes the cookie away.
pub(crate) struct LoggedOut {
    cookie: Option<http::HeaderValue>,
    /// Where the browser ends its session at the identity provider too.
    next: Option<String>,
}

impl LoggedOut {
    pub(super) fn new(cookie: Option<http::HeaderValue>, next: Option<String>) -> Self {
        Self { cookie, next }
    }
}

impl IntoResponse for LoggedOut {
    fn into_response(self) -> Response {
        let mut response = match self.next {
            None => StatusCode::NO_CONTENT.into_response(),
            Some(next) => Json(serde_json::json!({ "next": next })).into_response(),
        };
        response.headers_mut().extend(self.cookie.map(|cookie| (SET_COOKIE, cookie)));
        response.extensions_mut().insert(Parting);
        response
    }
}

/// Ends the login everywhere. A key has none, and stays.
pub(crate) async fn logout(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<LoggedOut, ApiError> {
    let mut next = None;
    if let Via::Login(login) = caller.via() {
        state.authenticator().end_login(caller.org(), login.clone()).await?;
        // The login is over, whatever becomes of the provider's.
        next = sso::logout_url(&state, caller.org(), login.clone()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the logout at an identity provider cannot be offered");
            None
        });
    }
    Ok(LoggedOut::new(state.settings().site.no_cookie(), next.map(String::from)))
}

/// A link that logs its maker in, once.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LinkView {
    url: String,
    /// When it stops working.
    expires_at: i64,
}

/// Makes a one-time link for whoever asks. Its login is as old as the proof that made it, and ends with that.
pub(crate) async fn link(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<Json<LinkView>, ApiError> {
    let Actor::User(user) = caller.standing().actor.clone() else {
        return Err(ApiError::Conflict(
            "a service account does not sign in; use a person's key, such as that of `opencode-cloud key`".to_owned(),
        ));
    };
    refuse_confined(caller.standing())?;
    let maker = match caller.via() {
        Via::Key(key) => LinkMaker::Key(key.clone()),
        Via::Login(login) => LinkMaker::Login(login.clone()),
    };
    let now = state.clock().now_ms();
    let (token, row) = Token::link(caller.org(), user, maker, now);
    let expires_at = row.expires_ms;
    state.store().create_login_link(caller.org(), row, now).await?;
    let url = format!("{}/login#{}", state.settings().site.url(), token.text());
    Ok(Json(LinkView { url, expires_at }))
}
