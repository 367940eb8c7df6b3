//! The durable events of a session. The log is the truth: projections and the history that a model sees are folded
//! from these events and from nothing else.
//!
//! An event is stored as its kind, a version and the JSON text of its payload. Within a version a payload only ever
//! gains optional fields; any other change is a new version with a pure upcaster.

use schemars::{Schema, SchemaGenerator};

use crate::{Claim, EventId, Seq, TimestampMs};

mod ask;
mod bounds;
mod call;
mod compaction;
mod context;
mod inbox;
mod session;
mod turn;
mod workspace;

pub use ask::{Answer, Ask, Question, QuestionOption, ToolAnswered, ToolAsked};
pub use call::{ToolCalled, ToolIntent, ToolSettled, ToolStarted};
pub use compaction::{
    CompactionEnded, CompactionReason, CompactionReminded, CompactionStarted, SideOutcome,
    SummaryCut, SummaryScope, TitleEnded, TitleStarted,
};
pub use context::{ContextUpdated, EpochReason, EpochStarted};
pub use inbox::{
    Control, ControlAdmitted, ControlDelivered, DeliveryChanged, InputCancelled, PromptAdmitted,
    PromptPromoted, WakeRequested, WakeScope,
};
pub use session::{
    DrainEnded, DrainOutcome, EntryRemoved, EntrySet, InterruptRequested, InterruptTarget,
    NoticeKind, NoticeRecorded, SessionArchived, SessionCreated, SessionDescribed, SessionError,
    SessionForked, SessionMoved, SessionRenamed, TitledBy,
};
pub use turn::{
    AttemptEnded, AttemptOutcome, AttemptStarted, ComponentList, ReplyPart, RetryScheduled,
    TextCheckpointed, TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
    ends_with_written_call,
};
pub use workspace::{
    FileChange, FileStatus, LeftFile, LeftReason, RevertCleared, RevertCommitted, RevertPaths,
    RevertStaged, RevertStaging, RevertedTo, WorkspaceRestored, WorkspaceSnapshotted,
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
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
}

/// An event in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEvent {
    /// Its number in the session's log.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
    /// The time when it was written, by the writer's clock.
    pub time: TimestampMs,
    /// The claim of the write; `None` for a gateway's writes.
    pub claim: Option<Claim>,
    /// The event.
    pub event: SessionEvent,
}

/// A writer that only counts.
#[derive(Default)]
struct ByteCount(usize);

impl std::io::Write for ByteCount {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $variant:ident($payload:ty) = $kind:literal),+ $(,)?) => {
        /// One thing that happened to a session.
        #[derive(Debug, Clone, PartialEq)]
        pub enum SessionEvent {
            $($(#[doc = $doc])+ $variant($payload)),+
        }

        impl SessionEvent {
            /// Every kind that this build writes.
            pub const KINDS: &'static [&'static str] = &[$($kind),+];

            /// Returns the stored kind.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $kind),+
                }
            }

            /// Returns every kind with a sentence about it and the schema of its payload.
            pub fn schemas(
                generator: &mut SchemaGenerator,
            ) -> Vec<(&'static str, &'static str, Schema)> {
                vec![$((
                    $kind,
                    concat!($($doc),+).trim_ascii(),
                    generator.subschema_for::<$payload>(),
                )),+]
            }

            /// Returns the stored version of the payload.
            #[must_use]
            pub fn version(&self) -> i32 {
                1
            }

            /// Returns the payload as JSON text.
            #[must_use]
            pub fn payload(&self) -> String {
                let text = match self {
                    $(Self::$variant(payload) => serde_json::to_string(payload)),+
                };
                text.expect("payloads hold only strings, numbers and lists of them")
            }

            /// Returns how many bytes [`Self::payload`] has.
            #[must_use]
            pub fn payload_bytes(&self) -> usize {
                let mut counted = ByteCount::default();
                let written = match self {
                    $(Self::$variant(payload) => serde_json::to_writer(&mut counted, payload)),+
                };
                written.expect("payloads hold only strings, numbers and lists of them");
                counted.0
            }

            /// Parses a stored event.
            ///
            /// # Errors
            /// [`UnknownEvent`] when a newer build wrote the row, or it is damaged.
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
    /// The session was created.
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
    /// The turn's next wire request waits until this time.
    RetryScheduled(RetryScheduled) = "retry.scheduled",
    /// Text of an unfinished reply, kept so that a crash does not lose it.
    TextCheckpointed(TextCheckpointed) = "text.checkpointed",
    /// A tool call's intent.
    ToolCalled(ToolCalled) = "tool.called",
    /// A call waits for somebody's answer.
    ToolAsked(ToolAsked) = "tool.asked",
    /// Somebody has answered, or nobody is waited for any longer.
    ToolAnswered(ToolAnswered) = "tool.answered",
    /// An intended call's body may run from now on.
    ToolStarted(ToolStarted) = "tool.started",
    /// A tool call's one result.
    ToolSettled(ToolSettled) = "tool.settled",
    /// The model's reply is complete.
    TurnReplied(TurnReplied) = "turn.replied",
    /// The turn is over, with all its calls.
    TurnSettled(TurnSettled) = "turn.settled",
    /// A text of ours for the model.
    NoticeRecorded(NoticeRecorded) = "notice.recorded",
    /// Somebody asked to stop.
    InterruptRequested(InterruptRequested) = "interrupt.requested",
    /// A Session Drain ended.
    DrainEnded(DrainEnded) = "drain.ended",
    /// The session has another title.
    SessionRenamed(SessionRenamed) = "session.renamed",
    /// The session is archived, or no more.
    SessionArchived(SessionArchived) = "session.archived",
    /// The session has other metadata.
    SessionDescribed(SessionDescribed) = "session.described",
    /// A context entry has a new value.
    EntrySet(EntrySet) = "entry.set",
    /// A context entry no longer applies.
    EntryRemoved(EntryRemoved) = "entry.removed",
    /// An inbox item that is not a prompt was acknowledged.
    ControlAdmitted(ControlAdmitted) = "control.admitted",
    /// Its action begins.
    ControlDelivered(ControlDelivered) = "control.delivered",
    /// An inbox item was taken back before it was delivered.
    InputCancelled(InputCancelled) = "input.cancelled",
    /// An inbox item has another delivery.
    DeliveryChanged(DeliveryChanged) = "delivery.changed",
    /// Waiting inputs must run.
    WakeRequested(WakeRequested) = "wake.requested",
    /// A Compaction began.
    CompactionStarted(CompactionStarted) = "compaction.started",
    /// A Compaction's answer was no summary.
    CompactionReminded(CompactionReminded) = "compaction.reminded",
    /// A Compaction ended.
    CompactionEnded(CompactionEnded) = "compaction.ended",
    /// A title is being made.
    TitleStarted(TitleStarted) = "title.started",
    /// The request for a title ended.
    TitleEnded(TitleEnded) = "title.ended",
    /// The session continues at another Location.
    SessionMoved(SessionMoved) = "session.moved",
    /// The session begins with a copy of another's log.
    SessionForked(SessionForked) = "session.forked",
    /// The Location's files were captured.
    WorkspaceSnapshotted(WorkspaceSnapshotted) = "workspace.snapshotted",
    /// The Location's files were restored on another disk.
    WorkspaceRestored(WorkspaceRestored) = "workspace.restored",
    /// Files are about to be restored.
    RevertStaging(RevertStaging) = "revert.staging",
    /// The session is back before a message, and the Revert can be undone.
    RevertStaged(RevertStaged) = "revert.staged",
    /// The Revert was undone.
    RevertCleared(RevertCleared) = "revert.cleared",
    /// The Revert is final.
    RevertCommitted(RevertCommitted) = "revert.committed",
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
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
            reason: Some(EpochReason::First),
        });
        let back = SessionEvent::read(event.kind(), event.version(), &event.payload());
        assert_eq!(back.expect("our own event"), event);
    }

    /// The shapes that the SQL of the projections reads and that rows keep for good.
    #[test]
    fn files_reverts_forks_and_moves_have_these_shapes() {
        let tree = |digit: &str| format!("\"{}\"", digit.repeat(64));
        let (a, b) = (tree("a"), tree("b"));
        let file = r#"{"path":"src/x","status":"added","additions":2,"patch":"@@"}"#;
        let back = r#"{"epoch":1,"snapshot":"{}"}"#;
        let staged = r#""message":"msg_1","from":7"#;
        let all = [
            ("session.moved", format!(r#"{{"from":"loc_1","to":"loc_2","project":"prj_1","directory":"/workspace","carry":true,"tree":{a}}}"#)),
            ("session.moved", r#"{"from":"loc_1","to":"loc_2","project":"prj_1","directory":"/workspace"}"#.into()),
            ("session.forked", format!(r#"{{"parent":"ses_1","through":9,"before":"msg_1","copied":7,"files":{a}}}"#)),
            ("session.forked", r#"{"parent":"ses_1","through":9,"copied":7}"#.into()),
            ("workspace.snapshotted", format!(r#"{{"token":5,"ordinal":2,"tree":{a},"parent":{b},"pack":"o/p","bytes":10,"turn":"trn_1","files":[{file}],"more":1}}"#)),
            ("workspace.snapshotted", format!(r#"{{"token":5,"ordinal":1,"tree":{a},"bytes":0,"base":true,"files":[]}}"#)),
            ("workspace.restored", format!(r#"{{"token":6,"tree":{a},"lost":["call_1"]}}"#)),
            ("workspace.restored", r#"{"token":6,"lost":[]}"#.into()),
            ("revert.staging", format!(r#"{{{staged},"original":{a},"target":{b},"paths":{{"only":["src/x"]}},"back":{back}}}"#)),
            ("revert.staging", format!(r#"{{{staged},"original":{a},"paths":"all","undone":{{"only":["src/y"]}},"back":{{}}}}"#)),
            ("revert.staged", format!(r#"{{{staged},"original":{a},"paths":"all","files":[{file}],"back":{back}}}"#)),
            ("revert.staged", format!(r#"{{{staged},"files":[],"back":{back}}}"#)),
            ("revert.cleared", r#"{}"#.into()),
            ("revert.cleared", r#"{"error":{"code":"a.b","message":"c"}}"#.into()),
            ("revert.committed", format!(r#"{{{staged},"back":{back}}}"#)),
            ("control.admitted", r#"{"message":"msg_1","delivery":"steer","control":{"type":"move","project":"prj_1","location":"loc_2","directory":"/workspace","carry":true},"wake":true,"digest":"d"}"#.into()),
            ("control.admitted", r#"{"message":"msg_1","delivery":"steer","control":{"type":"revert","message":"msg_2","files":true},"wake":true,"digest":"d"}"#.into()),
            ("control.admitted", r#"{"message":"msg_1","delivery":"steer","control":{"type":"unrevert"},"wake":true,"digest":"d"}"#.into()),
            ("control.delivered", r#"{"message":"msg_1","error":{"code":"a.b","message":"c"}}"#.into()),
            ("epoch.started", r#"{"epoch":2,"baseline":"b","snapshot":"{}","reason":"move"}"#.into()),
            ("epoch.started", r#"{"epoch":2,"baseline":"b","snapshot":"{}"}"#.into()),
            ("notice.recorded", r#"{"message":"msg_1","kind":"files-lost","text":"t"}"#.into()),
        ];
        for (kind, payload) in all {
            let event = SessionEvent::read(kind, 1, &payload)
                .unwrap_or_else(|error| panic!("{payload}: {error:?}"));
            assert_eq!((event.kind(), event.payload()), (kind, payload));
        }
    }

    /// The shapes that rows of requests and replies keep for good. Newer members are left out when they are empty.
    #[test]
    fn requests_and_replies_have_these_shapes() {
        let attempt = r#""attempt":"att_1","turn":"trn_1","ordinal":1,"body_hash":"h","wire_version":1,"epoch":1,"through":3,"components":{}"#;
        let turn = r#""turn":"trn_1","message":"msg_2","parent":"msg_1","agent":"build","model":{"provider":"p","model":"m"},"epoch":1,"step":1"#;
        let prices = r#"{"input":1,"output":2,"cache_read":0,"cache_write":0}"#;
        let estimate = r#"{"input":10,"output_max":20,"cost":30}"#;
        let call =
            r#""call":"call_1","part":"prt_1","provider_call":"c","tool":"read","arguments":"{}""#;
        let reply = |parts: &str| {
            format!(r#"{{"turn":"trn_1","message":"msg_1","parts":[{parts}],"finish":"stop"}}"#)
        };
        let called = |more: &str| {
            format!(
                r#"{{"turn":"trn_1","message":"msg_1","intent":{{{call}{more}}},"class":"pure","state":"started"}}"#
            )
        };
        let state = r#""metadata":"{\"a\":{\"b\":1}}""#;
        let hosted = r#""id":"prt_1","call":"s_1","name":"web_search""#;
        let all = [
            ("turn.started", format!("{{{turn}}}")),
            ("turn.started", format!(r#"{{{turn},"notice":"old"}}"#)),
            ("attempt.started", format!("{{{attempt}}}")),
            ("attempt.started", format!(r#"{{{attempt},"pricing":{{"version":"v","prices":{prices},"estimate":{estimate}}}}}"#)),
            ("tool.called", called("")),
            ("tool.called", called(&format!(",{state}"))),
            ("turn.replied", reply(r#"{"type":"text","id":"prt_1","text":"a"},{"type":"reasoning","id":"prt_2","text":"b"},{"type":"tool-call","call":"call_1"}"#)),
            ("turn.replied", reply(&format!(r#"{{"type":"reasoning","id":"prt_1","text":"",{state}}}"#))),
            ("turn.replied", reply(&format!(r#"{{"type":"hosted-call",{hosted},"input":"{{}}",{state}}}"#))),
            ("turn.replied", reply(&format!(r#"{{"type":"hosted-result",{hosted},"output":"o","is_error":true}}"#))),
            ("turn.replied", reply(&format!(r#"{{"type":"hosted-result",{hosted},"output":"o",{state}}}"#))),
            ("session.created", r#"{"project":"prj_1","location":"loc_1","directory":"/workspace","title":"t","agent":"build","model":{"provider":"p","model":"m"}}"#.into()),
            ("session.created", r#"{"project":"prj_1","location":"loc_1","directory":"/workspace","title":"t","agent":"build","metadata":"{ \"a\": 1.0 }"}"#.into()),
            ("session.archived", r#"{"archived":17}"#.into()),
            ("session.archived", "{}".into()),
            ("session.described", r#"{"metadata":"{}"}"#.into()),
            ("session.created", r#"{"project":"prj_1","location":"loc_1","directory":"/workspace","title":"t","agent":"build","model":{"provider":"p","model":"m","variant":"high"}}"#.into()),
        ];
        for (kind, payload) in all {
            let event = SessionEvent::read(kind, 1, &payload)
                .unwrap_or_else(|error| panic!("{payload}: {error:?}"));
            assert_eq!((event.kind(), event.payload()), (kind, payload));
        }
    }

    #[test]
    fn an_event_of_a_newer_build_says_so() {
        let error = SessionEvent::read("epoch.started", 2, "{}").expect_err("version 2 is unknown");
        assert!(matches!(error, UnknownEvent::Kind { version: 2, .. }));
        let error = SessionEvent::read("epoch.started", 1, "{}").expect_err("fields are missing");
        assert!(matches!(error, UnknownEvent::Payload { .. }));
    }
}
