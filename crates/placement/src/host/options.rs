use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{Clock, Generation};
use placement_api::SUSPICION;
use signals::Signals;
use tasks::TaskGroup;

use super::sweep::ReadyWork;

/// The options of a placement member.
#[derive(Clone)]
pub struct Options {
    /// Its number in the group, from 1. A data folder keeps its number, and no other folder ever gets it.
    pub id: u64,
    /// Its own folder, for `placement.redb`. Created if missing.
    pub data_dir: PathBuf,
    /// The URL at which the other members reach [`PlacementNode::router`](super::PlacementNode::router), such
    /// as `http://10.0.0.1:4301`. Stored in the membership if this member founds a group alone; otherwise the
    /// group's membership names it. Empty if unknown.
    pub advertise_url: String,
    /// The generation of new tokens, read from Postgres. A leader uses the highest that it knows.
    pub generation: Generation,
    /// The secret that members, workers and gateways share. Without one the router answers everyone, so bind
    /// it to loopback only.
    pub secret: Option<String>,
    /// Founds a group of this member alone at the first start: the embedded default.
    pub single: bool,
    /// Times and sizes.
    pub timing: Timing,
    /// The clock. Leases use only its monotonic side.
    pub clock: Arc<dyn Clock>,
    /// The signals for assignments and wakes.
    pub signals: Arc<dyn Signals>,
    /// The source of ready sessions.
    pub ready_work: Arc<dyn ReadyWork>,
    /// The owner of the member's tasks. A member that cannot continue stops the role.
    pub tasks: TaskGroup,
}

/// Times and sizes of a member. The defaults are those of the design.
#[derive(Debug, Clone)]
pub struct Timing {
    /// The interval of a leader's heartbeats.
    pub heartbeat: Duration,
    /// The shortest silence of a leader before an election.
    pub election_min: Duration,
    /// The longest silence of a leader before an election.
    pub election_max: Duration,
    /// The silence after which a worker is declared dead.
    pub suspicion: Duration,
    /// The interval at which the leader looks for ready sessions.
    pub sweep: Duration,
    /// The number of entries between Raft snapshots.
    pub snapshot_every: u64,
    /// The number of entries before a Raft snapshot that stay in the log, so that a briefly absent member
    /// needs no snapshot.
    pub keep_entries: u64,
    /// The time in which a new member must catch up, or be removed again.
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
