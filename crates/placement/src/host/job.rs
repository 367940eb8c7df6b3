use domain::{Incarnation, LocationRef, SessionId};
use placement_api::{Lease, Placed, PlacementError, Worker};
use tokio::sync::oneshot;

/// Jobs that may wait for the leader's writer; who comes when they are this many is told to ask again.
pub(crate) const MAX_WAITING: usize = 4_096;
/// Leases that one [`Job::Release`] gives back: a job must fit into an entry beside others.
pub(crate) const MAX_RELEASED: usize = 250;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, PlacementError>>;

/// Who waits for a Location to be placed.
pub(crate) struct Waiter {
    /// The session to wake there.
    pub(crate) session: Option<SessionId>,
    /// How often it was tried before: somebody died in between.
    pub(crate) tries: u8,
    /// `None` when nobody waits: the sweep.
    pub(crate) reply: Option<Reply<Placed>>,
}

/// What needs an entry of the log. A reply that is dropped means that leadership moved.
pub(crate) enum Job {
    /// Find or make a holder.
    Place {
        /// Of this.
        location: LocationRef,
        /// For whom.
        waiter: Waiter,
    },
    /// A worker that is new, or whose address or slots changed.
    Register {
        /// The worker.
        worker: Worker,
        /// Who waits.
        reply: Reply<()>,
    },
    /// Leases given back, at most [`MAX_RELEASED`].
    Release {
        /// By whom.
        incarnation: Incarnation,
        /// Which.
        leases: Vec<Lease>,
        /// Give them to others at once: their holder drains and has handed work over.
        reassign: bool,
        /// Who waits.
        reply: Reply<()>,
    },
    /// A worker was silent for too long.
    Retire {
        /// Which.
        incarnation: Incarnation,
    },
    /// A node is to drain, or no longer.
    Drain {
        /// Its name.
        node: String,
        /// Which of both.
        on: bool,
        /// Who waits.
        reply: Reply<()>,
    },
}

impl Job {
    /// How many commands it becomes, at most.
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
