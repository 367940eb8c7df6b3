//! The `error` event, which ends a failed answer in neutral JSON.

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::{Delivery, ErrorReason};

/// The last event of an answer that failed. In JSON `{"type":"error","reason":"rate-limit",…}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename = "error", rename_all = "camelCase")]
pub struct ErrorEvent {
    /// [`ErrorReason::name`].
    #[schemars(extend("enum" = ErrorReason::NAMES))]
    pub reason: &'static str,
    /// The same request may succeed later.
    pub retryable: bool,
    /// The wait that the provider asks for, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// How far the request got.
    pub delivery: Delivery,
    /// The status of the answer, if one came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The problem and the remedy.
    pub message: String,
    /// The provider's own words; may be empty.
    pub provider_message: String,
    /// The provider's id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

impl ErrorReason {
    /// All names in neutral JSON.
    pub const NAMES: [&str; 11] = [
        "authentication",
        "rate-limit",
        "quota",
        "overflow",
        "content-policy",
        "state-refused",
        "invalid-request",
        "transport",
        "provider-internal",
        "invalid-output",
        "unknown",
    ];

    /// Returns the reason's name in neutral JSON.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::RateLimit { .. } => "rate-limit",
            Self::Quota => "quota",
            Self::ContextOverflow => "overflow",
            Self::ContentPolicy => "content-policy",
            Self::StateRefused => "state-refused",
            Self::InvalidRequest => "invalid-request",
            Self::Transport { .. } => "transport",
            Self::ProviderInternal { .. } => "provider-internal",
            Self::InvalidOutput { .. } => "invalid-output",
            Self::Unknown => "unknown",
        }
    }
}
