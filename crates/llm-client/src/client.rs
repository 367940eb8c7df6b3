//! The client: one request, one answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use llm_protocol::{
    Delivery, ErrorReason, classify_in_stream, classify_named, http_date_unix_ms, limit_reset_ms,
    retry_after_ms, stated_error, truncate, value_of,
};
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderValue,
    LOCATION, RETRY_AFTER,
};
use reqwest::{Method, Url};

use crate::error::{LlmError, RetryAdvice};
use crate::exchange::Exchanges;
use crate::options::Options;
use crate::reqwest_transport::ReqwestTransport;
use crate::route::Route;
use crate::secret::Redactor;
use crate::stream::{Bounds, LlmStream, Reading};
use crate::transport::{ProviderTransport, WireRequest, WireResponse};
use crate::whole;

/// The most bytes of an error's body that are read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// The most bytes of a provider's words beside the address that was asked.
const MAX_SAID_BYTES: usize = 1_024;
/// The longest wait for an error's body, whose status is already known.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls providers. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub(crate) transport: Arc<dyn ProviderTransport>,
    pub(crate) options: Arc<Options>,
    pub(crate) exchanges: Arc<Exchanges>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The reason why a client could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// TLS could not be set up.
    #[error("the HTTP client for model providers cannot be set up: {0}")]
    Tls(#[source] reqwest::Error),
}

impl Client {
    /// Makes a client over the real network.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(options: Options) -> Result<Self, ClientError> {
        let transport = ReqwestTransport::new(&options)?;
        Ok(Self::with_transport(Arc::new(transport), options))
    }

    /// Makes a client over any transport.
    #[must_use]
    pub fn with_transport(transport: Arc<dyn ProviderTransport>, options: Options) -> Self {
        Self { transport, options: Arc::new(options), exchanges: Arc::default() }
    }

    /// Sends one request and returns its answer.
    pub(crate) async fn exchange(
        &self,
        route: &Route,
        model: &str,
        body: Bytes,
    ) -> Result<LlmStream, LlmError> {
        let Route { protocol, endpoint, auth, dialect, .. } = route;
        let url = endpoint.request_url(*protocol, model)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let accept = HeaderValue::from_static(protocol.framing().media_type());
        headers.insert(ACCEPT, accept);
        // A compressed stream would come in blocks, and we do not decompress.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let (asked_bytes, address) = (body.len(), url.clone());
        let mut request = WireRequest { method: Method::POST, url, headers, body };
        let sent = auth.apply(self, *protocol, endpoint, &mut request, now_unix_ms()).await?;
        let silence = route.silence.unwrap_or(self.options.idle_timeout);
        let first_byte = match route.silence {
            Some(silence) => silence.max(self.options.first_byte_timeout),
            None => self.options.first_byte_timeout,
        };
        let answer = tokio::time::timeout(first_byte, Box::pin(self.transport.send(request)));
        let Ok(answer) = answer.await else {
            let waited = format!("no answer within {first_byte:?}");
            return Err(LlmError::transport(Delivery::Ambiguous, &waited).with_host(&address));
        };
        let response = answer
            .map_err(|error| redacted(&sent.redactor, LlmError::from(error).with_host(&address)))?;
        if let Some(coding) = compression(&response.headers) {
            return Err(compressed(&response, coding));
        }
        let most = self.options.max_response_bytes;
        let response = match whole::make_stream(*protocol, response, most, silence).await {
            Ok(response) => response,
            Err(response) => {
                let mut error = refusal(&sent.redactor, response).await;
                if matches!(error.status, Some(404 | 405)) {
                    error = redacted(&sent.redactor, with_address(error, address));
                }
                // The token may have expired early. A retry gets a new one; the caller bounds the retries.
                let is_of_token = error.reason != ErrorReason::Quota;
                if error.status == Some(401) && is_of_token && sent.refused() {
                    error.advice = Some(RetryAdvice::Retry { after_ms: None });
                }
                return Err(error);
            }
        };
        let framer = protocol.framer(self.options.max_frame_bytes);
        let decoder = protocol.decoder_for(model, dialect);
        let bounds = Bounds { silence, asked_bytes, max_bytes: self.options.max_response_bytes };
        let reading = Reading::new(*protocol, framer, decoder, sent.redactor, bounds, response);
        Ok(LlmStream::new(reading))
    }
}

/// Adds the address that was asked to an error, without its query, which may hold a key.
fn with_address(mut error: LlmError, mut address: Url) -> LlmError {
    address.set_query(None);
    error.provider_message = match truncate(&error.provider_message, MAX_SAID_BYTES) {
        "" => format!("asked at {address}"),
        said => format!("{said}; asked at {address}"),
    };
    error
}

/// Returns the answer's compression, if it has one.
fn compression(headers: &HeaderMap) -> Option<&str> {
    header(headers, CONTENT_ENCODING.as_str()).map(str::trim).filter(|coding| *coding != "identity")
}

/// Returns the error for a compressed answer. It is final, whatever the status says about retries: the
/// request refused compression, and a retry would come back compressed too.
fn compressed(response: &WireResponse, coding: &str) -> LlmError {
    let coding = truncate(coding, 64);
    let message = format!(
        "it answered compressed ({coding}) though the request asks for no compression: a proxy before it should leave \
         `accept-encoding: identity` as it is"
    );
    let invalid = ErrorReason::InvalidOutput { incomplete_stream: false };
    let reason = match response.status.as_u16() {
        200..=299 => invalid,
        // The body is unreadable; the status still counts.
        status => classify_named(status, wait_ms(&response.headers), None, &message).reason,
    };
    let mut error = LlmError::accepted(reason, &message);
    error.status = Some(response.status.as_u16());
    error.request_id = request_id(&response.headers);
    error
}

/// Converts an answer that is not a stream into its error.
pub(crate) async fn refusal(redactor: &Redactor, response: WireResponse) -> LlmError {
    let WireResponse { status, headers, body } = response;
    let body = read_text(body, MAX_ERROR_BODY_BYTES).await;
    let mut error = if status.is_success() {
        not_a_stream(&headers, &body)
    } else if let (true, Some(to)) = (status.is_redirection(), header(&headers, LOCATION.as_str()))
    {
        let to = format!("it redirects to {to}, which is not followed: use the base URL there");
        LlmError::accepted(ErrorReason::InvalidRequest, &to)
    } else {
        let name = header(&headers, "x-amzn-errortype");
        let error = classify_named(status.as_u16(), wait_ms(&headers), name, &body);
        LlmError::accepted(error.reason, &error.message)
    };
    add_limit_wait(&mut error.reason, &headers, &body);
    error.status = Some(status.as_u16());
    error.request_id = request_id(&headers);
    error.advice = advice(&headers);
    redacted(redactor, error)
}

fn advice(headers: &HeaderMap) -> Option<RetryAdvice> {
    match header(headers, "x-should-retry")? {
        "true" => Some(RetryAdvice::Retry { after_ms: wait_ms(headers) }),
        "false" => Some(RetryAdvice::GiveUp),
        _ => None,
    }
}

/// Returns the error in an answer with status 200: some gateways send JSON errors that way.
fn not_a_stream(headers: &HeaderMap, body: &str) -> LlmError {
    let json = value_of(body).unwrap_or_default();
    let json = json.get(0).unwrap_or(&json); // Gemini wraps its error in a list of one
    if let Some(error) = stated_error(json) {
        let error = classify_in_stream(error);
        return LlmError::accepted(error.reason, &error.message);
    }
    let kind = header(headers, CONTENT_TYPE.as_str()).unwrap_or_default();
    let message = format!("it answered with {kind} instead of a stream of events");
    LlmError::accepted(ErrorReason::InvalidOutput { incomplete_stream: false }, &message)
}

/// Returns the start of a body, as far as it arrives in time.
pub(crate) async fn read_text(
    mut body: futures::stream::BoxStream<'static, Result<Bytes, crate::TransportError>>,
    max_bytes: usize,
) -> String {
    let mut bytes = Vec::new();
    let read = async {
        while let Some(Ok(chunk)) = body.next().await {
            let room = max_bytes - bytes.len();
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if bytes.len() == max_bytes {
                break;
            }
        }
    };
    // A failure while reading an error's body is not another error. Show the part that came.
    let _late = tokio::time::timeout(ERROR_BODY_TIMEOUT, read).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Adds the wait until a limit ends to an error that says none.
pub(crate) fn add_limit_wait(reason: &mut ErrorReason, headers: &HeaderMap, body: &str) {
    if *reason == (ErrorReason::RateLimit { retry_after_ms: None }) {
        let stated = |name: &str| header(headers, name).map(str::to_owned);
        let retry_after_ms = limit_reset_ms(stated, body, provider_unix_ms(headers));
        *reason = ErrorReason::RateLimit { retry_after_ms };
    }
}

/// Returns the provider's time, because our clock may be wrong, or else ours.
fn provider_unix_ms(headers: &HeaderMap) -> u64 {
    header(headers, DATE.as_str()).and_then(http_date_unix_ms).unwrap_or_else(now_unix_ms)
}

fn wait_ms(headers: &HeaderMap) -> Option<u64> {
    let now = provider_unix_ms(headers);
    retry_after_ms(header(headers, RETRY_AFTER.as_str()), header(headers, "retry-after-ms"), now)
}

#[expect(
    clippy::disallowed_methods,
    reason = "for a wait, or a signature that AWS compares with its own clock: never a durable time"
)]
pub(crate) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the request's id, in the header of OpenAI and most others, of Anthropic, or of AWS.
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let names = ["x-request-id", "request-id", "x-amzn-requestid"];
    let id = names.into_iter().find_map(|name| header(headers, name))?;
    Some(truncate(id, 256).to_owned())
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(crate) fn redacted(redactor: &Redactor, mut error: LlmError) -> LlmError {
    error.provider_message = redactor.redact(error.provider_message);
    error
}
