use std::io::Cursor;
use std::sync::{Arc, PoisonError, RwLock};

use openraft::storage::RaftStateMachine;
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use redb::{Durability, ReadableTable};

use super::disk::{Disk, DiskError, Failure, META, seal, unseal};
use super::types::{
    Entry, LogId, RaftSnapshot, RaftTypes, SnapshotMeta, StorageError, StorageIoError,
    StoredMembership,
};
use crate::rules::{Effect, ImageError, State};

const SNAPSHOT_META: &str = "snapshot_meta";
const SNAPSHOT_STATE: &str = "snapshot_state";

/// The state that the leader's handlers read while Raft writes it. Locks are short and never held across an
/// await.
#[derive(Clone, Default)]
pub(crate) struct SharedState(Arc<RwLock<State>>);

impl SharedState {
    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Applies committed entries. The state lives in memory; a restart loads the last Raft snapshot and applies
/// the log after it again.
pub(crate) struct Machine {
    disk: Arc<Disk>,
    state: SharedState,
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl Machine {
    /// Reads the last Raft snapshot, if there is one, into `state`.
    pub(crate) async fn open(disk: Arc<Disk>, state: SharedState) -> Result<Self, StorageError> {
        let mut machine =
            Self { disk, state, applied: None, membership: StoredMembership::default() };
        if let Some((meta, image)) = stored(&machine.disk).await? {
            machine.restore(&meta, &image).map_err(|error| unreadable(&meta, &error))?;
        }
        Ok(machine)
    }

    fn restore(&mut self, meta: &SnapshotMeta, image: &[u8]) -> Result<(), ImageError> {
        let restored = State::from_image(image)?;
        self.state.write(|state| *state = restored);
        self.applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        Ok(())
    }
}

fn unreadable(meta: &SnapshotMeta, error: &ImageError) -> StorageError {
    StorageIoError::read_snapshot(Some(meta.signature()), error).into()
}

async fn stored(disk: &Arc<Disk>) -> Result<Option<(SnapshotMeta, Vec<u8>)>, StorageError> {
    let read = disk.read(|transaction| {
        let table = transaction.open_table(META)?;
        let (meta, state) = (table.get(SNAPSHOT_META)?, table.get(SNAPSHOT_STATE)?);
        let (Some(meta), Some(state)) = (meta, state) else { return Ok(None) };
        let meta: SnapshotMeta = unseal(SNAPSHOT_META, meta.value()).map_err(Failure::Disk)?;
        let text: Box<serde_json::value::RawValue> =
            unseal(SNAPSHOT_STATE, state.value()).map_err(Failure::Disk)?;
        Ok(Some((meta, String::from(Box::<str>::from(text)).into_bytes())))
    });
    read.await.map_err(|error| StorageIoError::read_snapshot(None, &error).into())
}

/// Stores a Raft snapshot unless a newer one is stored: a member may build one while it receives one.
async fn keep(disk: &Arc<Disk>, meta: &SnapshotMeta, image: &[u8]) -> Result<(), StorageError> {
    let failed = |error: &DiskError| {
        StorageError::from(StorageIoError::write_snapshot(Some(meta.signature()), error))
    };
    let Ok(text) = serde_json::from_slice::<&serde_json::value::RawValue>(image) else {
        return Err(failed(&DiskError::Damaged { what: SNAPSHOT_STATE.to_owned() }));
    };
    let (last, sealed_meta, sealed_state) = (meta.last_log_id, seal(meta), seal(&text));
    let written = disk.write(Durability::Immediate, move |transaction| {
        let mut table = transaction.open_table(META)?;
        let newer = match table.get(SNAPSHOT_META)? {
            Some(before) => {
                let before: SnapshotMeta =
                    unseal(SNAPSHOT_META, before.value()).map_err(Failure::Disk)?;
                before.last_log_id > last
            }
            None => false,
        };
        if !newer {
            table.insert(SNAPSHOT_META, sealed_meta.as_slice())?;
            table.insert(SNAPSHOT_STATE, sealed_state.as_slice())?;
        }
        Ok(())
    });
    written.await.map_err(|error| failed(&error))
}

/// A copy of the state at one log id, to be written to disk.
pub(crate) struct Builder {
    disk: Arc<Disk>,
    state: State,
    applied: Option<LogId>,
    membership: StoredMembership,
}

impl RaftSnapshotBuilder<RaftTypes> for Builder {
    async fn build_snapshot(&mut self) -> Result<RaftSnapshot, StorageError> {
        let image = self.state.image();
        let meta = SnapshotMeta {
            last_log_id: self.applied,
            last_membership: self.membership.clone(),
            snapshot_id: self.applied.map_or("empty".to_owned(), |last| last.to_string()),
        };
        keep(&self.disk, &meta, &image).await?;
        Ok(RaftSnapshot { meta, snapshot: Box::new(Cursor::new(image)) })
    }
}

impl RaftStateMachine<RaftTypes> for Machine {
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        Ok((self.applied, self.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Vec<Effect>>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut effects = Vec::new();
        for entry in entries {
            effects.push(match entry.payload {
                EntryPayload::Blank => Vec::new(),
                EntryPayload::Normal(batch) => self
                    .state
                    .write(|state| state.apply(entry.log_id.index, &batch))
                    .map_err(|error| StorageIoError::apply(entry.log_id, &error))?,
                EntryPayload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Vec::new()
                }
            });
            self.applied = Some(entry.log_id);
        }
        Ok(effects)
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            disk: self.disk.clone(),
            state: self.state.read(State::clone),
            applied: self.applied,
            membership: self.membership.clone(),
        }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let image = snapshot.into_inner();
        self.restore(meta, &image).map_err(|error| unreadable(meta, &error))?;
        keep(&self.disk, meta, &image).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<RaftSnapshot>, StorageError> {
        let stored = stored(&self.disk).await?;
        Ok(stored
            .map(|(meta, image)| RaftSnapshot { meta, snapshot: Box::new(Cursor::new(image)) }))
    }
}
