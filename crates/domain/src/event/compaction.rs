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
    /// How much of the conversation its request shows, and how much of it the summary stands for.
    #[serde(default, skip_serializing_if = "SummaryScope::is_default")]
    pub scope: SummaryScope,
}

/// How much of a conversation one request for a summary shows, and how much of it the summary stands for. The
/// default is the plain case: the request is the conversation's next one with one more message, and the summary
/// stands for everything before the tail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SummaryScope {
    /// Messages before the tail that stay word for word, by their events: the prompts that are being answered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Seq>,
    /// The summary stands for one piece; the conversation between it and the tail is summarised next.
    #[serde(skip_serializing_if = "is_false")]
    pub is_piece: bool,
    /// About how many tokens the request has, by our own estimate.
    pub tokens: u64,
    /// About how many tokens the request had that the provider refused as too large: the turn's, or the last one for
    /// the same summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// How many larger requests for the same summary the provider has refused before.
    #[serde(skip_serializing_if = "is_none")]
    pub refusals: u32,
    /// How the conversation was cut for the request. Absent: it is shown whole, with the tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<SummaryCut>,
}

/// How a conversation is cut so that a request for its summary fits. The request shows one transcript of it up to
/// the tail, in place of its messages. These numbers, the mark and the log give the same transcript again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryCut {
    /// The most bytes of each tool result; the middle of a longer one is left out.
    pub result_bytes: u64,
    /// The most bytes of each text, a prompt's or an answer's; the middle of a longer one is left out.
    pub text_bytes: u64,
    /// The most bytes of the whole transcript; the middle of a longer one is left out.
    pub transcript_bytes: u64,
    /// What stands for whatever is left out, exactly as sent.
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
