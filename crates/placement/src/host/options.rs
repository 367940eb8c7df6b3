use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, Generation};
use placement_api::SUSPICION;
use signals::Signals;
use tasks::TaskGroup;

use super::sweep::ReadyWork;

/// What a member of placement is started with.
#[derive(Clone)]
pub struct Options {
    /// Its number in the group, from 1. Never changes for a data folder, never used again for another.
    pub id: u64,
    /// Its own folder, for `placement.redb`; made when missing.
    pub data_dir: PathBuf,
    /// Where the other members reach [`PlacementNode::router`](super::PlacementNode::router), such as
    /// `http://10.0.0.1:4301`. Kept in the membership of a group that this member founds alone; others name it there.
    /// Empty where it is not known.
    pub advertise_url: String,
    /// What new tokens begin with, read from Postgres. The highest one that a leader has counts.
    pub generation: Generation,
    /// The secret that members, workers and gateways show each other. Without one the router answers everybody:
    /// bind it to loopback only.
    pub secret: Option<String>,
    /// Found a group of this one member at the first start: the embedded default.
    pub single: bool,
    /// Times and sizes.
    pub timing: Timing,
    /// What time it is; leases use its monotonic side only.
    pub clock: Arc<dyn Clock>,
    /// Where assignments and wakes are announced.
    pub signals: Arc<dyn Signals>,
    /// Which sessions are ready.
    pub ready_work: Arc<dyn ReadyWork>,
    /// Owns the member's tasks; a member that cannot go on stops the role.
    pub tasks: TaskGroup,
}

/// Times and sizes of a member; the defaults are the design's.
#[derive(Debug, Clone)]
pub struct Timing {
    /// How often a leader shows that it lives.
    pub heartbeat: Duration,
    /// The shortest silence of a leader after which another is elected.
    pub election_min: Duration,
    /// The longest.
    pub election_max: Duration,
    /// Silence after which a worker is declared dead.
    pub suspicion: Duration,
    /// How often the leader looks for ready sessions.
    pub sweep: Duration,
    /// Entries from one Raft snapshot to the next.
    pub snapshot_every: u64,
    /// Entries before a Raft snapshot that stay in the log, so that a member that was away shortly needs no
    /// snapshot.
    pub keep_entries: u64,
    /// How long a new member may take to catch up before it is taken out again.
    pub catch_up: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(150),
            election_min: Duration::from_millis(600),
            election_max: Duration::from_millis(1_200),
            suspicion: SUSPICION,
            sweep: Duration::from_secs(1),
            snapshot_every: 5_000,
            keep_entries: 1_000,
            catch_up: Duration::from_secs(20),
        }
    }
}
