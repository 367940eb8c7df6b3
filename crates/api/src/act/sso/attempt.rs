//! A sign-in while its browser is at the provider. The browser keeps it, sealed, in a cookie: who begins a sign-in writes
//! nothing here, so nobody pushes out those of others.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::{IdpId, LoginId, OrgId, TimestampMs, UserId};
use oidc::Attempt;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Purpose, Sealed};

use crate::ApiState;
use crate::error::ApiError;

/// The first characters of the cookie. That of a build before has none of them.
const FORM: &str = "1.";
/// The version to which a cookie's content is bound: nothing else is sealed for it.
const IN_COOKIE: i64 = -1;

/// A sign-in as its browser carries it.
#[derive(Serialize, Deserialize)]
pub(super) struct CarriedAttempt {
    pub(super) secrets: Attempt,
    purpose: CarriedPurpose,
    pub(super) return_to: String,
    /// The login that the browser had when it began.
    pub(super) former: Option<LoginId>,
    /// When it is too late to come back.
    pub(super) expires_ms: TimestampMs,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CarriedPurpose {
    Login,
    Test,
    Link(UserId),
}

impl CarriedAttempt {
    pub(super) fn new(
        secrets: Attempt,
        purpose: Purpose,
        return_to: String,
        former: Option<LoginId>,
        expires_ms: TimestampMs,
    ) -> Self {
        let purpose = match purpose {
            Purpose::Login => CarriedPurpose::Login,
            Purpose::Test => CarriedPurpose::Test,
            Purpose::Link(user) => CarriedPurpose::Link(user),
        };
        Self { secrets, purpose, return_to, former, expires_ms }
    }

    pub(super) fn purpose(&self) -> Purpose {
        match &self.purpose {
            CarriedPurpose::Login => Purpose::Login,
            CarriedPurpose::Test => Purpose::Test,
            CarriedPurpose::Link(user) => Purpose::Link(user.clone()),
        }
    }

    /// Returns the cookie's text, which only this connection opens.
    pub(super) async fn seal(
        &self,
        state: &ApiState,
        org: OrgId,
        idp: &IdpId,
    ) -> Result<String, ApiError> {
        let text = json!(self).to_string();
        let credentials = state.credentials();
        let sealed = credentials.seal_of(org, idp.as_str(), IN_COOKIE, text.as_bytes()).await?;
        Ok(format!("{FORM}{}.{}", sealed.secret, URL_SAFE_NO_PAD.encode(sealed.bytes)))
    }

    /// Opens a cookie. `None`: it is of another connection, changed, or too old. With it, the data key's number.
    pub(super) async fn open(
        state: &ApiState,
        org: OrgId,
        idp: &IdpId,
        cookie: &str,
    ) -> Option<(Self, i32)> {
        let (secret, bytes) = cookie.strip_prefix(FORM)?.split_once('.')?;
        let sealed =
            Sealed { secret: secret.parse().ok()?, bytes: URL_SAFE_NO_PAD.decode(bytes).ok()? };
        let opened = state.credentials().open_of(org, idp.as_str(), IN_COOKIE, &sealed).await;
        let text = opened
            .inspect_err(|error| tracing::debug!(%error, "the cookie of a sign-in is not opened"))
            .ok()?;
        let attempt: Self = serde_json::from_slice(&text).ok()?;
        let is_in_time = state.clock().now_ms() < attempt.expires_ms;
        is_in_time.then_some((attempt, sealed.secret))
    }

    /// Returns whether a cookie is of this form.
    pub(super) fn is_carried_by(cookie: &str) -> bool {
        cookie.starts_with(FORM)
    }
}
