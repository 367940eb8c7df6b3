//! What workers and gateways ask of placement, and how they ask it.
//!
//! ```text
//! worker ──heartbeat──▶ placement ──leases──▶ worker
//! gateway ──place──▶ placement ──holder──▶ gateway
//! ```
//!
//! Invariant: a lease is advice about who should work; what proves it is the [`FencingToken`] in every
//! write. Silence from placement stops nothing that runs.
//! Absent on purpose: openraft, and any rule of placement; those are in `placement`.

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

/// How long a worker may be silent before it is declared dead; also a lease's time to live, counted by
/// the holder from before the heartbeat that renewed it.
pub const SUSPICION: Duration = Duration::from_secs(2);

/// How often a worker sends its heartbeat.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

/// The header with which a caller asks a member that does not lead to pass its call on to the leader, once: for a
/// worker that reaches the other members and not the leader.
pub const PASS_ON: &str = "opencode-placement-pass-on";

/// A worker process as placement knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// This life of the process.
    pub incarnation: Incarnation,
    /// The machine's name for people and for `nodes drain NAME`.
    pub node: String,
    /// Where its internal listener answers, such as `http://127.0.0.1:4201`.
    pub url: String,
    /// How many drains it runs at once.
    pub slots: u32,
}

/// A Location given to one incarnation of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// What is leased.
    pub location: LocationRef,
    /// What proves it in the store.
    pub token: FencingToken,
}

/// One heartbeat of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The worker.
    pub worker: Worker,
    /// The `version` of the last reply that it took in; 0 at first.
    pub known: u64,
    /// Locations that it gives back: idle ones, or all of them when it drains.
    pub released: Vec<Lease>,
    /// It takes no new Locations: it is shutting down.
    pub draining: bool,
    /// Drains that it runs right now.
    pub busy: u32,
    /// It takes [`HeartbeatReply::changes`] in place of a whole list.
    #[serde(default)]
    pub deltas: bool,
    /// Milliseconds since it asked the store something that was answered.
    #[serde(default)]
    pub store_silent_ms: u64,
    /// It does not reach the store, although it tries: its sessions stand still until others take them.
    #[serde(default)]
    pub stranded: bool,
}

impl Heartbeat {
    /// A heartbeat of a worker that gives nothing back, runs nothing and reaches the store.
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
    /// Leases that are new. One that replaces a lost lease of the same Location is here too.
    pub gained: Vec<Lease>,
    /// Leases that ended.
    pub lost: Vec<Lease>,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Changes with every change of this worker's leases.
    pub version: u64,
    /// All its leases, where `changes` cannot say what is new; `None` when nothing changed since `known`.
    pub leases: Option<Vec<Lease>>,
    /// What changed since `known`, for a worker that asked for [`Heartbeat::deltas`]. With thousands of leases a whole
    /// list is hundreds of kilobytes for one that is new.
    #[serde(default)]
    pub changes: Option<LeaseChanges>,
    /// Placement asks it to drain (`placement drain`): finish at the next boundary and release.
    pub drain: bool,
    /// Another worker reaches the store and this one does not: give all Locations back at once.
    #[serde(default)]
    pub hand_over: bool,
}

impl HeartbeatReply {
    /// The answer that nothing is new at `version`.
    #[must_use]
    pub fn unchanged(version: u64) -> Self {
        Self { version, leases: None, changes: None, drain: false, hand_over: false }
    }
}

/// Asks for the holder of a Location, and to lease it when nobody holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlaceRequest {
    /// The Location.
    pub location: LocationRef,
    /// The session that waits there; its wake is forwarded to the holder.
    pub session: Option<SessionId>,
}

/// Who holds a Location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The holder.
    pub worker: Worker,
    /// Its lease.
    pub lease: Lease,
}

/// Why placement did not answer as asked.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum PlacementError {
    /// No member answered, or there is no leader yet. Ask again; what runs goes on.
    #[error("placement cannot be reached: {reason}")]
    Unreachable {
        /// What was tried.
        reason: String,
    },
    /// No live worker takes Locations. Start one.
    #[error("no worker is ready to take work; start one or wait for one to come back")]
    NoWorker,
    /// The incarnation was declared dead: it must start over with a fresh one.
    #[error("this worker was declared dead; it continues as a new incarnation")]
    Superseded,
    /// Not a valid request.
    #[error("{reason}")]
    Invalid {
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// Placement, as workers and gateways see it: in this process or over HTTP.
#[async_trait]
pub trait Placement: Send + Sync + 'static {
    /// Keeps a worker alive and tells it its leases. Not a log entry.
    ///
    /// # Errors
    /// [`PlacementError::Superseded`] when the incarnation is dead; `Unreachable` is not a reason to stop.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError>;

    /// Finds the holder of a Location, leasing it first when nobody alive holds it, and forwards the
    /// session's wake to it.
    ///
    /// # Errors
    /// `NoWorker` or `Unreachable`: the work stays *ready* in the store and is found by the sweep.
    async fn place(&self, request: PlaceRequest) -> Result<Placed, PlacementError>;
}
