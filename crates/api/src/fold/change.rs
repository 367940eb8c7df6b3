use std::sync::Arc;

use domain::{
    Answer, AskId, MessageId, PartId, Seq, SessionError, TimestampMs, ToolAsked, TurnOutcome,
};
use signals::{CallOutput, Delta};
use store::MessageRow;

/// A change that an event or live text makes. A message comes with all of its parts, as they are after the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// The session is new.
    Created,
    /// The session's own fields: title, usage, directory and so on.
    Session,
    /// The user message that an admitted prompt will become. No row has it yet.
    Admitted(Arc<MessageRow>),
    /// A new message.
    Message(Arc<MessageRow>),
    /// A new tool call in a message.
    Call(Arc<MessageRow>, PartId),
    /// A call of a message waits for an answer.
    Asked(MessageId, ToolAsked),
    /// An ask was answered, or nobody waits for the answer any longer.
    Answered(AskId, Option<Answer>),
    /// These parts of a message. The list is empty if only the message's own fields changed.
    Parts(Arc<MessageRow>, Vec<PartId>),
    /// Text of a message that followers have received as live text.
    Checkpoint(Arc<MessageRow>),
    /// Live text of a message.
    Text(LiveText),
    /// Output of a call of a message that runs. It is in no row.
    Output(Arc<MessageRow>, CallOutput),
    /// The message of a settled turn. It does not change again.
    Settled(Arc<MessageRow>, TurnOutcome),
    /// A message or an admitted prompt that is gone.
    Removed(MessageId),
    /// Every message that began at this number or later is gone.
    Reverted(Seq),
    /// The status that clients show.
    Status(Status),
    /// A failure that no message has.
    Failed(SessionError),
    /// A notice for the session's user.
    Notice(String),
    /// The end of a Compaction that replaced an older part of the conversation.
    Compacted,
    /// The session's changes of files. They take a read.
    Files,
}

/// Live text of a message. It is in no row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveText {
    pub(crate) message: Arc<MessageRow>,
    pub(crate) delta: Delta,
    /// Whether it is the first text of its part.
    pub(crate) is_first: bool,
}

/// A session's status, as clients show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    /// It works.
    Busy,
    /// It waits before it sends a request once more.
    Retry {
        /// The number of the retry, from 1.
        attempt: i32,
        /// The reason, for people.
        message: String,
        /// The time of the request.
        next: TimestampMs,
    },
    /// It has nothing to do.
    Idle,
}
