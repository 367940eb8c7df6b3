use serde::{Deserialize, Serialize};

use crate::{
    CallId, MessageId, PartId, TimestampMs, ToolClass, ToolOutcomeKind, ToolState, TurnId,
};

/// What is known of a call when the model has asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolIntent {
    /// Our id for the call.
    pub call: CallId,
    /// The part that shows it.
    pub part: PartId,
    /// The model's id for it; may repeat in other messages.
    pub provider_call: String,
    /// The tool.
    pub tool: String,
    /// The model's argument bytes, unchanged, valid JSON or not.
    pub arguments: String,
    /// What its provider wants to see again with it: JSON text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
}

/// Payload of `tool.called`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCalled {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// The call.
    pub intent: ToolIntent,
    /// What a takeover may do with it.
    pub class: ToolClass,
    /// `Started`, or `Intended` when something must pass first.
    pub state: ToolState,
}

/// Payload of `tool.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolStarted {
    /// The turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// Which body this is: 1 for the first.
    pub body: i32,
}

/// Payload of `tool.settled`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSettled {
    /// The turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// How it ended.
    pub outcome: ToolOutcomeKind,
    /// The Model Tool Output: bounded, exactly what is replayed.
    pub output: String,
    /// One line for people.
    pub title: String,
    /// The validated structured result, as JSON text, whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    /// Where the complete text is, when it was too large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_path: Option<String>,
    /// Whether `output` leaves something out.
    pub truncated: bool,
    /// When the body began.
    pub started: TimestampMs,
    /// When it ended.
    pub ended: TimestampMs,
}
