use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, CallId, MessageId, ModelRef, PartId, Pricing, Seq, SessionError, TimestampMs, TurnId,
};

use super::{is_false, is_zero};

/// Payload of `turn.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Turns since the last batch of promoted inputs, this one included.
    pub step: i32,
    /// What whoever uses the session should know of the model, told with the first of its turns: that it is deprecated,
    /// say. No model sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// Payload of `attempt.started`: all that rebuilds the request, next to the events before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStarted {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// 1 for the turn's first.
    pub ordinal: i32,
    /// SHA-256 of the body, hex.
    pub body_hash: String,
    /// The encoder that made the body.
    pub wire_version: u32,
    /// The Context Epoch.
    pub epoch: i32,
    /// The history in the request is the fold of events up to here.
    pub through: Seq,
    /// Component name → SHA-256 (hex) of its bytes in `request_component`.
    pub components: BTreeMap<String, String>,
    /// What the request is paid with; none for a model without prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pricing: Option<Pricing>,
}

/// How a wire request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    /// A whole reply.
    Completed,
    /// The provider refused it or it could not be delivered.
    Failed,
    /// The stream ended in the middle of the reply.
    Cut,
    /// Stopped by an interrupt.
    Interrupted,
    /// Its worker died.
    Lost,
}

/// Token counts of one attempt, as the provider reported them; input and output are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnUsage {
    /// All input tokens.
    pub input: i64,
    /// All output tokens.
    pub output: i64,
    /// Of the output, reasoning.
    pub reasoning: i64,
    /// Of the input, read from the provider's cache.
    pub cache_read: i64,
    /// Of the input, written to the provider's cache.
    pub cache_write: i64,
    /// What it cost in nano-USD, by the prices that its attempt began with; 0 without prices.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost: i64,
}

/// Payload of `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the provider counted, when it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `retry.scheduled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryScheduled {
    /// The turn.
    pub turn: TurnId,
    /// The attempt that comes next (2 for the first retry).
    pub ordinal: i32,
    /// When, by the worker's clock.
    pub at: TimestampMs,
    /// Why.
    pub error: SessionError,
}

/// Payload of `text.checkpointed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextCheckpointed {
    /// The turn.
    pub turn: TurnId,
    /// The part.
    pub part: PartId,
    /// UTF-8 bytes of the part before `text`.
    pub offset: i64,
    /// What came after.
    pub text: String,
}

/// One part of a reply, in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ReplyPart {
    /// Text.
    Text {
        /// The part.
        id: PartId,
        /// All of it.
        text: String,
        /// What its provider wants to see again with it: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// Reasoning that the model showed; without text, what stands for reasoning that it did not show.
    Reasoning {
        /// The part.
        id: PartId,
        /// All of it.
        text: String,
        /// What its provider wants to see again with it: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// A call, whose intent is a `tool.called` of its own.
    ToolCall {
        /// The call.
        call: CallId,
    },
    /// A call that the provider ran itself: it has no intent, and no body here.
    HostedCall {
        /// The part.
        id: PartId,
        /// The provider's id for it; unique within the reply.
        call: String,
        /// The tool's name at the provider.
        name: String,
        /// The arguments' bytes.
        input: String,
        /// The provider's own form of the call: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
    /// What came of one; every such call has one after it.
    HostedResult {
        /// The part.
        id: PartId,
        /// The provider's id for the call.
        call: String,
        /// The tool's name at the provider.
        name: String,
        /// What other providers are told of it.
        output: String,
        /// The call failed.
        #[serde(default, skip_serializing_if = "is_false")]
        is_error: bool,
        /// The provider's own form of the result: JSON text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<String>,
    },
}

impl ReplyPart {
    /// Text without provider state.
    #[must_use]
    pub fn text(id: PartId, text: impl Into<String>) -> Self {
        Self::Text { id, text: text.into(), metadata: None }
    }

    /// Reasoning without provider state.
    #[must_use]
    pub fn reasoning(id: PartId, text: impl Into<String>) -> Self {
        Self::Reasoning { id, text: text.into(), metadata: None }
    }

    /// Whether it holds something that builds before provider state was kept would not see.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReplied {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// What the model said and asked for.
    pub parts: Vec<ReplyPart>,
    /// The provider's reason to stop, normalised: `stop`, `length`, `tool-calls`, `content-filter`,
    /// or ours: `interrupted`, `cut`.
    pub finish: String,
}

/// How a Provider Turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnOutcome {
    /// The reply and all its calls are settled.
    Completed,
    /// Its stream was cut after visible output; a continuation follows.
    Cut,
    /// It failed.
    Failed,
    /// It was interrupted.
    Interrupted,
    /// Its worker died before the reply was committed; the next turn starts over.
    Lost,
    /// Its request was too large for the model; a Compaction follows, and the step is given back.
    Overflowed,
}

/// Payload of `turn.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSettled {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// What the turn used, all attempts together.
    pub usage: TurnUsage,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}
