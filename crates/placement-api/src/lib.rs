//! The requests of workers and gateways to placement, and their client.
//!
//! ```text
//! worker ──heartbeat──▶ placement ──leases──▶ worker
//! gateway ──place──▶ placement ──holder──▶ gateway
//! ```
//!
//! Invariant: a lease is advice about who should work. The proof is the [`FencingToken`] in every write.
//! Silence from placement stops no running work.
//! Absent on purpose: openraft, and all rules of placement; those are in `placement`.

mod admin;
mod caller;
mod candidates;
mod folder;
mod http;
mod status;

use std::time::Duration;

pub use admin::{PlacementAdmin, valid_node};
use async_trait::async_trait;
use domain::{FencingToken, Incarnation, LocationRef, SessionId};
pub use folder::FolderId;
pub use http::HttpPlacement;
use serde::{Deserialize, Serialize};
pub use status::{Member, NotLeader, Status, WorkerStatus};

/// The silence after which a worker is declared dead. Also a lease's lifetime, which the holder counts from
/// before the heartbeat that renewed it.
pub const SUSPICION: Duration = Duration::from_secs(2);

/// The interval of a worker's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// The header that asks a follower to pass a call on to the leader, once: for a worker that reaches the
/// followers but not the leader.
pub const PASS_ON: &str = "opencode-placement-pass-on";

/// A worker process, as placement knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// This life of the process.
    pub incarnation: Incarnation,
    /// The machine's name, for people and for `nodes drain NAME`.
    pub node: String,
    /// The URL of its internal listener, such as `http://127.0.0.1:4201`.
    pub url: String,
    /// The number of drains that it can run at once.
    pub slots: u32,
}

/// A Location given to one incarnation of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The Location.
    pub location: LocationRef,
    /// The token that proves the lease in the store.
    pub token: FencingToken,
}

/// One heartbeat of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The sender.
    pub worker: Worker,
    /// The `version` of the last reply that it processed; 0 at first.
    pub known: u64,
    /// Locations that it returns: idle ones, or all of them when it drains.
    pub released: Vec<Lease>,
    /// It is shutting down and takes no new Locations.
    pub draining: bool,
    /// The number of drains that it runs now.
    pub busy: u32,
    /// It accepts [`HeartbeatReply::changes`] in place of a whole list.
    #[serde(default)]
    pub deltas: bool,
    /// Milliseconds since the store last answered it.
    #[serde(default)]
    pub store_silent_ms: u64,
    /// It tries to reach the store and cannot. Its sessions stand still until other workers take them.
    #[serde(default)]
    pub stranded: bool,
}

impl Heartbeat {
    /// Makes a heartbeat of a worker that returns nothing, runs nothing and reaches the store.
    #[must_use]
    pub fn new(worker: Worker, known: u64) -> Self {
        Self {
            worker,
            known,
            released: Vec::new(),
            draining: false,
            busy: 0,
            deltas: false,
            store_silent_ms: 0,
            stranded: false,
        }
    }
}

/// The changes of a worker's leases from one version to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseChanges {
    /// New leases, including one that replaces a lost lease of the same Location.
    pub gained: Vec<Lease>,
    /// Ended leases.
    pub lost: Vec<Lease>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// A number that changes with every change of this worker's leases.
    pub version: u64,
    /// All its leases, if `changes` cannot express the difference; `None` if nothing changed since `known`.
    pub leases: Option<Vec<Lease>>,
    /// The changes since `known`, for a worker that sets [`Heartbeat::deltas`]. With thousands of leases, a
    /// whole list is hundreds of kilobytes for one new lease.
    #[serde(default)]
    pub changes: Option<LeaseChanges>,
    /// Placement asks it to drain (`placement drain`): finish at the next boundary and release.
    pub drain: bool,
    /// Another worker reaches the store and this one does not: return all Locations at once.
    #[serde(default)]
    pub hand_over: bool,
}

impl HeartbeatReply {
    /// Makes the reply that nothing has changed since `version`.
    #[must_use]
    pub fn unchanged(version: u64) -> Self {
        Self { version, leases: None, changes: None, drain: false, hand_over: false }
    }
}

/// A request for the holder of a Location, which leases the Location if it has none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceRequest {
    /// The Location.
    pub location: LocationRef,
    /// The waiting session, whose wake is forwarded to the holder.
    pub session: Option<SessionId>,
}

/// The holder of a Location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The worker.
    pub worker: Worker,
    /// Its lease.
    pub lease: Lease,
}

/// The reason why a request to placement failed.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PlacementError {
    /// No member answered, or there is no leader yet. Retry; running work continues.
    #[error("placement cannot be reached: {reason}")]
    Unreachable {
        /// The attempts.
        reason: String,
    },
    /// No live worker takes Locations. Start one.
    #[error("no worker is ready to take work; start one or wait for one to come back")]
    NoWorker,
    /// The incarnation was declared dead. It must continue as a new one.
    #[error("this worker was declared dead; it continues as a new incarnation")]
    Superseded,
    /// The request is not valid.
    #[error("{reason}")]
    Invalid {
        /// The problem and the remedy.
        reason: String,
    },
}

/// The members refuse this process's cluster secret: it can place nothing until it has theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("placement refuses the cluster secret; give every role the same --cluster-secret")]
pub struct SecretRefused;

/// Placement as workers and gateways use it, in this process or over HTTP.
#[async_trait]
pub trait Placement: Send + Sync + 'static {
    /// Keeps a worker alive and returns its leases. Makes no log entry.
    ///
    /// # Errors
    /// [`PlacementError::Superseded`] if the incarnation is dead. `Unreachable` is no reason to stop.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError>;

    /// Returns the holder of a Location, leasing it first if no live worker holds it, and forwards the
    /// session's wake to it.
    ///
    /// # Errors
    /// `NoWorker` or `Unreachable`: the work stays *ready* in the store, and the sweep finds it.
    async fn place(&self, request: PlaceRequest) -> Result<Placed, PlacementError>;

    /// Asks whether the members accept this process, within half a second. Members that do not answer say nothing: then
    /// the last answer counts, and without one it is no refusal.
    ///
    /// # Errors
    /// [`SecretRefused`] if members answer and none accepts its secret.
    async fn prove_secret(&self) -> Result<(), SecretRefused> {
        Ok(())
    }
}
