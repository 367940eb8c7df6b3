use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MessageId, words};

/// Payload of `epoch.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EpochStarted {
    /// 1 for a session's first.
    pub epoch: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
    /// The reason; older rows have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<EpochReason>,
}

words! {
    /// The reason of a new Context Epoch.
    pub enum EpochReason {
        /// It is the session's first.
        First = "first",
        /// A summary replaces the earlier conversation.
        Compaction = "compaction",
        /// The session has moved to another Location.
        Move = "move",
        /// Something changed that no message can express.
        Replaced = "replaced",
    }
}

/// Payload of `context.updated`: one Mid-Conversation System Message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContextUpdated {
    /// The message's id.
    pub message: MessageId,
    /// The text, exactly as the model gets it.
    pub rendered: String,
    /// The Context Snapshot afterwards, as JSON text.
    pub snapshot: String,
}
