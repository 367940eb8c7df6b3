use serde::{Deserialize, Serialize};

use crate::{MessageId, ModelRef, Seq, SessionError, TurnId, TurnUsage};

use super::is_false;

/// Why a Compaction began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CompactionReason {
    /// Somebody asked for it.
    Manual,
    /// The next request came near the model's limit.
    Auto,
    /// The provider refused a request as too large.
    Overflow,
}

/// Payload of `compaction.started`. Its wire requests are attempts of `turn`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionStarted {
    /// Its id among the turns.
    pub turn: TurnId,
    /// The checkpoint message that it writes.
    pub message: MessageId,
    /// Why.
    pub reason: CompactionReason,
    /// The inbox item that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<MessageId>,
    /// Whether the model has results to answer after it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continuing: bool,
    /// The agent.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The Context Epoch that it ends.
    pub epoch: i32,
    /// The request for the summary, exactly as sent after the conversation.
    pub prompt: String,
    /// The conversation from this event on stays as it is: the recent tail.
    pub keep_from: Seq,
    /// Why the provider refused the request that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<SessionError>,
}

/// Payload of `compaction.reminded`: the answer was no summary, and is asked for once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionReminded {
    /// The compaction.
    pub turn: TurnId,
    /// What the model answered.
    pub draft: String,
    /// What it is told, exactly as sent.
    pub reminder: String,
}

/// How a Compaction or a title's request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SideOutcome {
    /// It has what it was for.
    Completed,
    /// It failed; nothing has changed.
    Failed,
    /// It was interrupted; nothing has changed.
    Cancelled,
    /// Its worker died; nothing has changed.
    Lost,
}

/// Payload of `compaction.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionEnded {
    /// The compaction.
    pub turn: TurnId,
    /// The checkpoint message.
    pub message: MessageId,
    /// How.
    pub outcome: SideOutcome,
    /// What the model sees from now on in place of what was summarised, exactly as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// What its attempts used.
    pub usage: TurnUsage,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `title.started`. Its wire requests are attempts of `turn`; no model sees it in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitleStarted {
    /// Its id among the turns.
    pub turn: TurnId,
    /// The user message that it is made of.
    pub message: MessageId,
    /// The agent of the turn beside which it runs.
    pub agent: String,
    /// The model.
    pub model: ModelRef,
    /// The instructions, exactly as sent.
    pub system: String,
    /// The request, exactly as sent.
    pub prompt: String,
}

/// Payload of `title.ended`; a title that came of it is a `session.renamed` of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TitleEnded {
    /// The title's id among the turns.
    pub turn: TurnId,
    /// How.
    pub outcome: SideOutcome,
    /// What its attempts used.
    pub usage: TurnUsage,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}
