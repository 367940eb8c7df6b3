//! The durable events of a session. What the log holds is the truth: projections and the history
//! that a model sees are folded from these and from nothing else.
//!
//! An event is stored as its kind, a version and the JSON text of its payload. A payload only ever
//! gains optional fields within a version; anything else is a new version with a pure upcaster.

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, CallId, Claim, Delivery, EventId, LocationId, MessageId, ModelRef, PartId,
    ProjectId, PromptPart, Seq, TimestampMs, ToolClass, ToolOutcomeKind, ToolState, TurnId,
};

/// A stored kind, version or payload that this build does not know.
#[derive(Debug, thiserror::Error)]
pub enum UnknownEvent {
    /// Written by a newer build.
    #[error("event kind `{kind}` version {version} is newer than this build; upgrade it")]
    Kind {
        /// The stored kind.
        kind: String,
        /// The stored version.
        version: i32,
    },
    /// The payload does not have its kind's shape.
    #[error("the payload of `{kind}` version {version} cannot be read")]
    Payload {
        /// The stored kind.
        kind: String,
        /// The stored version.
        version: i32,
        /// What the reader said.
        #[source]
        source: serde_json::Error,
    },
}

/// An event as the log holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Its place in the session's log.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// When it was written, by the writer's clock.
    pub time: TimestampMs,
    /// The claim it was written under; `None` for a gateway's writes.
    pub claim: Option<Claim>,
    /// What happened.
    pub event: SessionEvent,
}

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident($payload:ty) = $kind:literal),+ $(,)?) => {
        /// One thing that happened to a session.
        #[derive(Debug, Clone, PartialEq)]
        pub enum SessionEvent {
            $($(#[$doc])* $variant($payload)),+
        }

        impl SessionEvent {
            /// Every kind that this build writes.
            pub const KINDS: &'static [&'static str] = &[$($kind),+];

            /// The stored kind.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind),+
                }
            }

            /// The stored version of the payload.
            #[must_use]
            pub fn version(&self) -> i32 {
                1
            }

            /// The payload as JSON text.
            #[must_use]
            pub fn payload(&self) -> String {
                let text = match self {
                    $(Self::$variant(payload) => serde_json::to_string(payload)),+
                };
                text.expect("payloads hold only strings, numbers and lists of them")
            }

            /// Reads an event back.
            ///
            /// # Errors
            /// [`UnknownEvent`] when the row was written by a newer build or is damaged.
            pub fn read(kind: &str, version: i32, payload: &str) -> Result<Self, UnknownEvent> {
                match (kind, version) {
                    $(($kind, 1) => serde_json::from_str(payload)
                        .map(Self::$variant)
                        .map_err(|source| UnknownEvent::Payload { kind: kind.to_owned(), version, source }),)+
                    _ => Err(UnknownEvent::Kind { kind: kind.to_owned(), version }),
                }
            }
        }

        $(impl From<$payload> for SessionEvent {
            fn from(payload: $payload) -> Self {
                Self::$variant(payload)
            }
        })+
    };
}

events! {
    /// The session exists.
    SessionCreated(SessionCreated) = "session.created",
    /// A prompt was acknowledged.
    PromptAdmitted(PromptAdmitted) = "prompt.admitted",
    /// An admitted prompt became history.
    PromptPromoted(PromptPromoted) = "prompt.promoted",
    /// A Context Epoch began.
    EpochStarted(EpochStarted) = "epoch.started",
    /// A Mid-Conversation System Message was admitted.
    ContextUpdated(ContextUpdated) = "context.updated",
    /// A Provider Turn began.
    TurnStarted(TurnStarted) = "turn.started",
    /// A wire request is about to be sent.
    AttemptStarted(AttemptStarted) = "attempt.started",
    /// A wire request ended.
    AttemptEnded(AttemptEnded) = "attempt.ended",
    /// The next wire request of the turn waits for this time.
    RetryScheduled(RetryScheduled) = "retry.scheduled",
    /// Text of an unfinished reply, kept so that a crash does not lose it.
    TextCheckpointed(TextCheckpointed) = "text.checkpointed",
    /// A tool call's intent.
    ToolCalled(ToolCalled) = "tool.called",
    /// An intended call's body may run from here on.
    ToolStarted(ToolStarted) = "tool.started",
    /// A tool call's one result.
    ToolSettled(ToolSettled) = "tool.settled",
    /// The model's reply is complete.
    TurnReplied(TurnReplied) = "turn.replied",
    /// The turn is over, with all its calls.
    TurnSettled(TurnSettled) = "turn.settled",
    /// A text of ours that the model will see.
    NoticeRecorded(NoticeRecorded) = "notice.recorded",
    /// Someone asked to stop.
    InterruptRequested(InterruptRequested) = "interrupt.requested",
    /// A Session Drain ended.
    DrainEnded(DrainEnded) = "drain.ended",
}

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
}

/// Payload of `prompt.admitted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptAdmitted {
    /// The message that it becomes.
    pub message: MessageId,
    /// How it joins running work.
    pub delivery: Delivery,
    /// What the user sent.
    pub parts: Vec<PromptPart>,
    /// The agent chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model chosen with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Whether it woke the session, or was only stored (`resume: false`).
    pub wake: bool,
    /// SHA-256 (hex) of what the client sent: tells an exact retry from another prompt.
    pub digest: String,
}

/// Payload of `prompt.promoted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPromoted {
    /// The prompt.
    pub message: MessageId,
    /// Its content, repeated so that history needs no look-up.
    pub parts: Vec<PromptPart>,
    /// The agent of the turns that answer it.
    pub agent: String,
    /// The model of the turns that answer it.
    pub model: ModelRef,
    /// When it was admitted.
    pub admitted: TimestampMs,
}

/// Payload of `epoch.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochStarted {
    /// 1 for a session's first.
    pub epoch: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
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

/// Payload of `turn.started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnStarted {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// The user message that it answers.
    pub parent: MessageId,
    /// The agent, sampled for this turn.
    pub agent: String,
    /// The model, sampled for this turn.
    pub model: ModelRef,
    /// The Context Epoch.
    pub epoch: i32,
    /// Turns since the last batch of promoted inputs, this one included.
    pub step: i32,
}

/// Payload of `attempt.started`: all that rebuilds the request, next to the events before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptStarted {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// 1 for the turn's first.
    pub ordinal: i32,
    /// SHA-256 of the body, hex.
    pub body_hash: String,
    /// The encoder that made the body.
    pub wire_version: u32,
    /// The Context Epoch.
    pub epoch: i32,
    /// The history in the request is the fold of events up to here.
    pub through: Seq,
    /// Component name → SHA-256 (hex) of its bytes in `request_component`.
    pub components: std::collections::BTreeMap<String, String>,
}

/// How a wire request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttemptOutcome {
    /// A whole reply.
    Completed,
    /// The provider refused it or it could not be delivered.
    Failed,
    /// The stream ended in the middle of the reply.
    Cut,
    /// Stopped by an interrupt.
    Interrupted,
    /// Its worker died.
    Lost,
}

/// Token counts of one attempt, as the provider reported them; input and output are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnUsage {
    /// All input tokens.
    pub input: i64,
    /// All output tokens.
    pub output: i64,
    /// Of the output, reasoning.
    pub reasoning: i64,
    /// Of the input, read from the provider's cache.
    pub cache_read: i64,
    /// Of the input, written to the provider's cache.
    pub cache_write: i64,
}

/// An error that a user meets: a stable code and a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionError {
    /// Stable, such as `provider.rate_limit`; `docs/errors/` has a page for it.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Payload of `attempt.ended`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnded {
    /// The attempt.
    pub attempt: AttemptId,
    /// Its turn.
    pub turn: TurnId,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What the provider counted, when it said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<TurnUsage>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Payload of `retry.scheduled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryScheduled {
    /// The turn.
    pub turn: TurnId,
    /// The attempt that comes next (2 for the first retry).
    pub ordinal: i32,
    /// When, by the worker's clock.
    pub at: TimestampMs,
    /// Why.
    pub error: SessionError,
}

/// Payload of `text.checkpointed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextCheckpointed {
    /// The turn.
    pub turn: TurnId,
    /// The part.
    pub part: PartId,
    /// UTF-8 bytes of the part before `text`.
    pub offset: i64,
    /// What came after.
    pub text: String,
}

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

/// One part of a reply, in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ReplyPart {
    /// Text.
    Text {
        /// The part.
        id: PartId,
        /// All of it.
        text: String,
    },
    /// Reasoning that the model showed.
    Reasoning {
        /// The part.
        id: PartId,
        /// All of it.
        text: String,
    },
    /// A call, whose intent is a `tool.called` of its own.
    ToolCall {
        /// The call.
        call: CallId,
    },
}

/// Payload of `turn.replied`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnReplied {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// What the model said and asked for.
    pub parts: Vec<ReplyPart>,
    /// The provider's reason to stop, normalised: `stop`, `length`, `tool-calls`, `content-filter`,
    /// or ours: `interrupted`, `cut`.
    pub finish: String,
}

/// How a Provider Turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnOutcome {
    /// The reply and all its calls are settled.
    Completed,
    /// Its stream was cut after visible output; a continuation follows.
    Cut,
    /// It failed.
    Failed,
    /// It was interrupted.
    Interrupted,
    /// Its worker died before the reply was committed; the next turn starts over.
    Lost,
}

/// Payload of `turn.settled`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSettled {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message.
    pub message: MessageId,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// What the turn used, all attempts together.
    pub usage: TurnUsage,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SessionError>,
}

/// Why a text of ours is in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeKind {
    /// A stream was cut after visible output: go on from there.
    Continuation,
    /// A worker died; what that means for the work in hand.
    Recovery,
    /// The last allowed turn: answer without tools.
    StepLimit,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_reads_back_as_it_was_written() {
        let event = SessionEvent::from(EpochStarted {
            epoch: 1,
            baseline: "You are here.\n\"quoted\" \u{1F980}".into(),
            snapshot: "{}".into(),
        });
        let back = SessionEvent::read(event.kind(), event.version(), &event.payload());
        assert_eq!(back.expect("our own event"), event);
    }

    #[test]
    fn an_event_of_a_newer_build_says_so() {
        let error = SessionEvent::read("epoch.started", 2, "{}").expect_err("version 2 is unknown");
        assert!(matches!(error, UnknownEvent::Kind { version: 2, .. }));
        let error = SessionEvent::read("epoch.started", 1, "{}").expect_err("fields are missing");
        assert!(matches!(error, UnknownEvent::Payload { .. }));
    }
}
