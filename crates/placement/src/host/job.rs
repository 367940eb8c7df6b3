use domain::{Incarnation, LocationRef, SessionId};
use placement_api::{Lease, Placed, PlacementError, Worker};
use tokio::sync::oneshot;

/// The most jobs that wait for the leader's writer. Further callers get an error and retry.
pub(crate) const MAX_WAITING: usize = 4_096;
/// The most leases in one [`Job::Release`]: a job must fit into an entry beside others.
pub(crate) const MAX_RELEASED: usize = 250;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, PlacementError>>;

/// A caller that waits for a Location to be placed.
pub(crate) struct Waiter {
    /// The session to wake there.
    pub(crate) session: Option<SessionId>,
    /// The number of earlier tries; a worker died in between.
    pub(crate) tries: u8,
    /// The caller's channel; `None` for the sweep.
    pub(crate) reply: Option<Reply<Placed>>,
}

/// A request that needs a log entry. A dropped reply means that leadership moved.
pub(crate) enum Job {
    /// Find or make a holder.
    Place {
        /// The Location.
        location: LocationRef,
        /// The caller.
        waiter: Waiter,
    },
    /// A worker that is new, or whose address or slots changed.
    Register {
        /// The worker.
        worker: Worker,
        /// The caller.
        reply: Reply<()>,
    },
    /// Returned leases, at most [`MAX_RELEASED`].
    Release {
        /// The worker that returns them.
        incarnation: Incarnation,
        /// The leases.
        leases: Vec<Lease>,
        /// Give them to others at once: their holder drains and has handed its work over.
        reassign: bool,
        /// The caller.
        reply: Reply<()>,
    },
    /// A worker that was silent for too long.
    Retire {
        /// Its incarnation.
        incarnation: Incarnation,
    },
    /// A change to whether a node drains.
    Drain {
        /// The node's name.
        node: String,
        /// `true` to drain, `false` to take Locations again.
        on: bool,
        /// The caller.
        reply: Reply<()>,
    },
}

impl Job {
    /// Returns the most commands that it can become.
    pub(crate) fn commands(&self) -> usize {
        match self {
            Self::Release { leases, .. } => leases.len(),
            Self::Place { .. }
            | Self::Register { .. }
            | Self::Retire { .. }
            | Self::Drain { .. } => 1,
        }
    }
}
