use serde::{Deserialize, Serialize};

use crate::MessageId;

/// Payload of `epoch.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStarted {
    /// 1 for a session's first.
    pub epoch: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
    /// Why it began; older rows do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EpochReason>,
}

/// Why a Context Epoch began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EpochReason {
    /// It is the session's first.
    First,
    /// A summary stands for what was told before.
    Compaction,
    /// The session has moved to another Location.
    Move,
    /// Something changed that no message can tell.
    Replaced,
}

/// Payload of `context.updated`: one Mid-Conversation System Message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextUpdated {
    /// The message's id.
    pub message: MessageId,
    /// Exactly what the model is sent.
    pub rendered: String,
    /// The Context Snapshot that it advances to, as JSON text.
    pub snapshot: String,
}
