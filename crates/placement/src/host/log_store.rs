use std::fmt::Debug;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{LogState, OptionalSend, RaftLogReader};
use redb::{Durability, ReadableTable};

use super::disk::{Disk, DiskError, Failure, LOG, META, seal, unseal};
use super::types::{Entry, LogId, RaftTypes, StorageError, StorageIoError, Vote};

const VOTE: &str = "vote";
const COMMITTED: &str = "committed";
const PURGED: &str = "purged";

/// Raft's log and vote on disk. No write returns before it is on the disk. Only `committed` may lag after a
/// crash; Raft recovers it.
#[derive(Clone)]
pub(crate) struct LogStore {
    disk: Arc<Disk>,
}

impl LogStore {
    pub(crate) fn new(disk: Arc<Disk>) -> Self {
        Self { disk }
    }
}

fn reading(error: &DiskError) -> StorageError {
    StorageIoError::read_logs(error).into()
}

fn writing(error: &DiskError) -> StorageError {
    StorageIoError::write_logs(error).into()
}

impl RaftLogReader<RaftTypes> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        let bounds: (Bound<u64>, Bound<u64>) =
            (range.start_bound().cloned(), range.end_bound().cloned());
        let read = self.disk.read(move |transaction| {
            let mut entries = Vec::new();
            for record in transaction.open_table(LOG)?.range::<u64>(bounds)? {
                let (index, sealed) = record?;
                let what = format!("log entry {}", index.value());
                entries.push(unseal(&what, sealed.value()).map_err(Failure::Disk)?);
            }
            Ok(entries)
        });
        read.await.map_err(|error| reading(&error))
    }
}

impl RaftLogStorage<RaftTypes> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<RaftTypes>, StorageError> {
        let read = self.disk.read(|transaction| {
            let purged: Option<LogId> = match transaction.open_table(META)?.get(PURGED)? {
                Some(sealed) => Some(unseal(PURGED, sealed.value()).map_err(Failure::Disk)?),
                None => None,
            };
            let last = match transaction.open_table(LOG)?.last()? {
                Some((_, sealed)) => {
                    let entry: Entry =
                        unseal("the last log entry", sealed.value()).map_err(Failure::Disk)?;
                    Some(entry.log_id)
                }
                None => purged,
            };
            Ok(LogState { last_purged_log_id: purged, last_log_id: last })
        });
        read.await.map_err(|error| reading(&error))
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let saved = self.disk.set_meta(Durability::Immediate, VOTE, vote).await;
        saved.map_err(|error| StorageIoError::write_vote(&error).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        let read = self.disk.meta(VOTE).await;
        read.map_err(|error| StorageIoError::read_vote(&error).into())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let saved = self.disk.set_meta(Durability::None, COMMITTED, &committed).await;
        saved.map_err(|error| writing(&error))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        let read: Result<Option<Option<LogId>>, _> = self.disk.meta(COMMITTED).await;
        read.map(Option::flatten).map_err(|error| reading(&error))
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: LogFlushed<RaftTypes>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let sealed: Vec<(u64, Vec<u8>)> =
            entries.into_iter().map(|entry| (entry.log_id.index, seal(&entry))).collect();
        let written = self.disk.write(Durability::Immediate, move |transaction| {
            let mut log = transaction.open_table(LOG)?;
            for (index, entry) in &sealed {
                log.insert(index, entry.as_slice())?;
            }
            Ok(())
        });
        match written.await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(error) => {
                callback.log_io_completed(Err(std::io::Error::other(error.to_string())));
                Err(writing(&error))
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let written = self.disk.write(Durability::Immediate, move |transaction| {
            transaction.open_table(LOG)?.retain_in(log_id.index.., |_, _| false)?;
            Ok(())
        });
        written.await.map_err(|error| writing(&error))
    }

    /// Removes the entries and records the purge in one commit: Raft cannot restart with a log whose
    /// beginning is gone without a record of that.
    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        let sealed = seal(&log_id);
        let written = self.disk.write(Durability::Immediate, move |transaction| {
            transaction.open_table(META)?.insert(PURGED, sealed.as_slice())?;
            transaction.open_table(LOG)?.retain_in(..=log_id.index, |_, _| false)?;
            Ok(())
        });
        written.await.map_err(|error| writing(&error))
    }
}
