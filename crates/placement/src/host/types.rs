use std::io::Cursor;

use placement_api::FolderId;
use serde::{Deserialize, Serialize};

use crate::rules::{Batch, Effect};

openraft::declare_raft_types!(
    /// The types that openraft uses for us.
    pub(crate) RaftTypes:
        D = Batch,
        R = Vec<Effect>,
        Node = MemberNode,
);

/// A member in the group's membership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct MemberNode {
    /// The URL of its internal listener.
    pub(crate) addr: String,
    /// Its data folder. Unknown in memberships of older builds.
    #[serde(default)]
    pub(crate) folder: FolderId,
}

pub(crate) type Raft = openraft::Raft<RaftTypes>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<RaftTypes>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type StorageIoError = openraft::StorageIOError<u64>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, MemberNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, MemberNode>;
/// Raft's snapshot: our state as JSON text. Not a Context Snapshot.
pub(crate) type RaftSnapshot = openraft::Snapshot<RaftTypes>;
pub(crate) type Metrics = openraft::RaftMetrics<u64, MemberNode>;
