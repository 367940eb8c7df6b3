//! The authorization code flow with PKCE (RFC 6749 4.1, RFC 7636): a browser visits the provider and comes
//! back with a code.

use domain::TimestampMs;
use llm_client::Secret;
use oauth2::{AuthorizationCode, CsrfToken, PkceCodeChallenge, PkceCodeVerifier, Scope};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;

use super::http::caller;
use super::{FlowError, OAuthClient, tokens};
use crate::EnvelopeError;
use crate::material::Tokens;

/// The state of a sign-in by code, needed at its end.
pub(crate) struct CodeSignIn {
    pub(crate) url: String,
    state: String,
    verifier: String,
    redirect: String,
}

impl CodeSignIn {
    /// Returns the bytes to seal.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let Self { url, state, verifier, redirect } = self;
        json!({ "url": url, "state": state, "verifier": verifier, "redirect": redirect })
            .to_string()
            .into_bytes()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let value: Value = serde_json::from_slice(bytes).map_err(|_| EnvelopeError::Refused)?;
        let text =
            |name: &str| value[name].as_str().map(str::to_owned).ok_or(EnvelopeError::Refused);
        Ok(Self {
            url: text("url")?,
            state: text("state")?,
            verifier: text("verifier")?,
            redirect: text("redirect")?,
        })
    }

    /// Returns whether the browser that came back is the one that we sent. Otherwise someone tries to insert
    /// their own code.
    pub(crate) fn is_state(&self, state: &str) -> bool {
        self.state.as_bytes().ct_eq(state.as_bytes()).into()
    }
}

impl OAuthClient {
    /// Starts the flow and returns the address for the browser, which comes back to `redirect`.
    pub(crate) fn begin_code(&self, redirect: &str) -> Result<CodeSignIn, FlowError> {
        let client = self.inner(Some(redirect))?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let asking = client
            .authorize_url(CsrfToken::new_random)
            .map_err(|_| FlowError::Unusable("`oauth.authorizeUrl` is missing".to_owned()))?;
        let asking = asking
            .add_scopes(self.settings.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(challenge);
        let extra = self.settings.extra.iter();
        let asking =
            extra.fold(asking, |asking, (name, value)| asking.add_extra_param(name, value));
        let (url, state) = asking.url();
        Ok(CodeSignIn {
            url: url.into(),
            state: state.into_secret(),
            verifier: verifier.into_secret(),
            redirect: redirect.to_owned(),
        })
    }

    /// Exchanges the code that the browser brought back for tokens.
    pub(crate) async fn end_code(
        &self,
        sign_in: CodeSignIn,
        code: &Secret,
        now: TimestampMs,
    ) -> Result<Tokens, FlowError> {
        let client = self.inner(Some(&sign_in.redirect))?;
        let http = caller(self.transport.clone());
        let verifier = Secret::new(&sign_in.verifier);
        let answer = client
            .exchange_code(AuthorizationCode::new(code.expose().to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(sign_in.verifier))
            .request_async(&http)
            .await;
        let answer = answer.map_err(|error| self.error(error, &[code, &verifier]))?;
        Ok(tokens(&answer, now))
    }
}
