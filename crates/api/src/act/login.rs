//! Logins of people in browsers.

use std::net::IpAddr;

use access::{Actor, Scopes};
use auth::{Shown, Token};
use domain::{KeyId, OrgId, UserId};
use http::StatusCode;
use store::{LinkTaken, Via};

use crate::ApiState;
use crate::error::ApiError;

/// A login that has just begun.
pub(crate) struct Begun {
    pub(crate) org: OrgId,
    pub(crate) user: UserId,
    /// The cookie, for the answer.
    pub(crate) cookie: Token,
    /// Its row's end.
    pub(crate) expires_ms: i64,
}

/// Begins a login with a one-time link.
pub(crate) async fn by_link(state: &ApiState, text: &str) -> Result<Begun, ApiError> {
    let unknown = ApiError::NoLogin {
        code: "LINK_UNKNOWN",
        message: "this link logs nobody in: copy it again, whole, or make another with `opencode-cloud open`",
    };
    let Some(token) = Token::read(text) else { return Err(unknown) };
    let (org, now) = (token.org(), state.clock().now_ms());
    let (id, hash) = (token.id().to_owned(), token.hash().to_vec());
    match state.store().take_login_link(org, id, hash, now).await? {
        LinkTaken::Good(user) => begin(state, org, user, None, None).await,
        LinkTaken::Used => Err(ApiError::NoLogin {
            code: "LINK_USED",
            message: "this link was followed before, and logs in once: make another with `opencode-cloud open`",
        }),
        LinkTaken::Expired => Err(ApiError::NoLogin {
            code: "LINK_EXPIRED",
            message: "this link is too old: make another with `opencode-cloud open`",
        }),
        LinkTaken::Unknown => Err(unknown),
    }
}

/// Begins a login with a person's key. A key that is confined to some scopes does not: a login has none.
pub(crate) async fn by_key(
    state: &ApiState,
    key: String,
    peer: Option<IpAddr>,
) -> Result<Begun, ApiError> {
    let believed = state.authenticator().authenticate(&Shown::Key(key), peer).await?;
    let principal = believed.principal();
    let barred =
        |message| ApiError::Barred { status: StatusCode::FORBIDDEN, code: "NOT_A_PERSON", message };
    let Actor::User(user) = principal.standing().actor.clone() else {
        return Err(barred(
            "this is a key of a service account; sign in with a key of yours, or a link of `opencode-cloud open`",
        ));
    };
    if principal.standing().scopes != Scopes::all() {
        return Err(barred(
            "this key is confined to some scopes, and a login is not; use another key",
        ));
    }
    let key = match principal.via() {
        Via::Key(key) => Some(key.clone()),
        Via::Login(_) => None,
    };
    begin(state, principal.org(), user, key, believed.expires_ms()).await
}

/// Begins a login of a person: with a fresh cookie, whatever cookie the browser had. It ends with `key`, and at
/// `until_ms` at the latest.
pub(crate) async fn begin(
    state: &ApiState,
    org: OrgId,
    user: UserId,
    key: Option<KeyId>,
    until_ms: Option<i64>,
) -> Result<Begun, ApiError> {
    let now = state.clock().now_ms();
    let (cookie, mut row) = Token::login(org, user.clone(), now);
    row.key = key;
    row.expires_ms = row.expires_ms.min(until_ms.unwrap_or(i64::MAX));
    let expires_ms = row.expires_ms;
    state.store().create_login(org, row, now).await?;
    Ok(Begun { org, user, cookie, expires_ms })
}
