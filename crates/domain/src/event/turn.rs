use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, CallId, Finish, MessageId, ModelRef, PartId, Pricing, Seq, SessionError, Stored,
    TimestampMs, TurnId, words,
};

use super::{is_false, is_zero};

/// Payload of `turn.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnStarted {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// The user message that it answers.
    pub parent: MessageId,
    /// The agent, sampled for this turn.
    pub agent: String,
    /// The model, sampled for this turn.
    pub model: ModelRef,
    /// The Context Epoch.
    pub epoch: i32,
    /// Turns since the last batch of promoted inputs, with this one.
    pub step: i32,
    /// Notices for the session's users, a line each, in the first turn that has them: that the model is deprecated, for
    /// example, or that a settings file of the project has a mistake. No model sees them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// Payload of `attempt.started`: everything that rebuilds the request, besides the events before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptStarted {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// The number of the attempt within the turn, from 1.
    pub ordinal: i32,
    /// SHA-256 of the body, hex.
    pub body_hash: String,
    /// The version of the encoder that made the body.
    pub wire_version: u32,
    /// The Context Epoch.
    pub epoch: i32,
    /// The last event whose fold is in the request.
    pub through: Seq,
    /// The parts of the request besides history.
    pub components: ComponentList,
    /// The prices of the request; `None` for a model without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
}

/// Component name → SHA-256 (hex) of its bytes in `request_component`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ComponentList {
    /// The hash of the list. Its JSON text is a component too, since most attempts of a session have the same list.
    Stored(String),
    /// The list itself.
    Inline(BTreeMap<String, String>),
}

words! {
    /// The outcome of a wire request.
    pub enum AttemptOutcome {
        /// A whole reply.
        Completed = "completed",
        /// The provider refused it, or it could not be delivered.
        Failed = "failed",
        /// The stream ended in the middle of the reply.
        Cut = "cut",
        /// Stopped by an interrupt.
        Interrupted = "interrupted",
        /// Its worker died.
        Lost = "lost",
    }
}

/// Token counts of one attempt, as the provider reported them. Input and output include the other counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TurnUsage {
    /// All input tokens.
    pub input: i64,
    /// All output tokens.
    pub output: i64,
    /// Output tokens that are reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning: i64,
    /// Input tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read: i64,
    /// Input tokens written to the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write: i64,
    /// The cost in nano-USD, by the prices at the attempt's start; 0 without prices.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: i64,
}

impl TurnUsage {
    /// Returns the sum of both. A count that is too large to be added leaves the largest number there is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            reasoning: self.reasoning.saturating_add(other.reasoning),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cost: self.cost.saturating_add(other.cost),
        }
    }
}

/// Payload of `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// The outcome.
    pub outcome: AttemptOutcome,
    /// The provider's counts, if it reported them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `retry.scheduled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetryScheduled {
    /// The turn.
    pub turn: TurnId,
    /// The number of the next attempt (2 for the first retry).
    pub ordinal: i32,
    /// The time, by the worker's clock.
    pub at: TimestampMs,
    /// The reason.
    pub error: SessionError,
}

/// Payload of `text.checkpointed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TextCheckpointed {
    /// The turn.
    pub turn: TurnId,
    /// The part.
    pub part: PartId,
    /// UTF-8 bytes of the part before `text`.
    pub offset: i64,
    /// The text after `offset`.
    pub text: String,
}

/// One part of a reply, in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ReplyPart {
    /// Text.
    Text {
        /// The part.
        id: PartId,
        /// The complete text.
        text: String,
        /// State that its provider wants to receive again with it: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Reasoning that the model showed. Without text it stands for reasoning that it did not show.
    Reasoning {
        /// The part.
        id: PartId,
        /// The complete text.
        text: String,
        /// State that its provider wants to receive again with it: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// A call. Its intent is a separate `tool.called`.
    ToolCall {
        /// The call.
        call: CallId,
    },
    /// A call that the provider ran itself. It has no intent and no body here.
    HostedCall {
        /// The part.
        id: PartId,
        /// The provider's id for it, unique within the reply.
        call: String,
        /// The tool's name at the provider.
        name: String,
        /// The arguments' bytes.
        input: String,
        /// The provider's own form of the call: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// The result of a hosted call. Every such call is followed by one.
    HostedResult {
        /// The part.
        id: PartId,
        /// The provider's id for the call.
        call: String,
        /// The tool's name at the provider.
        name: String,
        /// The text for other providers.
        output: String,
        /// Whether the call failed.
        #[serde(default, skip_serializing_if = "is_false")]
        is_error: bool,
        /// The provider's own form of the result: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
}

/// Returns whether a reply has no call, and the last of its text [writes](ReplyPart::writes_call) one.
#[must_use]
pub fn ends_with_written_call(parts: &[ReplyPart]) -> bool {
    let is_text = |part: &&ReplyPart| matches!(part, ReplyPart::Text { .. });
    let is_call = |part: &ReplyPart| matches!(part, ReplyPart::ToolCall { .. });
    !parts.iter().any(is_call) && parts.iter().rfind(is_text).is_some_and(ReplyPart::writes_call)
}

/// How models write a tool call: its start and its end.
const WRITTEN_CALLS: [(&str, &str); 11] = [
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<function_call>", "</function_call>"),
    ("<function_calls>", "</function_calls>"),
    ("<invoke name=", "</invoke>"),
    ("<function=", "</function>"),
    ("<tool_use>", "</tool_use>"),
    ("[TOOL_CALL]", "[/TOOL_CALL]"),
    ("<|tool_call_begin|>", "<|tool_call_end|>"),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    (
        "<\u{ff5c}tool\u{2581}calls\u{2581}begin\u{ff5c}>",
        "<\u{ff5c}tool\u{2581}calls\u{2581}end\u{ff5c}>",
    ),
];

impl ReplyPart {
    /// Returns text without provider state.
    #[must_use]
    pub fn text(id: PartId, text: impl Into<String>) -> Self {
        Self::Text { id, text: text.into(), metadata: None }
    }

    /// Returns reasoning without provider state.
    #[must_use]
    pub fn reasoning(id: PartId, text: impl Into<String>) -> Self {
        Self::Reasoning { id, text: text.into(), metadata: None }
    }

    /// Returns whether it says nothing to anybody: reasoning, or text of white space.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        match self {
            Self::Text { text, .. } => text.trim().is_empty(),
            Self::Reasoning { .. } => true,
            Self::ToolCall { .. } | Self::HostedCall { .. } | Self::HostedResult { .. } => false,
        }
    }

    /// Returns whether it is text that ends with a tool call in the words of a model's own template, which its server has not
    /// understood.
    #[must_use]
    pub fn writes_call(&self) -> bool {
        match self {
            Self::Text { text, .. } => WRITTEN_CALLS.iter().any(|(start, end)| {
                text.trim_end().strip_suffix(end).is_some_and(|before| before.contains(start))
            }),
            Self::Reasoning { .. }
            | Self::ToolCall { .. }
            | Self::HostedCall { .. }
            | Self::HostedResult { .. } => false,
        }
    }

    /// Returns whether it has something that builds without provider state would overlook.
    #[must_use]
    pub fn has_state(&self) -> bool {
        match self {
            Self::Text { metadata, .. } | Self::Reasoning { metadata, .. } => metadata.is_some(),
            Self::ToolCall { .. } => false,
            Self::HostedCall { .. } | Self::HostedResult { .. } => true,
        }
    }
}

/// Payload of `turn.replied`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnReplied {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// The model's output and requests.
    pub parts: Vec<ReplyPart>,
    /// Why it ended: the provider's reason, normalised, or one of ours.
    pub finish: Stored<Finish>,
}

words! {
    /// The outcome of a Provider Turn.
    pub enum TurnOutcome {
        /// The reply and all its calls are settled.
        Completed = "completed",
        /// Its stream was cut after visible output; a continuation follows.
        Cut = "cut",
        /// It failed.
        Failed = "failed",
        /// It was interrupted.
        Interrupted = "interrupted",
        /// Its worker died before the reply was committed; the next turn starts over.
        Lost = "lost",
        /// Its request was too large for the model. A Compaction follows, and the step does not count.
        Overflowed = "overflowed",
    }
}

/// Payload of `turn.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnSettled {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// The outcome.
    pub outcome: TurnOutcome,
    /// The usage of all attempts.
    pub usage: TurnUsage,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}
