//! Logins of people in browsers.

use std::net::IpAddr;

use access::{Actor, Scopes, Standing};
use auth::{CodeError, LinkError, Recovered, Shown, Token, read_cookie};
use domain::{KeyId, LoginId, OrgId, TimestampMs, UserId};
use http::header::USER_AGENT;
use http::{HeaderMap, StatusCode};
use serde_json::json;
use store::{BeganBy, FollowedLink, StoreError, Via};

use crate::ApiState;
use crate::error::ApiError;
use crate::site::Site;

/// The most characters of a browser's name for itself that are kept.
const MAX_AGENT: usize = 256;

/// A browser in which a login begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct Visit {
    /// Its address, if known.
    pub(crate) peer: Option<IpAddr>,
    /// Its name for itself.
    agent: Option<String>,
    /// The cookie that it shows.
    cookie: Option<Token>,
}

impl Visit {
    pub(crate) fn of(headers: &HeaderMap, peer: Option<IpAddr>, site: &Site) -> Self {
        let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let cookie = read_cookie(headers, site.cookie()).ok().flatten();
        Self {
            peer,
            agent: agent.map(|agent| agent.chars().take(MAX_AGENT).collect()),
            cookie: cookie.and_then(|text| Token::read(&text)),
        }
    }

    fn address(&self) -> Option<String> {
        self.peer.map(|peer| peer.to_canonical().to_string())
    }
}

/// The proof with which a login begins.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) by: BeganBy,
    /// The login ends with this key.
    pub(crate) key: Option<KeyId>,
    /// The login is ended with this one, whose link began it.
    pub(crate) parent: Option<LoginId>,
    /// The login ends then at the latest.
    pub(crate) until_ms: Option<TimestampMs>,
    /// When the person proved who they are, if that was before.
    pub(crate) auth_ms: Option<TimestampMs>,
}

impl Beginning {
    pub(crate) fn new(by: BeganBy) -> Self {
        Self { by, key: None, parent: None, until_ms: None, auth_ms: None }
    }
}

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
pub(crate) async fn by_link(
    state: &ApiState,
    text: &str,
    visit: &Visit,
) -> Result<Begun, ApiError> {
    let followed = state.authenticator().follow(text, visit.peer).await;
    let (org, link) = followed.map_err(|error| match error {
        LinkError::Unknown => ApiError::NoLogin {
            code: "LINK_UNKNOWN",
            message: "this link logs nobody in: copy it again, whole, or make another with `opencode-cloud open`",
        },
        LinkError::Used => ApiError::NoLogin {
            code: "LINK_USED",
            message: "this link was followed before, and logs in once: make another with `opencode-cloud open`",
        },
        LinkError::Expired => ApiError::NoLogin {
            code: "LINK_EXPIRED",
            message: "this link is too old: make another with `opencode-cloud open`",
        },
        LinkError::MakerOver => ApiError::NoLogin {
            code: "LINK_EXPIRED",
            message: "the key or login that made this link has ended, and the link with it: make another with `opencode-cloud open`",
        },
        LinkError::PutOff(why) => why.into(),
        LinkError::Unavailable(error) => error.into(),
    })?;
    let FollowedLink { user, parent, key, auth_ms, until_ms } = link;
    let beginning = Beginning { by: BeganBy::Link, key, parent, until_ms, auth_ms };
    begin(state, org, user, beginning, visit).await
}

/// Begins a login with a person's key. A key that is confined to some scopes does not: a login has none.
pub(crate) async fn by_key(
    state: &ApiState,
    key: String,
    visit: &Visit,
) -> Result<Begun, ApiError> {
    let believed = state.authenticator().authenticate(&Shown::Key(key), visit.peer).await?;
    let principal = believed.principal();
    let Actor::User(user) = principal.standing().actor.clone() else {
        return Err(not_a_person(
            "this is a key of a service account; sign in with a key of yours, or a link of `opencode-cloud open`",
        ));
    };
    refuse_confined(principal.standing())?;
    let key = match principal.via() {
        Via::Key(key) => Some(key.clone()),
        Via::Login(_) => None,
    };
    let beginning =
        Beginning { key, until_ms: believed.expires_ms(), ..Beginning::new(BeganBy::Key) };
    begin(state, principal.org(), user, beginning, visit).await
}

fn not_a_person(message: &'static str) -> ApiError {
    ApiError::Barred { status: StatusCode::FORBIDDEN, code: "NOT_A_PERSON", message }
}

/// Refuses a key that is confined to some scopes where a login or its link begins: neither is, so the key would grow.
pub(crate) fn refuse_confined(standing: &Standing) -> Result<(), ApiError> {
    if standing.scopes == Scopes::all() {
        return Ok(());
    }
    Err(not_a_person("this key is confined to some scopes, and a login is not; use another key"))
}

/// Begins a login of an owner with a recovery code, and tells all owners.
pub(crate) async fn by_code(
    state: &ApiState,
    text: &str,
    visit: &Visit,
) -> Result<Begun, ApiError> {
    let address = visit.address();
    let about = {
        let address = address.clone();
        move |left: i64| json!({ "address": address, "left": left }).to_string()
    };
    let recovered = state.authenticator().recover(text, visit.peer, about).await;
    let Recovered { org, user, left } = recovered.map_err(refused)?;
    tracing::warn!(%user, address, left, "an owner has signed in with a recovery code");
    begin(state, org, user, Beginning::new(BeganBy::Code), visit).await
}

fn refused(error: CodeError) -> ApiError {
    match error {
        CodeError::Form => ApiError::NoLogin {
            code: "CODE_MISTYPED",
            message: "the code is mistyped: it has six groups of five letters and digits; compare it with your list",
        },
        CodeError::Used => ApiError::NoLogin {
            code: "CODE_USED",
            message: "this code was used before, and logs in once: take the next one of your list. If it was not you, make new codes at once",
        },
        CodeError::NoOwner => ApiError::NoLogin {
            code: "CODE_NO_OWNER",
            message: "whoever made this code is no owner any more: ask an owner, or whoever runs the service for a link of `opencode-cloud owner-link`",
        },
        CodeError::Unknown => ApiError::NoLogin {
            code: "CODE_UNKNOWN",
            message: "this code logs nobody in: newer codes may have taken its place. Use the newest list, or ask whoever runs the service for a link of `opencode-cloud owner-link`",
        },
        CodeError::PutOff(why) => why.into(),
        CodeError::Unavailable(error) => error.into(),
    }
}

/// Begins a login of a person: with a fresh cookie, whatever cookie the browser had. The login of that cookie ends soon.
pub(crate) async fn begin(
    state: &ApiState,
    org: OrgId,
    user: UserId,
    beginning: Beginning,
    visit: &Visit,
) -> Result<Begun, ApiError> {
    let now = state.clock().now_ms();
    let (cookie, mut row) = Token::login(org, user.clone(), beginning.by, now);
    (row.key, row.parent) = (beginning.key, beginning.parent);
    row.expires_ms = row.expires_ms.min(beginning.until_ms.unwrap_or(i64::MAX));
    row.auth_ms = beginning.auth_ms;
    (row.address, row.agent) = (visit.address(), visit.agent.clone());
    let expires_ms = row.expires_ms;
    match state.store().create_login(org, row, now).await {
        Ok(()) => {}
        Err(StoreError::NotFound) => {
            let message = "the key or login with which this one was to begin has ended";
            return Err(ApiError::Unauthenticated(message.to_owned()));
        }
        Err(error) => return Err(error.into()),
    }
    if let Some((org, former)) = former(state, visit).await {
        replace(state, org, former).await;
    }
    Ok(Begun { org, user, cookie, expires_ms })
}

/// Returns the login that a browser proves by its cookie.
pub(crate) async fn former(state: &ApiState, visit: &Visit) -> Option<(OrgId, LoginId)> {
    let token = visit.cookie.as_ref()?;
    let (org, id, now) = (token.org(), token.login_id(), state.clock().now_ms());
    match state.store().login_by_id(org, id.clone(), now).await {
        Ok(proof) => proof.is_proved_by(&token.hash()).then_some((org, id)),
        Err(StoreError::NotFound) => None,
        Err(error) => {
            tracing::warn!(%error, "the browser's former login stays until it ends by itself");
            None
        }
    }
}

/// Lets a login end soon that another one has replaced. The new one is good whether that works or not.
pub(crate) async fn replace(state: &ApiState, org: OrgId, former: LoginId) {
    let now = state.clock().now_ms();
    if let Err(error) = state.store().replace_login(org, former, now).await {
        tracing::warn!(%error, "the browser's former login stays until it ends by itself");
    }
}
