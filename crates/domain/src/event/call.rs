use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CallId, MessageId, PartId, TimestampMs, ToolClass, ToolOutcomeKind, ToolState, TurnId,
};

/// The facts about a call when the model has requested it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolIntent {
    /// Our id for the call.
    pub call: CallId,
    /// The part that shows it.
    pub part: PartId,
    /// The model's id for it. May repeat in other messages.
    pub provider_call: String,
    /// The tool.
    pub tool: String,
    /// The model's argument bytes, unchanged, valid JSON or not.
    pub arguments: String,
    /// State that its provider wants to receive again with it: JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}

/// Payload of `tool.called`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolCalled {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// The call.
    pub intent: ToolIntent,
    /// The actions that a takeover may take with it.
    pub class: ToolClass,
    /// `Started`, or `Intended` if the body must wait for something.
    pub state: ToolState,
}

/// Payload of `tool.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolStarted {
    /// The turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// The number of the body, from 1.
    pub body: i32,
}

/// Payload of `tool.settled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSettled {
    /// The turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// The outcome.
    pub outcome: ToolOutcomeKind,
    /// The Model Tool Output: bounded, and replayed exactly.
    pub output: String,
    /// One line for people.
    pub title: String,
    /// The validated structured result: complete JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    /// The path of the complete text, if it was too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_path: Option<String>,
    /// Whether `output` leaves something out.
    pub truncated: bool,
    /// The time when the body began.
    pub started: TimestampMs,
    /// The time when it ended.
    pub ended: TimestampMs,
}
