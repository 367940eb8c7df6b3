//! Hints between processes: wakes, interrupts, live deltas. Each may be lost, repeated or late, which costs
//! latency but never gives a wrong result.
//!
//! ```text
//! gateway ──wake, interrupt, resync──▶ worker topic
//! worker ──committed, delta──▶ session topic ──▶ gateways that follow the session
//! ```
//!
//! Invariant: publishing never blocks and never fails. Hints that do not fit are dropped and counted. Absent
//! on purpose: anything durable, acknowledgements, replies.

mod dropping;
mod in_process;
mod nats;

use async_trait::async_trait;
pub use dropping::Dropping;
pub use in_process::InProcess;
pub use nats::{Nats, NatsError};

use domain::{
    CallId, Incarnation, LocationRef, MessageId, OrgId, PartId, Seq, SessionId, SessionRef, words,
};
use serde::{Deserialize, Serialize};

/// The destination of a hint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// To one incarnation of a worker.
    Worker(Incarnation),
    /// The followers of a session.
    Session(OrgId, SessionId),
}

/// A hint to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkerHint {
    /// A session at a Location of yours may have work.
    Wake {
        /// The session.
        session: SessionRef,
    },
    /// A session that you drain may have an interrupt.
    Interrupt {
        /// The session.
        session: SessionRef,
    },
    /// A follower of a session lacks the text so far: publish it from offset 0.
    Resync {
        /// The session.
        session: SessionRef,
    },
    /// Placement may have given you a Location where a session may wait: send a heartbeat now. The hint
    /// carries no token: anyone who can publish could name one, and a token raises a fence for good.
    Assigned {
        /// The Location.
        location: LocationRef,
        /// The waiting session.
        session: Option<SessionId>,
    },
}

/// A hint to the followers of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionHint {
    /// The log reaches `seq`: read on.
    Committed {
        /// The highest committed sequence number.
        seq: Seq,
        /// Work may have ended. Followers that wait only for the end can ignore a hint without this.
        #[serde(default = "yes")]
        ends: bool,
    },
    /// Text of an unsettled part.
    Delta(Delta),
    /// Output of a call that runs.
    Output(CallOutput),
    /// The session's workspace is being made, and is further now: read how far.
    Workspace,
}

/// The default of a hint that does not say whether work ended: perhaps.
fn yes() -> bool {
    true
}

/// A piece of a part, addressed by its offset, so that gaps and repeats are detected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The assistant message.
    pub message: MessageId,
    /// The part.
    pub part: PartId,
    /// The kind of the part.
    pub kind: DeltaKind,
    /// The number of the part's UTF-8 bytes before `text`.
    pub offset: u64,
    /// The text. Never splits a code point.
    pub text: String,
}

/// The end of the output of a call that runs, for people who watch. It replaces the one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallOutput {
    /// The assistant message.
    pub message: MessageId,
    /// The part of the call.
    pub part: PartId,
    /// The call.
    pub call: CallId,
    /// The number of the output's UTF-8 bytes before `text`.
    pub omitted: u64,
    /// The end of the output, some kilobytes at most.
    pub text: String,
}

words! {
    /// The kind of part that a delta extends.
    pub enum DeltaKind {
        /// Text.
        Text = "text",
        /// Reasoning.
        Reasoning = "reasoning",
    }
}

/// A hint for any topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Hint {
    /// For a [`Topic::Worker`].
    Worker(WorkerHint),
    /// For a [`Topic::Session`].
    Session(SessionHint),
}

/// The hints on one topic, in order of arrival. A slow reader loses the oldest and gets [`Received::Lagged`].
pub struct Subscription {
    stream: std::pin::Pin<Box<dyn futures::Stream<Item = Received> + Send>>,
}

/// An item of a [`Subscription`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A hint.
    Hint(Hint),
    /// Hints were lost before the next one: read Postgres.
    Lagged,
}

impl Subscription {
    /// Wraps a stream of hints.
    pub fn new(stream: impl futures::Stream<Item = Received> + Send + 'static) -> Self {
        Self { stream: Box::pin(stream) }
    }

    /// Returns the next hint; `None` once the signals are shut down.
    pub async fn next(&mut self) -> Option<Received> {
        futures::StreamExt::next(&mut self.stream).await
    }
}

/// The transport of hints: in this process, or through NATS.
#[async_trait]
pub trait Signals: Send + Sync + 'static {
    /// Sends a hint if that is possible at once. Never blocks, never fails.
    fn publish(&self, topic: &Topic, hint: Hint);

    /// Receives the hints published on `topic` from now on. Subscribe first, then read Postgres.
    async fn subscribe(&self, topic: Topic) -> Subscription;
}
