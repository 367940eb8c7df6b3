use serde::{Deserialize, Serialize};

use crate::{FolderId, Worker};

/// The answer of a member that is not the leader: `421 Misdirected Request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLeader {
    /// Always `not_leader`.
    pub code: String,
    /// The leader's URL, if known.
    pub leader_url: Option<String>,
}

impl NotLeader {
    /// Makes the answer that names the leader, if there is one.
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
    /// The URL of its internal listener, such as `http://127.0.0.1:4301`.
    pub url: String,
    /// It has a vote. A member that is still catching up has none.
    #[serde(default)]
    pub voter: bool,
}

/// A member's view of the group and its workers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The member that answers.
    pub id: u64,
    /// Its data folder.
    #[serde(default)]
    pub folder: FolderId,
    /// The leader, as far as it knows.
    pub leader: Option<u64>,
    /// The leader's URL.
    pub leader_url: Option<String>,
    /// Raft's term.
    pub term: u64,
    /// The generation of new tokens.
    pub generation: u32,
    /// The index of the last entry that this member applied; 0 before the first.
    pub applied: u64,
    /// The index up to which its log is purged; 0 before the first purge.
    pub purged: u64,
    /// The members.
    pub members: Vec<Member>,
    /// The workers that are not declared dead.
    pub workers: Vec<WorkerStatus>,
    /// The number of leased Locations.
    pub leases: usize,
    /// The nodes that drain.
    pub draining_nodes: Vec<String>,
}

/// A worker in a member's view.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// The worker.
    pub worker: Worker,
    /// The number of Locations that it holds.
    pub leases: usize,
    /// Milliseconds since its last heartbeat; `None` on a follower, and before a new leader hears the first
    /// one.
    pub last_heard_ms: Option<u64>,
    /// The number of drains in its last heartbeat.
    pub busy: u32,
    /// It takes no new Locations.
    pub draining: bool,
    /// It does not reach Postgres. Other workers get its Locations.
    #[serde(default)]
    pub stranded: bool,
}
