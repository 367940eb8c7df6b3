//! One typed reason for every failure of a provider call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The reason why a provider call failed. Each variant asks something different of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ErrorReason {
    /// The key is missing, wrong or expired, or has no access to this model.
    Authentication,
    /// Too many requests or tokens for now.
    RateLimit {
        /// The wait that the provider asks for, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The account has no credit or has spent its budget; waiting does not help.
    Quota,
    /// The conversation is longer than the model's context.
    ContextOverflow,
    /// The provider refuses this content.
    ContentPolicy,
    /// The provider refuses state that came from itself: sealed or signed reasoning. A request without it may succeed.
    StateRefused,
    /// The provider does not understand the request, or does not have the model.
    InvalidRequest,
    /// The network failed.
    Transport {
        /// How far the request got.
        delivery: Delivery,
    },
    /// The provider failed or is overloaded.
    ProviderInternal {
        /// The wait that the provider asks for, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The provider's answer breaks its protocol.
    InvalidOutput {
        /// It only stopped early or was damaged in transit, so a retry may succeed.
        incomplete_stream: bool,
    },
    /// None of these; the provider's message is all we know.
    Unknown,
}

/// How far a request got before it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// No connection, or nothing was written. The provider has not seen the request and charges nothing.
    NotSent,
    /// Some or all of it was written, and no answer came. The provider may have worked on it, and may charge
    /// for it.
    Ambiguous,
    /// The provider answered, if only with a status.
    Accepted,
}

impl ErrorReason {
    /// Returns whether the same request may succeed later. A caller that has already shown output of the
    /// failed call must not simply send it again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimit { .. } | Self::ProviderInternal { .. } | Self::Transport { .. } => true,
            Self::InvalidOutput { incomplete_stream } => *incomplete_stream,
            Self::Authentication
            | Self::Quota
            | Self::ContextOverflow
            | Self::ContentPolicy
            | Self::StateRefused
            | Self::InvalidRequest
            | Self::Unknown => false,
        }
    }

    /// Returns how long the provider asks to wait, in milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimit { retry_after_ms } | Self::ProviderInternal { retry_after_ms } => {
                *retry_after_ms
            }
            Self::Authentication
            | Self::Quota
            | Self::ContextOverflow
            | Self::ContentPolicy
            | Self::StateRefused
            | Self::InvalidRequest
            | Self::Transport { .. }
            | Self::InvalidOutput { .. }
            | Self::Unknown => None,
        }
    }

    /// Returns a stable code for logs, metrics and clients.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Authentication => "provider.authentication",
            Self::RateLimit { .. } => "provider.rate-limit",
            Self::Quota => "provider.quota",
            Self::ContextOverflow => "provider.context-overflow",
            Self::ContentPolicy => "provider.content-filter",
            Self::StateRefused => "provider.state-refused",
            Self::InvalidRequest => "provider.invalid-request",
            Self::Transport { .. } => "provider.transport",
            Self::ProviderInternal { .. } => "provider.internal",
            Self::InvalidOutput { .. } => "provider.invalid-output",
            Self::Unknown => "provider.unknown",
        }
    }

    /// Says what happened and what to do, for the user. The provider's own words go beside it.
    #[must_use]
    pub fn user_message(&self) -> String {
        let text = match self {
            Self::Authentication => {
                "the model provider refused the credentials: check the API key and its access to this model"
            }
            Self::RateLimit { retry_after_ms: Some(wait) } => {
                return format!(
                    "the model provider limits the rate of requests: try again in {} s, or raise the limit with the provider",
                    wait.div_ceil(1000)
                );
            }
            Self::RateLimit { retry_after_ms: None } => {
                "the model provider limits the rate of requests: try again in a minute, or raise the limit with the provider"
            }
            Self::Quota => {
                "the account at the model provider has no credit left, or has reached its limit of use: add credit, wait for the limit's end, or use another key or provider"
            }
            Self::ContextOverflow => {
                "the conversation is longer than the model's context: compact it, start a new session, or choose a model with a larger context"
            }
            Self::ContentPolicy => {
                "the model provider refuses this content: rephrase the prompt, or remove what it objects to"
            }
            Self::StateRefused => {
                "the model provider refused reasoning that came from itself: send a prompt to try again, or choose another model"
            }
            Self::InvalidRequest => {
                "the model provider refused the request: check the model's name, its options and the base URL"
            }
            Self::Transport { delivery: Delivery::NotSent } => {
                "the model provider cannot be reached: check the base URL, the network and that the server runs"
            }
            Self::Transport { delivery: Delivery::Ambiguous } => {
                "the model provider did not answer: try again; it may have charged for this request"
            }
            Self::Transport { delivery: Delivery::Accepted } => {
                "the connection to the model provider broke during its answer: try again"
            }
            Self::ProviderInternal { .. } => {
                "the model provider failed or is overloaded: try again later, or use another model"
            }
            Self::InvalidOutput { incomplete_stream: true } => {
                "the model provider's answer did not arrive whole: try again"
            }
            Self::InvalidOutput { incomplete_stream: false } => {
                "the model provider's answer breaks its protocol: check that the base URL speaks the chosen protocol"
            }
            Self::Unknown => {
                "the model provider reported an error that is not known here: see its message"
            }
        };
        text.to_owned()
    }
}

/// An error that the provider stated, in an answer's body or in the middle of a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", reason.user_message())]
pub struct ProviderError {
    /// The kind of failure.
    pub reason: ErrorReason,
    /// The provider's words, at most [`ProviderError::MAX_MESSAGE_BYTES`]; may be empty.
    pub message: String,
}

impl ProviderError {
    /// The bound on a provider's message, in bytes.
    pub const MAX_MESSAGE_BYTES: usize = 2048;
}

/// Cuts `text` to at most `max_bytes`, never inside a character.
#[must_use]
pub fn truncate(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_pass_is_retried() {
        assert!(ErrorReason::RateLimit { retry_after_ms: None }.is_retryable());
        assert!(ErrorReason::Transport { delivery: Delivery::Ambiguous }.is_retryable());
        assert!(ErrorReason::InvalidOutput { incomplete_stream: true }.is_retryable());
        assert!(!ErrorReason::InvalidOutput { incomplete_stream: false }.is_retryable());
        assert!(!ErrorReason::Quota.is_retryable());
    }

    #[test]
    fn reasons_have_a_flat_json_form() {
        let reason = ErrorReason::RateLimit { retry_after_ms: Some(1500) };
        let json = serde_json::to_string(&reason).unwrap();
        assert_eq!(json, r#"{"type":"rate_limit","retry_after_ms":1500}"#);
        assert_eq!(serde_json::from_str::<ErrorReason>(&json).unwrap(), reason);
        assert!(reason.user_message().contains("try again in 2 s"));
    }

    #[test]
    fn truncation_keeps_characters_whole() {
        assert_eq!(truncate("aé", 2), "a");
        assert_eq!(truncate("aé", 3), "aé");
        assert_eq!(truncate("aé", 99), "aé");
    }
}
