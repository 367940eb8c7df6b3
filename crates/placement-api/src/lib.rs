//! What workers and gateways ask of placement, and how they ask it.
//!
//! ```text
//! worker ──heartbeat──▶ placement ──leases──▶ worker
//! gateway ──place──▶ placement ──holder──▶ gateway
//! ```
//!
//! Invariant: a lease is advice about who should work; what proves it is the [`FencingToken`] in every
//! write (design §2.6). Silence from placement stops nothing that runs (§2.7).
//! Absent on purpose: openraft, and any rule of placement; those are in `placement`.

mod admin;
mod caller;
mod http;
mod status;

use std::time::Duration;

pub use admin::{PlacementAdmin, valid_node};
use async_trait::async_trait;
use domain::{FencingToken, Incarnation, LocationRef, SessionId};
pub use http::HttpPlacement;
use serde::{Deserialize, Serialize};
pub use status::{Member, NotLeader, Status, WorkerStatus};

/// How long a worker may be silent before it is declared dead; also a lease's time to live, counted by
/// the holder from before the heartbeat that renewed it.
pub const SUSPICION: Duration = Duration::from_secs(2);

/// How often a worker sends its heartbeat.
pub const HEARTBEAT: Duration = Duration::from_millis(500);

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
    /// Who.
    pub worker: Worker,
    /// The `version` of the last reply that it took in; 0 at first.
    pub known: u64,
    /// Locations that it gives back: idle ones, or all of them when it drains.
    pub released: Vec<Lease>,
    /// It takes no new Locations: it is shutting down.
    pub draining: bool,
    /// Drains that it runs right now.
    pub busy: u32,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Changes with every change of this worker's leases.
    pub version: u64,
    /// All its leases; `None` when nothing changed since `known`.
    pub leases: Option<Vec<Lease>>,
    /// Placement asks it to drain (`nodes drain`): finish at the next boundary and release.
    pub drain: bool,
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
