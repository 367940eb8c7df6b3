//! Exchanges credentials for a token that a provider's models accept.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use llm_protocol::{Delivery, ErrorReason, Protocol};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;

use crate::auth::Auth;
use crate::client::{Client, read_text, redacted, refusal};
use crate::endpoint::{Endpoint, InvalidEndpoint, insert};
use crate::error::{LlmError, RetryAdvice};
use crate::secret::Secret;
use crate::transport::WireRequest;

/// The longest time that a token is used. Known providers' tokens last an hour.
const LASTS: Duration = Duration::from_mins(25);
/// The safety margin before the end that a token states, in milliseconds.
const MARGIN_MS: u64 = 60_000;
/// The most bytes of an answer, which holds a token and a dozen headers.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// The most tokens that a client keeps.
const MAX_KEPT: usize = 1_024;
/// Request headers of ours that an answer must not set.
const OURS: [&str; 6] =
    ["authorization", "x-api-key", "content-type", "content-length", "accept", "host"];

/// An address that gives a short-lived token for other credentials, and headers to send with it. The request
/// is a `POST` of `{}`; the answer is `{token, headers?, expires_at?}`, with the end in seconds since 1970. A
/// client keeps a token for at most 25 minutes, and fetches another when a provider refuses it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The address.
    pub url: String,
    /// The credentials for the exchange.
    pub with: Auth,
}

/// The token and headers from an exchange.
#[derive(Debug)]
pub(crate) struct Access {
    pub(crate) token: Secret,
    headers: Vec<(String, Secret)>,
    until_unix_ms: u64,
}

/// A client's tokens, by address and credentials.
#[derive(Default)]
pub(crate) struct Exchanges(Mutex<HashMap<String, Arc<Access>>>);

/// The place of one token among them.
#[derive(Clone)]
pub(crate) struct Kept {
    exchanges: Arc<Exchanges>,
    name: String,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    expires_at: Option<u64>,
}

impl Exchange {
    /// Returns a token that is valid now.
    pub(crate) async fn token(
        &self,
        client: &Client,
        unix_ms: u64,
    ) -> Result<(Arc<Access>, Kept), LlmError> {
        let url = Url::parse(&self.url).map_err(|error| InvalidEndpoint::BaseUrl {
            url: self.url.clone(),
            problem: error.to_string(),
        })?;
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let body = Bytes::from_static(b"{}");
        let mut request = WireRequest { method: Method::POST, url, headers, body };
        let endpoint = Endpoint::new(self.url.as_str());
        let (bearer, with) = (Protocol::OpenAiChat, &self.with);
        let sent = Box::pin(with.apply(client, bearer, &endpoint, &mut request, unix_ms)).await?;
        let credentials = request.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let credentials = String::from_utf8_lossy(credentials.unwrap_or_default());
        let name = format!("{} {credentials}", self.url);
        let kept = Kept { exchanges: Arc::clone(&client.exchanges), name };
        if let Some(access) = kept.get(unix_ms) {
            return Ok((access, kept));
        }
        let limit = client.options.first_byte_timeout;
        let Ok(answer) = tokio::time::timeout(limit, client.transport.send(request)).await else {
            return Err(unsent(&format!("no token for its models within {limit:?}")));
        };
        let answer = answer.map_err(|error| redacted(&sent.redactor, unsent(&error.message)))?;
        if !answer.status.is_success() {
            let mut error = refusal(&sent.redactor, answer).await;
            if error.status == Some(401) && sent.refused() {
                error.advice = Some(RetryAdvice::Retry { after_ms: None });
            }
            return Err(LlmError { delivery: Delivery::NotSent, ..error });
        }
        let text = read_text(answer.body, MAX_ANSWER_BYTES).await;
        let Some(access) = Access::read(&text, unix_ms) else {
            let reason = ErrorReason::InvalidOutput { incomplete_stream: false };
            let message = "what it gave in exchange for the credentials is no token for its models";
            return Err(LlmError::unsent(reason, message));
        };
        let access = Arc::new(access);
        kept.put(&access, unix_ms);
        Ok((access, kept))
    }
}

impl Access {
    fn read(text: &str, unix_ms: u64) -> Option<Self> {
        let answer: Answer = serde_json::from_str(text).ok()?;
        let end = answer.expires_at.map(|seconds| seconds.saturating_mul(1_000));
        let lasts = unix_ms.saturating_add(LASTS.as_millis().try_into().ok()?);
        let until_unix_ms = end.map_or(lasts, |end| lasts.min(end.saturating_sub(MARGIN_MS)));
        let is_theirs =
            |name: &String| !OURS.iter().any(|ours| name.trim().eq_ignore_ascii_case(ours));
        let headers = answer.headers.into_iter().filter(|(name, _)| is_theirs(name));
        let headers = headers.map(|(name, value)| (name, Secret::new(&value))).collect();
        let token = Secret::new(&answer.token);
        (!token.expose().is_empty()).then_some(Self { token, headers, until_unix_ms })
    }

    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) -> Result<(), InvalidEndpoint> {
        self.headers.iter().try_for_each(|(name, value)| insert(headers, name, value.expose()))
    }
}

impl Kept {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Access>>> {
        // No foreign code runs under this lock.
        self.exchanges.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, unix_ms: u64) -> Option<Arc<Access>> {
        let access = self.all().get(&self.name).cloned();
        access.filter(|access| access.until_unix_ms > unix_ms)
    }

    fn put(&self, access: &Arc<Access>, unix_ms: u64) {
        let mut all = self.all();
        if all.len() >= MAX_KEPT {
            all.retain(|_, access| access.until_unix_ms > unix_ms);
        }
        if all.len() >= MAX_KEPT {
            all.clear();
        }
        all.insert(self.name.clone(), Arc::clone(access));
    }

    /// Forgets a token that a provider refused.
    pub(crate) fn forget(&self, refused: &Access) {
        let mut all = self.all();
        if all.get(&self.name).is_some_and(|access| access.token == refused.token) {
            all.remove(&self.name);
        }
    }
}

/// Makes the error for a failed exchange. Nothing reached a model, so a retry may help.
fn unsent(message: &str) -> LlmError {
    LlmError::unsent(ErrorReason::Transport { delivery: Delivery::NotSent }, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_for_a_while_and_never_until_its_end() {
        let until = |text: &str| Access::read(text, 1_000_000).map(|access| access.until_unix_ms);
        assert_eq!(until(r#"{"token":"t"}"#), Some(1_000_000 + 25 * 60_000));
        assert_eq!(until(r#"{"token":"t","expires_at":1500}"#), Some(1_440_000));
        assert_eq!(until(r#"{"token":"t","expires_at":9999999}"#), Some(2_500_000));
        assert_eq!(until(r#"{"token":" "}"#), None);
        assert_eq!(until(r#"{"error":"t"}"#), None);
    }

    #[test]
    fn headers_that_are_ours_are_not_theirs_to_set() {
        let text = r#"{"token":"t","headers":{"X-Gitlab-Realm":"saas","X-Api-Key":"k","Authorization":"a"}}"#;
        let mut headers = HeaderMap::new();
        Access::read(text, 0).unwrap().add_headers(&mut headers).unwrap();
        assert_eq!(
            headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(),
            ["x-gitlab-realm"]
        );
    }
}
