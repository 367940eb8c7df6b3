use std::io::Cursor;

use crate::rules::{Batch, Effect};

openraft::declare_raft_types!(
    /// What openraft carries for us. A member's node is the URL of its internal listener.
    pub(crate) RaftTypes:
        D = Batch,
        R = Vec<Effect>,
);

pub(crate) type Raft = openraft::Raft<RaftTypes>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Entry = openraft::Entry<RaftTypes>;
pub(crate) type StorageError = openraft::StorageError<u64>;
pub(crate) type StorageIoError = openraft::StorageIOError<u64>;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, openraft::BasicNode>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, openraft::BasicNode>;
/// Raft's snapshot: our state as JSON text, never to be confused with a Context Snapshot.
pub(crate) type RaftSnapshot = openraft::Snapshot<RaftTypes>;
pub(crate) type Metrics = openraft::RaftMetrics<u64, openraft::BasicNode>;
