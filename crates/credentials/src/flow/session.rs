//! The second exchange: some providers' APIs, such as GitHub Copilot's, take a short-lived token that the
//! access token is exchanged for.

use bytes::Bytes;
use domain::TimestampMs;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use llm_client::{Secret, WireRequest};
use serde_json::Value;
use url::Url;

use super::http::send;
use super::{FlowError, OAuthClient};
use crate::material::{SessionToken, Tokens};
use crate::settings::ExchangeSettings;

impl OAuthClient {
    /// Adds the API's own token to `tokens`, if the settings have a second exchange.
    pub(crate) async fn exchange(
        &self,
        tokens: Tokens,
        now: TimestampMs,
    ) -> Result<Tokens, FlowError> {
        let Some(exchange) = &self.settings.exchange else { return Ok(tokens) };
        let session = self.session_token(exchange, &tokens.access, now).await?;
        Ok(Tokens { session: Some(session), ..tokens })
    }

    async fn session_token(
        &self,
        exchange: &ExchangeSettings,
        access: &Secret,
        now: TimestampMs,
    ) -> Result<SessionToken, FlowError> {
        let unusable = |what: &str| FlowError::Unusable(what.to_owned());
        let url = Url::parse(&exchange.url)
            .map_err(|_| unusable("`oauth.exchange.url` is no address"))?;
        let value = HeaderValue::try_from(format!("{} {}", exchange.scheme, access.expose()));
        let mut value = value.map_err(|_| unusable("the access token fits in no header"))?;
        value.set_sensitive(true);
        let headers = HeaderMap::from_iter([
            (AUTHORIZATION, value),
            (ACCEPT, HeaderValue::from_static("application/json")),
        ]);
        let request = WireRequest { method: Method::GET, url, headers, body: Bytes::new() };
        let (status, body) = send(&self.transport, request)
            .await
            .map_err(|error| FlowError::Unavailable(error.to_string()))?;
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // The access token came from the grant, so the grant is over without it.
            let words = format!("its exchange answers with the status {status}");
            return Err(self.refusal("invalid_grant", &words, &[access]));
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = body["token"].as_str().or_else(|| body["access_token"].as_str());
        let Some(token) = token.filter(|_| status.is_success()) else {
            return Err(unusable("the provider's exchange gave no token"));
        };
        let at = body["expires_at"].as_i64().map(|seconds| seconds.saturating_mul(1_000));
        let lasts = body["expires_in"].as_i64().map(|seconds| seconds.saturating_mul(1_000));
        let expires_ms = at.or_else(|| lasts.map(|lasts| now.saturating_add(lasts)));
        Ok(SessionToken { token: Secret::new(token), expires_ms })
    }
}
