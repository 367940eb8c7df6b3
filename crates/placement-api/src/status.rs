use serde::{Deserialize, Serialize};

use crate::{FolderId, Worker};

/// The answer of a member that is not the leader: `421 Misdirected Request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// Always `not_leader`.
    pub code: String,
    /// Who leads, when it is known.
    pub leader_url: Option<String>,
}

impl NotLeader {
    /// The answer that names the leader, if there is one.
    #[must_use]
    pub fn new(leader_url: Option<String>) -> Self {
        Self { code: "not_leader".to_owned(), leader_url }
    }
}

/// A member of the placement group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Its number, which never changes and is never used again after its removal.
    pub id: u64,
    /// Where its internal listener answers, such as `http://127.0.0.1:4301`.
    pub url: String,
    /// Whether it has a vote; one that is still catching up has none.
    #[serde(default)]
    pub voter: bool,
}

/// What a member knows of the group and its workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Who answers.
    pub id: u64,
    /// Its data folder.
    #[serde(default)]
    pub folder: FolderId,
    /// Who leads, as far as it knows.
    pub leader: Option<u64>,
    /// Where the leader answers.
    pub leader_url: Option<String>,
    /// Raft's term.
    pub term: u64,
    /// What tokens begin with.
    pub generation: u32,
    /// The index of the last entry that this member has applied; 0 before the first.
    pub applied: u64,
    /// The index up to which its log is purged; 0 before the first purge.
    pub purged: u64,
    /// The members.
    pub members: Vec<Member>,
    /// The workers that are not declared dead.
    pub workers: Vec<WorkerStatus>,
    /// Leased Locations.
    pub leases: usize,
    /// Nodes that were asked to drain.
    pub draining_nodes: Vec<String>,
}

/// A worker, as a member knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The worker.
    pub worker: Worker,
    /// Locations that it holds.
    pub leases: usize,
    /// Milliseconds since its last heartbeat; `None` on a member that does not lead, and before the
    /// first heartbeat that a new leader hears.
    pub last_heard_ms: Option<u64>,
    /// Drains that it runs, by its last heartbeat.
    pub busy: u32,
    /// Whether it takes no new Locations.
    pub draining: bool,
    /// Whether it does not reach Postgres: others get its Locations.
    #[serde(default)]
    pub stranded: bool,
}
