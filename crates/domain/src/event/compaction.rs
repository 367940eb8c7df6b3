use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{MessageId, ModelRef, Seq, SessionError, TurnId, TurnUsage, words};

use super::is_false;

words! {
    /// The reason of a Compaction.
    pub enum CompactionReason {
        /// Somebody requested it.
        Manual = "manual",
        /// The next request came near the model's limit.
        Auto = "auto",
        /// The provider refused a request as too large.
        Overflow = "overflow",
    }
}

/// Payload of `compaction.started`. Its wire requests are attempts of `turn`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionStarted {
    /// Its id, one of a turn.
    pub turn: TurnId,
    /// The checkpoint message that it writes.
    pub message: MessageId,
    /// The reason.
    pub reason: CompactionReason,
    /// The inbox item that requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<MessageId>,
    /// Whether the model must answer results after it.
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
    /// The first event of the recent tail, which stays as it is.
    pub keep_from: Seq,
    /// The provider's reason to refuse the request that it makes room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<SessionError>,
    /// The part of the conversation in its request, and the part that the summary replaces.
    #[serde(default, skip_serializing_if = "SummaryScope::is_default")]
    pub scope: SummaryScope,
}

/// The part of a conversation that one request for a summary shows, and the part that the summary replaces. In the
/// default case the request is the conversation's next one with one more message, and the summary replaces everything
/// before the tail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SummaryScope {
    /// Events of messages before the tail that stay word for word: the prompts that are being answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Seq>,
    /// Whether the summary replaces one piece; the conversation between it and the tail is summarised next.
    #[serde(skip_serializing_if = "is_false")]
    pub is_piece: bool,
    /// The estimated tokens of the request.
    pub tokens: u64,
    /// The estimated tokens of the request that the provider refused as too large: the turn's, or the last one for
    /// the same summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// The number of larger requests for the same summary that the provider has refused.
    #[serde(skip_serializing_if = "is_none")]
    pub refusals: u32,
    /// The cuts in the conversation; `None` shows it whole, with the tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<SummaryCut>,
    /// The number of exchanges that leave the view without a summary, because none could be made. Then there is no
    /// request, and `tokens` is the size of the conversation's next one.
    #[serde(skip_serializing_if = "is_none")]
    pub left_out: u32,
}

/// The cuts that make a request for a summary fit. The request shows one transcript of the conversation up to the
/// tail instead of its messages. These numbers, the mark and the log give the same transcript again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryCut {
    /// The most bytes of each tool result. A longer one loses its middle.
    pub result_bytes: u64,
    /// The most bytes of each text of a prompt or an answer. A longer one loses its middle.
    pub text_bytes: u64,
    /// The most bytes of the whole transcript. A longer one loses its middle.
    pub transcript_bytes: u64,
    /// The text in place of whatever is left out, exactly as sent.
    pub mark: String,
}

impl SummaryScope {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// Payload of `compaction.reminded`: the answer was no summary, so it is requested once more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionReminded {
    /// The compaction.
    pub turn: TurnId,
    /// The model's answer.
    pub draft: String,
    /// The reminder, exactly as sent.
    pub reminder: String,
}

words! {
    /// The outcome of a Compaction's or a title's request.
    pub enum SideOutcome {
        /// It reached its purpose.
        Completed = "completed",
        /// It failed; nothing has changed.
        Failed = "failed",
        /// It was interrupted; nothing has changed.
        Cancelled = "cancelled",
        /// Its worker died; nothing has changed.
        Lost = "lost",
    }
}

/// Payload of `compaction.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompactionEnded {
    /// The compaction.
    pub turn: TurnId,
    /// The checkpoint message.
    pub message: MessageId,
    /// The outcome.
    pub outcome: SideOutcome,
    /// The text that the model now sees in place of the summarised part, exactly as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
    /// The usage of its attempts.
    pub usage: TurnUsage,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `title.started`. Its wire requests are attempts of `turn`. No conversation shows it to a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TitleStarted {
    /// Its id, one of a turn.
    pub turn: TurnId,
    /// The user message that the title is for.
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

/// Payload of `title.ended`. The resulting title is a separate `session.renamed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TitleEnded {
    /// The id of the title's `turn`.
    pub turn: TurnId,
    /// The outcome.
    pub outcome: SideOutcome,
    /// The usage of its attempts.
    pub usage: TurnUsage,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}
