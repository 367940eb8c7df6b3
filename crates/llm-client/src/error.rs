//! The errors of a call: causes, and advice to the caller.

use std::fmt;
use std::time::Duration;

use llm_protocol::retry::Schedule;
use llm_protocol::{DecodeError, Delivery, ErrorEvent, ErrorReason, ProviderError, truncate};
use reqwest::Url;

use crate::certificate::UNTRUSTED;
use crate::endpoint::InvalidEndpoint;
use crate::transport::TransportError;

/// A failed call of a provider. Its text gives the advice first, then the provider's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmError {
    /// The typed reason. It decides about a retry, unless the provider gives advice.
    pub reason: ErrorReason,
    /// How far the request got. *Accepted* means that an answer began, if only a status.
    pub delivery: Delivery,
    /// The status of the answer, if one came.
    pub status: Option<u16>,
    /// The message of the provider or the network layer, at most 2 KiB and without our secrets. May be empty.
    pub provider_message: String,
    /// The provider's id of the request, for support cases.
    pub request_id: Option<String>,
    /// The provider's own advice about a retry, which overrides the reason.
    pub advice: Option<RetryAdvice>,
    /// The host that was asked, with its port if the base URL names one, where the network failed before an answer.
    pub host: Option<Box<str>>,
}

/// The name of a provider in our sentences, of which we know nothing else.
const PROVIDER: &str = "the model provider";

/// HTTP's words before the cause of a failure. Our own sentence replaces them.
const LAYERS: [&str; 2] = ["error sending request: ", "client error (Connect): "];

/// A provider's advice about a retry: its header `x-should-retry`, which the SDKs of OpenAI and Anthropic
/// obey over the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// Retry, after this wait if there is one.
    Retry {
        /// Its `retry-after`, in milliseconds.
        after_ms: Option<u64>,
    },
    /// Do not retry.
    GiveUp,
}

impl LlmError {
    pub(crate) fn new(reason: ErrorReason, delivery: Delivery, message: &str) -> Self {
        let message = truncate(message, ProviderError::MAX_MESSAGE_BYTES).to_owned();
        Self {
            reason,
            delivery,
            status: None,
            provider_message: message,
            request_id: None,
            advice: None,
            host: None,
        }
    }

    /// Names the host of the URL that was asked, and nothing else of the URL: the rest may hold a secret.
    pub(crate) fn with_host(mut self, url: &Url) -> Self {
        self.host = url.host_str().map(|host| match url.port() {
            Some(port) => format!("{host}:{port}").into(),
            None => host.into(),
        });
        self
    }

    /// Makes the error for a failure before anything was sent, such as a token that is not available.
    #[must_use]
    pub fn unsent(reason: ErrorReason, message: &str) -> Self {
        Self::new(reason, Delivery::NotSent, message)
    }

    /// Makes the error for a failure after the answer began.
    pub(crate) fn accepted(reason: ErrorReason, message: &str) -> Self {
        Self::new(reason, Delivery::Accepted, message)
    }

    /// Makes the error for a network failure or a timeout.
    pub(crate) fn transport(delivery: Delivery, message: &str) -> Self {
        Self::new(ErrorReason::Transport { delivery }, delivery, message)
    }

    /// Returns the last event of a failed answer, in neutral JSON.
    #[must_use]
    pub fn event(&self) -> ErrorEvent {
        ErrorEvent {
            reason: self.reason.name(),
            retryable: self.is_retryable(),
            retry_after_ms: self.retry_after().and_then(|wait| wait.as_millis().try_into().ok()),
            delivery: self.delivery,
            status: self.status,
            message: self.advice_text(),
            provider_message: self.provider_message.clone(),
            request_id: self.request_id.clone(),
        }
    }

    /// Says what happened and what to do. A certificate that is not trusted has its own sentence.
    fn advice_text(&self) -> String {
        if self.is_untrusted() {
            return self.provider_message.clone();
        }
        let text = self.reason.user_message();
        match &self.host {
            Some(host) if matches!(self.reason, ErrorReason::Transport { .. }) => {
                text.replacen(PROVIDER, host, 1)
            }
            Some(_) | None => text,
        }
    }

    fn is_untrusted(&self) -> bool {
        self.delivery == Delivery::NotSent && self.provider_message.starts_with(UNTRUSTED)
    }

    /// Returns the wait that the provider asks for before a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let asked = match self.advice {
            Some(RetryAdvice::Retry { after_ms }) => after_ms.or(self.reason.retry_after_ms()),
            Some(RetryAdvice::GiveUp) | None => self.reason.retry_after_ms(),
        };
        asked.map(Duration::from_millis)
    }

    /// Returns whether a retry may succeed, by the provider's advice or else by the reason.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.advice {
            Some(RetryAdvice::Retry { .. }) => true,
            Some(RetryAdvice::GiveUp) => false,
            None => self.reason.is_retryable(),
        }
    }

    /// Returns whether the provider refused the request as too large, or in words that may hide it.
    #[must_use]
    pub fn may_be_overflow(&self) -> bool {
        let is_about_body = matches!(self.status, None | Some(200 | 400 | 413 | 422));
        match self.reason {
            ErrorReason::ContextOverflow => true,
            ErrorReason::InvalidRequest | ErrorReason::Unknown => {
                is_about_body && self.delivery == Delivery::Accepted
            }
            ErrorReason::Authentication
            | ErrorReason::RateLimit { .. }
            | ErrorReason::Quota
            | ErrorReason::ContentPolicy
            | ErrorReason::StateRefused
            | ErrorReason::Transport { .. }
            | ErrorReason::ProviderInternal { .. }
            | ErrorReason::InvalidOutput { .. } => false,
        }
    }

    /// Returns whether the provider may charge for the request although there is no whole answer.
    #[must_use]
    pub fn may_be_charged(&self) -> bool {
        match self.reason {
            ErrorReason::Transport { delivery } => delivery != Delivery::NotSent,
            ErrorReason::InvalidOutput { .. } => true,
            ErrorReason::Authentication
            | ErrorReason::RateLimit { .. }
            | ErrorReason::Quota
            | ErrorReason::ContextOverflow
            | ErrorReason::ContentPolicy
            | ErrorReason::StateRefused
            | ErrorReason::InvalidRequest
            | ErrorReason::ProviderInternal { .. }
            | ErrorReason::Unknown => false,
        }
    }

    /// Returns the wait after `failed` attempts, the last of which failed with this error. `None` if a retry
    /// would not help or none is left. `rand` is any random number (see [`Schedule::wait`]).
    #[must_use]
    pub fn next_delay(&self, schedule: &Schedule, failed: u32, rand: u64) -> Option<Duration> {
        if !self.is_retryable() {
            return None;
        }
        schedule.wait(failed, self.retry_after(), rand)
    }
}

impl fmt::Display for LlmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason == ErrorReason::Authentication && self.delivery == Delivery::NotSent {
            // No provider saw the credentials, so none refused them.
            f.write_str("the credentials for the model provider cannot be used")?;
        } else {
            f.write_str(&self.advice_text())?;
        }
        if self.is_untrusted() {
            return Ok(());
        }
        match (self.status.filter(|status| *status >= 300), self.provider_message.as_str()) {
            (None, "") => Ok(()),
            (None, message) => write!(f, " ({message})"),
            (Some(status), "") => write!(f, " (status {status})"),
            (Some(status), message) => write!(f, " (status {status}: {message})"),
        }
    }
}

impl std::error::Error for LlmError {}

impl From<InvalidEndpoint> for LlmError {
    fn from(error: InvalidEndpoint) -> Self {
        let reason = match error {
            InvalidEndpoint::Key => ErrorReason::Authentication,
            InvalidEndpoint::BaseUrl { .. } | InvalidEndpoint::Header { .. } => {
                ErrorReason::InvalidRequest
            }
        };
        Self::new(reason, Delivery::NotSent, &error.to_string())
    }
}

impl From<TransportError> for LlmError {
    fn from(error: TransportError) -> Self {
        let mut cause = error.message.as_str();
        for layer in LAYERS {
            cause = cause.strip_prefix(layer).unwrap_or(cause);
        }
        let mut failed = Self::transport(error.delivery, cause);
        // No other try changes a certificate.
        failed.advice = failed.is_untrusted().then_some(RetryAdvice::GiveUp);
        failed
    }
}

impl From<DecodeError> for LlmError {
    fn from(error: DecodeError) -> Self {
        let reason = error.reason();
        match error {
            DecodeError::Provider(error) => Self::accepted(reason, &error.message),
            DecodeError::Truncated
            | DecodeError::Damaged { .. }
            | DecodeError::Failed { .. }
            | DecodeError::Malformed { .. }
            | DecodeError::TooLarge { .. } => Self::accepted(reason, &error.to_string()),
        }
    }
}
