//! The neutral events of a model's answer, in the order in which they arrive.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::RawJson;
use crate::message::{ToolCall, ToolResult};

/// One event of an answer. In JSON one object with its `type`, such as `text-delta`.
///
/// Order: a text or reasoning part is started, extended and ended before another of either kind starts;
/// tool input may be open beside it. `ToolCall` follows its `ToolInputEnd` at once; the `ToolResult` of a
/// call that the provider ran comes after its call. `StepFinish` and `Finish` come last and once. An answer that
/// fails ends with an error instead (see [`crate::ErrorEvent`] for its JSON).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum LlmEvent {
    /// A text part begins.
    TextStart {
        /// Unique within the answer.
        id: String,
    },
    /// Text is added to it; never empty.
    TextDelta {
        /// The part.
        id: String,
        /// The text to add.
        text: String,
    },
    /// The text part is complete.
    TextEnd {
        /// The part.
        id: String,
        /// Opaque data that its provider wants back with the part.
        #[serde(rename = "providerMetadata", skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<RawJson>,
    },
    /// A reasoning part begins.
    ReasoningStart {
        /// Unique within the answer.
        id: String,
    },
    /// Reasoning is added to it; never empty.
    ReasoningDelta {
        /// The part.
        id: String,
        /// The text to add.
        text: String,
    },
    /// The reasoning part is complete.
    ReasoningEnd {
        /// The part.
        id: String,
        /// Opaque data that its provider wants back with the part.
        #[serde(rename = "providerMetadata", skip_serializing_if = "Option::is_none")]
        provider_metadata: Option<RawJson>,
    },
    /// The model begins to write the arguments of a call.
    ToolInputStart {
        /// The id of the call.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// Raw text is added to the arguments; never empty.
    ToolInputDelta {
        /// The id of the call.
        id: String,
        /// The text to add.
        text: String,
    },
    /// The arguments are complete.
    ToolInputEnd {
        /// The id of the call.
        id: String,
    },
    /// A call is complete and may run, while the rest of the answer still streams.
    ToolCall(ToolCall),
    /// The result of a call that the provider ran itself.
    ToolResult(ToolResult),
    /// The provider call ended.
    StepFinish {
        /// The reason for its end.
        reason: FinishReason,
        /// Tokens used; none if the provider did not say.
        usage: Option<Usage>,
    },
    /// The answer ended. Equal to the `StepFinish` before it where one provider call is the whole answer.
    Finish {
        /// The reason for its end.
        reason: FinishReason,
        /// Tokens used in all; none if the provider did not say.
        usage: Option<Usage>,
    },
}

/// The reason for an answer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model finished, or met a stop string.
    Stop,
    /// The answer reached its token limit and is cut.
    Length,
    /// The model wants the results of its calls.
    ToolCalls,
    /// The provider withheld (the rest of) the answer, or the model refused.
    ContentFilter,
    /// The provider failed and said so as a reason.
    Error,
    /// The provider gave no reason, or one that we do not know.
    Unknown,
}

impl FinishReason {
    /// Returns the name in neutral JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool-calls",
            Self::ContentFilter => "content-filter",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// Tokens of one provider call. Input includes tokens that the cache read and wrote; output includes
/// reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// All input.
    pub input_tokens: u64,
    /// All output.
    pub output_tokens: u64,
    /// The part of the input that came from the provider's cache.
    pub cache_read_tokens: u64,
    /// The part of the input that was written to the provider's cache.
    pub cache_write_tokens: u64,
    /// The part of the output that is reasoning.
    pub reasoning_tokens: u64,
    /// Input and output.
    pub total_tokens: u64,
    /// Nobody counted the tokens: the answer came whole but its usage was lost, so this is an estimate from
    /// its bytes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// The most tokens that one answer can have read or written: several times the largest context of any model.
const MAX_ANSWER_TOKENS: u64 = 10_000_000;

impl Usage {
    /// Returns whether the counts can be true. A provider that counts with the wrong sign or unit says numbers that
    /// no request has; what they cost would stop whoever pays. The bytes of a request and its answer are no measure:
    /// hosted tools add input that was not sent, and hidden reasoning is output that never comes.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        let Self {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens,
            total_tokens: _, // nothing is added up from it
            estimated: _,
        } = *self;
        [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens]
            .into_iter()
            .all(|count| count <= MAX_ANSWER_TOKENS)
    }
}
