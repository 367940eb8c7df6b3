//! The logins of whoever asks: where they are, and how to end them.

use access::Actor;
use axum::Json;
use axum::extract::{Path, State};
use domain::{LoginId, UserId};
use schemars::JsonSchema;
use serde::Serialize;
use store::{CredentialInUse, LoginRow, Via};

use super::login::LoggedOut;
use crate::ApiState;
use crate::error::ApiError;
use crate::surface::extract::Caller;
use crate::text::id;

/// Logins, the one that was used last first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LoginsView {
    data: Vec<OwnLoginView>,
}

/// A login of the caller's in one browser.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OwnLoginView {
    id: String,
    /// Whether the request shows it.
    this: bool,
    /// `link`, `key`, `provider` or `code`.
    began_by: Option<String>,
    began_at: i64,
    /// Within a minute.
    last_seen_at: i64,
    /// When it ends if it is not used again.
    expires_at: i64,
    /// The address that it began from. Behind a proxy that the operator does not trust, it is the proxy's.
    address: Option<String>,
    /// The browser's name for itself.
    browser: Option<String>,
}

impl OwnLoginView {
    fn new(row: LoginRow, via: &Via) -> Self {
        Self {
            this: *via == Via::Login(row.id.clone()),
            id: row.id.to_string(),
            began_by: row.by,
            began_at: row.created_ms,
            last_seen_at: row.seen_ms,
            expires_at: row.expires_ms,
            address: row.address,
            browser: row.agent,
        }
    }
}

/// Returns the person who asks; a service account has no logins.
fn person(caller: &Caller) -> Option<UserId> {
    match &caller.standing().actor {
        Actor::User(user) => Some(user.clone()),
        Actor::Service(_) => None,
    }
}

pub(crate) async fn list(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<Json<LoginsView>, ApiError> {
    let Some(user) = person(&caller) else { return Ok(Json(LoginsView { data: Vec::new() })) };
    let rows = state.store().logins(caller.org(), user, state.clock().now_ms()).await?;
    let data = rows.into_iter().map(|row| OwnLoginView::new(row, caller.via())).collect();
    Ok(Json(LoginsView { data }))
}

/// The number of logins that have ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EndedView {
    ended: usize,
}

/// Ends a login of the caller's: here at once, elsewhere within 5 s. Its streams end too.
pub(crate) async fn end(
    caller: Caller,
    State(state): State<ApiState>,
    Path(login): Path<String>,
) -> Result<LoggedOut, ApiError> {
    let login: LoginId = id(&login)?;
    let is_own = *caller.via() == Via::Login(login.clone());
    if ended(&state, &caller, Some(login), None).await? == 0 {
        return Err(ApiError::NotFound("the login was"));
    }
    let cookie = if is_own { state.settings().site.no_cookie() } else { None };
    Ok(LoggedOut::new(cookie, None))
}

/// Ends all logins of the caller's but the one that asks.
pub(crate) async fn end_others(
    caller: Caller,
    State(state): State<ApiState>,
) -> Result<Json<EndedView>, ApiError> {
    let kept = match caller.via() {
        Via::Login(login) => Some(login.clone()),
        Via::Key(_) => None,
    };
    Ok(Json(EndedView { ended: ended(&state, &caller, None, kept).await? }))
}

async fn ended(
    state: &ApiState,
    caller: &Caller,
    one: Option<LoginId>,
    kept: Option<LoginId>,
) -> Result<usize, ApiError> {
    let Some(user) = person(caller) else { return Ok(0) };
    let (org, now) = (caller.org(), state.clock().now_ms());
    let ended = state.store().end_logins_of(org, user, one, kept, now).await?;
    for login in &ended {
        state.authenticator().forget(&CredentialInUse { org, via: Via::Login(login.clone()) });
    }
    Ok(ended.len())
}
