use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Author, ErrorCode, LocationId, MessageId, ModelRef, ProjectId, Seq, SessionId, SnapshotTree,
    Stored, TimestampMs, ToolRule, TurnId, words,
};

use super::is_false;

/// Payload of `session.created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionCreated {
    /// Its project.
    pub project: ProjectId,
    /// The Location that it runs at.
    pub location: LocationId,
    /// The Location's directory, as the model sees it.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// Its first agent.
    pub agent: String,
    /// Its first model, if one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Its parent session, if it is a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Whether somebody chose its title, so that none is generated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub named: bool,
    /// Its client's rules about tool calls, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ToolRule>,
    /// Its metadata: the client's bytes, JSON text of an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// Its author; `None` before authors were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Author>,
}

words! {
    /// The origin of a title.
    pub enum TitledBy {
        /// Somebody, so it stays.
        User = "user",
        /// A model, from the first prompt.
        Model = "model",
    }
}

/// Payload of `session.renamed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRenamed {
    /// The new title.
    pub title: String,
    /// Its origin.
    pub by: TitledBy,
}

/// Payload of `session.archived`: lists leave the session out, or show it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionArchived {
    /// The time that its client named for it, in milliseconds since 1970; `None`: it is archived no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived: Option<TimestampMs>,
}

/// Payload of `session.described`: the session has other metadata. No model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDescribed {
    /// All of it: the client's bytes, JSON text of an object.
    pub metadata: String,
}

/// Payload of `session.moved`. The Context Epoch ends; the next one begins at the new Location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionMoved {
    /// The old Location.
    pub from: LocationId,
    /// The new Location.
    pub to: LocationId,
    /// The project that the new Location belongs to.
    pub project: ProjectId,
    /// The new Location's directory, as the model sees it.
    pub directory: String,
    /// Whether the new Location begins with the old one's files.
    #[serde(default, skip_serializing_if = "is_false")]
    pub carry: bool,
    /// Those files; `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotTree>,
}

/// Payload of `session.forked`. The copied events follow it, with new ids and their old times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionForked {
    /// The session that was copied. It may no longer exist.
    pub parent: SessionId,
    /// The last event of the other log that was considered.
    pub through: Seq,
    /// The requested first message that is not copied; `None` copied everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<MessageId>,
    /// The number of copied events that follow.
    pub copied: i64,
    /// The files that its own Location begins with; `None` if it shares the other session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<SnapshotTree>,
}

/// Payload of `entry.set`: a context entry. The model gets it at the next boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntrySet {
    /// Its key within the session.
    pub key: String,
    /// The client's bytes: JSON text, where `null` is a value.
    pub value: String,
}

/// Payload of `entry.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EntryRemoved {
    /// The key of the entry that no longer applies.
    pub key: String,
}

words! {
    /// The reason of a text of ours in the history.
    pub enum NoticeKind {
        /// Continue: a stream was cut after visible output, a summary replaced the work in progress, or an answer had
        /// neither text nor calls.
        Continuation = "continuation",
        /// A worker died; the effects on the work in progress.
        Recovery = "recovery",
        /// The last allowed turn: answer without tools.
        StepLimit = "step-limit",
        /// The files are on another disk, without the effects of some calls.
        FilesLost = "files-lost",
    }
}

/// Payload of `notice.recorded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoticeRecorded {
    /// The message's id.
    pub message: MessageId,
    /// The reason.
    pub kind: NoticeKind,
    /// The text, exactly as the model gets it.
    pub text: String,
}

/// The target of an interrupt at the time of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum InterruptTarget {
    /// The open turn.
    Turn {
        /// The turn.
        turn: TurnId,
    },
    /// A drain between two turns.
    Drain,
    /// Wakes that no drain had taken up yet. They stay parked.
    Parked,
}

/// Payload of `interrupt.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptRequested {
    /// The target.
    pub target: InterruptTarget,
    /// Its author; `None` before authors were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Author>,
}

words! {
    /// The outcome of a Session Drain.
    pub enum DrainOutcome {
        /// Nothing was left to do.
        Completed = "completed",
        /// It stopped on an error.
        Failed = "failed",
        /// It was interrupted.
        Interrupted = "interrupted",
    }
}

/// Payload of `drain.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DrainEnded {
    /// The outcome.
    pub outcome: DrainOutcome,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// An error that a user meets: a stable code and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionError {
    /// Stable; `docs/errors/` has a page for each that this build knows.
    pub code: Stored<ErrorCode>,
    /// The message, for people.
    pub message: String,
}
