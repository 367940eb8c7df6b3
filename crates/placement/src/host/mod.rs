//! The openraft host of [`crate::rules`]: disk, network, and the leader's work.
//!
//! ```text
//! HTTP or local ──▶ leader: watch (who is heard) · writer (one entry at a time) · sweep (ready work)
//!                      │ entries                                   │ hints
//!                      ▼                                           ▼
//!        Raft: log and vote on disk ─▶ rules::State on every member   Signals
//! ```

mod disk;
mod job;
mod last;
mod leader;
mod local;
mod log_store;
mod machine;
mod members;
mod network;
mod node;
mod options;
mod reach;
mod router;
mod sweep;
#[cfg(test)]
mod tests;
mod types;
mod watch;
mod writer;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use domain::{Clock, Generation, Incarnation};
use placement_api::FolderId;
use signals::Signals;
use tasks::CancellationToken;

pub use disk::DiskError;
use leader::Leading;
pub use local::LocalPlacement;
use machine::SharedState;
use network::Network;
pub use node::{MemberReadiness, NodeError, PlacementNode};
pub use options::{Options, Timing};
pub use sweep::{ReadyWork, ReadyWorkError, SWEEP_LIMIT};
use types::{Metrics, Raft};

/// The longest age of the majority's last answer, in milliseconds, at which a leader still answers.
const MAX_QUORUM_AGE_MS: u64 = 1_500;

/// How long a member may be without a majority before it says so: many elections.
const UNREADY_AFTER: Duration = Duration::from_secs(10);

/// The shared state of all parts of a member.
pub(crate) struct Host {
    pub(crate) id: u64,
    /// Its data folder. Messages for another folder are refused.
    pub(crate) folder: FolderId,
    /// Set when the group knows this member's number with another folder: this folder is new, and the old one
    /// is lost.
    pub(crate) displaced: CancellationToken,
    pub(crate) network: Network,
    /// The generation in our entries; it only grows.
    pub(crate) generation: AtomicU32,
    pub(crate) secret: Option<String>,
    pub(crate) timing: Timing,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) ready_work: Arc<dyn ReadyWork>,
    pub(crate) raft: Raft,
    pub(crate) state: SharedState,
    pub(crate) leading: RwLock<Option<Arc<Leading>>>,
    /// The (monotonic) time at which this member last was part of a majority with a leader.
    pub(crate) served: RwLock<Option<Duration>>,
}

impl Host {
    /// Returns the leader's state, while this member leads.
    pub(crate) fn leading(&self) -> Option<Arc<Leading>> {
        self.leading.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_leading(&self, leading: Option<Arc<Leading>>) {
        *self.leading.write().unwrap_or_else(PoisonError::into_inner) = leading;
    }

    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics().borrow().clone()
    }

    /// Returns whether a majority has answered this leader recently. A leader that is cut off must not keep
    /// workers from the new leader on the other side.
    pub(crate) fn has_majority(&self) -> bool {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let alone = metrics.membership_config.voter_ids().eq([self.id]);
        alone || metrics.millis_since_quorum_ack.is_some_and(|age| age <= MAX_QUORUM_AGE_MS)
    }

    /// Notes whether this member is part of a majority now: it leads and a majority answers it, or it hears a leader.
    pub(crate) fn note_majority(&self) {
        let leads = self.leading().is_some() && self.has_majority();
        if leads || self.leader_url().is_some() {
            let now = Some(self.clock.monotonic());
            *self.served.write().unwrap_or_else(PoisonError::into_inner) = now;
        }
    }

    /// Returns why this member is of no use, if it is of none for longer than an election takes.
    pub(crate) fn why_unready(&self) -> Option<String> {
        let served = *self.served.read().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.monotonic();
        if served.is_some_and(|at| now.saturating_sub(at) <= UNREADY_AFTER) {
            return None;
        }
        if self.metrics().membership_config.membership().nodes().next().is_none() {
            return Some(format!(
                "member {} belongs to no placement group yet: found one of all members with `placement init`, or take it \
                 into theirs with `placement add`",
                self.id
            ));
        }
        Some(format!(
            "member {} hears no majority of the placement members: see `placement status`, start the others, and give \
             all of them the same --cluster-secret",
            self.id
        ))
    }

    /// Returns the leader's URL, if another member is known to lead.
    pub(crate) fn leader_url(&self) -> Option<String> {
        let metrics = self.metrics();
        let leader = metrics.current_leader.filter(|leader| *leader != self.id)?;
        let node = metrics.membership_config.membership().get_node(&leader)?;
        Some(node.addr.clone())
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::Acquire))
    }

    pub(crate) fn raise_generation(&self, known: Generation) {
        self.generation.fetch_max(known.0, Ordering::AcqRel);
    }

    /// Returns whether this group has given no token yet.
    pub(crate) fn is_new(&self) -> bool {
        self.state.read(|state| state.is_new())
    }

    pub(crate) fn live(&self) -> BTreeSet<Incarnation> {
        self.state.read(|state| state.workers().map(|one| one.worker.incarnation).collect())
    }
}
