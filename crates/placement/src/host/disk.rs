use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use placement_api::FolderId;
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Log entries by index.
pub(crate) const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
/// All other durable data of a member.
pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// The page cache of the file, in bytes. The log has a few thousand small entries.
const CACHE_BYTES: usize = 16 * 1024 * 1024;
const CHECK_BYTES: usize = 8;

/// The reason why a member's data folder cannot be used. The member stops: if it forgot its vote or log, it
/// could undo the group's decisions.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file cannot be opened, read or written.
    #[error(
        "placement's data at {path} cannot be used; check the disk and that no other process has it open"
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// The database's error.
        #[source]
        source: Box<redb::Error>,
    },
    /// The folder cannot be created.
    #[error("placement's data folder {path} cannot be made")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A record differs from the one that was written.
    #[error(
        "`{what}` in placement's data is damaged; remove this member, delete its data folder and add it again under a new id"
    )]
    Damaged {
        /// The record.
        what: String,
    },
    /// The folder belongs to another member.
    #[error(
        "this data folder belongs to placement member {found}, not to {wanted}; give each member its own"
    )]
    OtherMember {
        /// The member that wrote it.
        found: u64,
        /// The member that was started.
        wanted: u64,
    },
    /// The member is shutting down.
    #[error("placement's data is closed: the member is shutting down")]
    Closed,
}

/// An error inside a transaction. The caller adds the path.
pub(crate) enum Failure {
    Redb(Box<redb::Error>),
    Disk(DiskError),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Redb(Box::new(error.into()))
    }
}

/// One member's durable data: log, vote, purge mark, Raft snapshot. A file of redb.
pub(crate) struct Disk {
    /// Taken out by [`Disk::close`], so that the file is free once a member has shut down, even if something
    /// inside Raft still holds a handle.
    database: RwLock<Option<Database>>,
    path: PathBuf,
    folder: FolderId,
}

impl Disk {
    /// Opens or creates the file in `folder`, and checks that it is member `id`'s.
    pub(crate) async fn open(folder: &Path, id: u64) -> Result<Arc<Self>, DiskError> {
        let folder = folder.to_owned();
        let path = folder.join("placement.redb");
        let (opened, named) = (path.clone(), path.clone());
        let (database, found, folder) = blocking(move || {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .map_err(|source| DiskError::Folder { path: folder.clone(), source })?;
            let database = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create(&opened)
                .map_err(|error| DiskError::Database {
                    path: opened.clone(),
                    source: Box::new(error.into()),
                })?;
            let (found, folder) = identify(&database, id).map_err(|failure| match failure {
                Failure::Redb(source) => DiskError::Database { path: opened.clone(), source },
                Failure::Disk(error) => error,
            })?;
            Ok((database, found, folder))
        })
        .await?;
        if found != id {
            return Err(DiskError::OtherMember { found, wanted: id });
        }
        Ok(Arc::new(Self { database: RwLock::new(Some(database)), path: named, folder }))
    }

    /// Returns the folder's id. A new folder has a new id.
    pub(crate) fn folder(&self) -> FolderId {
        self.folder
    }

    /// Runs a read transaction on a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&ReadTransaction) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, DiskError> {
        self.with(move |database| work(&database.begin_read()?)).await
    }

    /// Runs a write transaction on a blocking thread and commits it. `durability` decides whether the commit
    /// waits for the disk.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        durability: Durability,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, DiskError> {
        self.with(move |database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(durability)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
        .await
    }

    /// Reads one sealed record of [`META`].
    pub(crate) async fn meta<T: DeserializeOwned + Send + 'static>(
        self: &Arc<Self>,
        key: &'static str,
    ) -> Result<Option<T>, DiskError> {
        self.read(move |transaction| {
            let stored = transaction.open_table(META)?.get(key)?;
            stored.map(|stored| unseal(key, stored.value())).transpose().map_err(Failure::Disk)
        })
        .await
    }

    /// Writes one sealed record of [`META`].
    pub(crate) async fn set_meta(
        self: &Arc<Self>,
        durability: Durability,
        key: &'static str,
        value: &(impl Serialize + Sync),
    ) -> Result<(), DiskError> {
        let sealed = seal(value);
        self.write(durability, move |transaction| {
            transaction.open_table(META)?.insert(key, sealed.as_slice())?;
            Ok(())
        })
        .await
    }

    /// Closes the file, once running transactions have ended. Later ones fail with [`DiskError::Closed`].
    pub(crate) async fn close(self: &Arc<Self>) {
        let disk = self.clone();
        let closed = blocking(move || {
            drop(disk.database.write().unwrap_or_else(PoisonError::into_inner).take());
            Ok(())
        });
        if let Err(error) = closed.await {
            tracing::warn!(%error, "placement's data was not closed in order");
        }
    }

    async fn with<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Database) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, DiskError> {
        let disk = self.clone();
        blocking(move || {
            let database = disk.database.read().unwrap_or_else(PoisonError::into_inner);
            let database = database.as_ref().ok_or(DiskError::Closed)?;
            work(database).map_err(|failure| match failure {
                Failure::Redb(source) => DiskError::Database { path: disk.path.clone(), source },
                Failure::Disk(error) => error,
            })
        })
        .await
    }
}

/// Returns the member and the id of the folder. A new file gets both.
fn identify(database: &Database, id: u64) -> Result<(u64, FolderId), Failure> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    let identity = {
        transaction.open_table(LOG)?;
        let mut meta = transaction.open_table(META)?;
        (record(&mut meta, "id", id)?, record(&mut meta, "folder", FolderId::random())?)
    };
    transaction.commit()?;
    Ok(identity)
}

/// Reads a record, or writes `first` if it does not exist.
fn record<T: Serialize + DeserializeOwned>(
    meta: &mut redb::Table<'_, &'static str, &'static [u8]>,
    key: &'static str,
    first: T,
) -> Result<T, Failure> {
    let found = meta.get(key)?.map(|stored| unseal(key, stored.value())).transpose();
    if let Some(found) = found.map_err(Failure::Disk)? {
        return Ok(found);
    }
    meta.insert(key, seal(&first).as_slice())?;
    Ok(first)
}

/// Runs on a blocking thread and passes panics on. When the runtime shuts down, it never returns.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DiskError> + Send + 'static,
) -> Result<T, DiskError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(DiskError::Closed),
        },
    }
}

/// Returns JSON with its hash in front, so that a flipped bit is detected and never voted on.
pub(crate) fn seal(value: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(value).expect("what Raft stores is plain data");
    let mut sealed = crate::fnv::hash(json.iter().copied()).to_be_bytes().to_vec();
    sealed.extend_from_slice(&json);
    sealed
}

/// Reads the output of [`seal`].
pub(crate) fn unseal<T: DeserializeOwned>(what: &str, sealed: &[u8]) -> Result<T, DiskError> {
    let damaged = || DiskError::Damaged { what: what.to_owned() };
    let (check, json) = sealed.split_at_checked(CHECK_BYTES).ok_or_else(damaged)?;
    if crate::fnv::hash(json.iter().copied()).to_be_bytes() != check {
        return Err(damaged());
    }
    serde_json::from_slice(json).map_err(|_| damaged())
}
