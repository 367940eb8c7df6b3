//! Hints between processes: wakes, interrupts, live deltas. All of them may be lost, doubled or late;
//! the cost is latency, never a wrong result.
//!
//! ```text
//! gateway ──wake, interrupt, resync──▶ worker topic
//! worker ──committed, delta──▶ session topic ──▶ gateways that follow the session
//! ```
//!
//! Invariant: publishing never blocks and never fails; what does not fit is dropped and counted.
//! Absent on purpose: anything durable, acknowledgements, replies.

mod dropping;
mod in_process;
mod nats;

use async_trait::async_trait;
pub use dropping::Dropping;
pub use in_process::InProcess;
pub use nats::{Nats, NatsError};

use domain::{Incarnation, LocationRef, MessageId, OrgId, PartId, Seq, SessionId, SessionRef};
use serde::{Deserialize, Serialize};

/// Where a hint goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// To one incarnation of a worker.
    Worker(Incarnation),
    /// To whoever follows a session.
    Session(OrgId, SessionId),
}

/// A hint to a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkerHint {
    /// A session of a Location that you hold may have work.
    Wake {
        /// The session.
        session: SessionRef,
    },
    /// A session that you drain may have an interrupt.
    Interrupt {
        /// The session.
        session: SessionRef,
    },
    /// Someone follows a session and lacks the text so far: publish it from offset 0.
    Resync {
        /// The session.
        session: SessionRef,
    },
    /// Placement may have given you a Location, where a session may wait: send a heartbeat now. It carries no token:
    /// anybody who can publish could name one, and a token raises a fence for good.
    Assigned {
        /// The Location.
        location: LocationRef,
        /// The session that waits.
        session: Option<SessionId>,
    },
}

/// A hint to the followers of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionHint {
    /// The log reaches to `seq`: read on.
    Committed {
        /// The highest sequence number that is committed.
        seq: Seq,
        /// Who only waits for the end of the work need not read before this.
        #[serde(default = "yes")]
        ends: bool,
    },
    /// Text of a part that is not settled yet.
    Delta(Delta),
}

/// A hint that does not say whether work has ended: perhaps.
fn yes() -> bool {
    true
}

/// A piece of a part, addressed by where it starts, so that gaps and repeats are seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The assistant message.
    pub message: MessageId,
    /// The part.
    pub part: PartId,
    /// What kind of part it is.
    pub kind: DeltaKind,
    /// UTF-8 bytes of the part before `text`.
    pub offset: u64,
    /// The piece; never splits a code point.
    pub text: String,
}

/// What a delta extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
}

/// A hint on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Hint {
    /// For a [`Topic::Worker`].
    Worker(WorkerHint),
    /// For a [`Topic::Session`].
    Session(SessionHint),
}

/// Hints received on one topic, in the order they came. A slow reader loses the oldest, and is told so.
pub struct Subscription {
    stream: std::pin::Pin<Box<dyn futures::Stream<Item = Received> + Send>>,
}

/// What a [`Subscription`] yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// A hint.
    Hint(Hint),
    /// Hints were lost before the next one: read the truth.
    Lagged,
}

impl Subscription {
    /// Wraps a stream of hints.
    pub fn new(stream: impl futures::Stream<Item = Received> + Send + 'static) -> Self {
        Self { stream: Box::pin(stream) }
    }

    /// The next hint; `None` when the signals are shut down.
    pub async fn next(&mut self) -> Option<Received> {
        futures::StreamExt::next(&mut self.stream).await
    }
}

/// The way hints travel: inside this process, or through NATS.
#[async_trait]
pub trait Signals: Send + Sync + 'static {
    /// Sends a hint, if it can be sent at once. Never blocks, never fails.
    fn publish(&self, topic: &Topic, hint: Hint);

    /// Receives what is published on `topic` from now on: subscribe first, then read Postgres.
    async fn subscribe(&self, topic: Topic) -> Subscription;
}
