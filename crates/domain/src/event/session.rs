use serde::{Deserialize, Serialize};

use crate::{LocationId, MessageId, ModelRef, ProjectId, Seq, SessionId, SnapshotTree, TurnId};

use super::is_false;

/// Payload of `session.created`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// Its project.
    pub project: ProjectId,
    /// Where it runs.
    pub location: LocationId,
    /// The Location's directory, as the model is shown it.
    pub directory: String,
    /// Its title.
    pub title: String,
    /// The agent that it starts with.
    pub agent: String,
    /// The model that it starts with, when one was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// The session that it is a child of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionId>,
    /// Somebody chose its title: none is generated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub named: bool,
}

/// Whose word a title is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TitledBy {
    /// Somebody's: it stays.
    User,
    /// A model's, made of the first prompt.
    Model,
}

/// Payload of `session.renamed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRenamed {
    /// The new title.
    pub title: String,
    /// Whose word it is.
    pub by: TitledBy,
}

/// Payload of `session.moved`. The Context Epoch ends; the next one begins at the new Location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMoved {
    /// Where it ran.
    pub from: LocationId,
    /// Where it runs from now on.
    pub to: LocationId,
    /// The project that the new Location belongs to.
    pub project: ProjectId,
    /// The new Location's directory, as the model is shown it.
    pub directory: String,
    /// Whether the new Location begins with the files of the old one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub carry: bool,
    /// Those files; `None` when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SnapshotTree>,
}

/// Payload of `session.forked`. What is copied follows it, with new ids and with the times that it had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionForked {
    /// The session that it is a fork of; need not exist any more.
    pub parent: SessionId,
    /// The last event of the other log that was looked at.
    pub through: Seq,
    /// The message that was asked for as the first that is not copied; without one, all was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<MessageId>,
    /// How many events follow that are copies.
    pub copied: i64,
    /// The files that its own Location begins with; `None` when it shares the other session's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<SnapshotTree>,
}

/// Payload of `entry.set`: a context entry, told to the model at the next boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntrySet {
    /// Its key within the session.
    pub key: String,
    /// JSON text, the client's bytes; `null` is a value.
    pub value: String,
}

/// Payload of `entry.removed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRemoved {
    /// The key of the entry that no longer applies.
    pub key: String,
}

/// Why a text of ours is in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// Go on: a stream was cut after visible output, or a summary replaced the work in hand.
    Continuation,
    /// A worker died; what that means for the work in hand.
    Recovery,
    /// The last allowed turn: answer without tools.
    StepLimit,
    /// The files are on another disk, without the effects of some calls.
    FilesLost,
}

/// Payload of `notice.recorded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRecorded {
    /// The message's id.
    pub message: MessageId,
    /// Why.
    pub kind: NoticeKind,
    /// Exactly what the model is sent.
    pub text: String,
}

/// What an interrupt was for when it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum InterruptTarget {
    /// The open turn.
    Turn {
        /// The turn.
        turn: TurnId,
    },
    /// A drain between two turns.
    Drain,
    /// Wakes that no drain had taken up yet: they stay parked.
    Parked,
}

/// Payload of `interrupt.requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptRequested {
    /// What it applies to.
    pub target: InterruptTarget,
}

/// How a Session Drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainOutcome {
    /// Nothing was left to do.
    Completed,
    /// It stopped on an error.
    Failed,
    /// It was interrupted.
    Interrupted,
}

/// Payload of `drain.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEnded {
    /// How.
    pub outcome: DrainOutcome,
    /// Why, when it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// An error that a user meets: a stable code and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionError {
    /// Stable, such as `provider.rate_limit`; `docs/errors/` has a page for it.
    pub code: String,
    /// For people.
    pub message: String,
}
