//! Blobs of an organisation: large, immutable, named bytes outside Postgres.
//!
//! ```text
//! put(org, kind, name, bytes) ─▶ o/<org>/<kind>/<name> ─▶ object_store: a folder (S3 comes with its issue)
//! ```
//!
//! A blob is whole or absent: in a folder, it is written to a temporary file, synced and renamed. Store the
//! blob first and then its row, so that no row names a missing blob.
//!
//! Absent: permissions. The caller proves the organisation, and rows name the blobs in use; a list is for
//! deleting the others.

mod key;

use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

pub use key::BlobKey;

/// The size of one part of an upload from a file, in bytes; above S3's minimum of 5 MiB.
const PART_BYTES: u64 = 8 * 1024 * 1024;

/// The storage of blobs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
}

/// The reason why a blob operation failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// An organisation, kind or name that is not a plain name: a bug in the caller.
    #[error(
        "`{0}` cannot be part of a blob's name: use 1 to 200 of A-Z a-z 0-9 . _ -, not beginning with a dot"
    )]
    BadName(String),
    /// The blob does not exist, or no longer.
    #[error("there is no blob {0}")]
    NotFound(BlobKey),
    /// The disk or its quota is full. Make room, then retry.
    #[error("no room is left to store blob {0}")]
    Full(BlobKey),
    /// The store failed. A retry may succeed.
    #[error("cannot {action} blob {key}")]
    Store {
        /// `store`, `read` or `delete`.
        action: &'static str,
        /// The blob.
        key: BlobKey,
        /// The error of the store or the system.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The store could not list blobs. A retry may succeed.
    #[error("cannot list the blobs in {place}")]
    List {
        /// The path.
        place: String,
        /// The error of the store or the system.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The folder for blobs cannot be used.
    #[error("cannot keep blobs in {folder}")]
    Folder {
        /// The folder.
        folder: String,
        /// The system's error.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
}

/// A stored blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The time when it was stored last, by the store's clock, in Unix milliseconds.
    pub stored_ms: i64,
}

impl Blobs {
    /// Stores blobs below `folder`, which is created if missing.
    pub fn in_folder(folder: &Path) -> Result<Self, BlobError> {
        let failed = |source| BlobError::Folder { folder: folder.display().to_string(), source };
        // Closed to other users whatever the umask, because it contains prompts and results.
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| failed(error.into()))?;
        let store = LocalFileSystem::new_with_prefix(folder)
            .map_err(|error| failed(error.into()))?
            .with_fsync(true);
        Ok(Self { store: Arc::new(store) })
    }

    /// Stores `bytes`, durably when it returns. The same key replaces the whole blob.
    pub async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        let stored = self.store.put(key.path(), PutPayload::from_bytes(bytes)).await;
        stored.map(drop).map_err(|error| failed("store", key, error.into()))
    }

    /// Stores the rest of `file`, from its position on, in bounded memory. Returns the number of bytes. A
    /// failed upload leaves no blob.
    pub async fn put_file(&self, key: &BlobKey, file: File) -> Result<u64, BlobError> {
        let mut upload = self
            .store
            .put_multipart(key.path())
            .await
            .map_err(|error| failed("store", key, error.into()))?;
        let sent = async {
            let (mut file, mut total) = (file, 0);
            loop {
                let (back, part) = read_part(file).await?;
                file = back;
                if part.is_empty() && total > 0 {
                    break;
                }
                total += part.len() as u64;
                let last = (part.len() as u64) < PART_BYTES;
                upload.put_part(PutPayload::from_bytes(part)).await?;
                if last {
                    break;
                }
            }
            upload.complete().await?;
            Ok(total)
        };
        let sent: Result<u64, Box<dyn StdError + Send + Sync>> = sent.await;
        match sent {
            Ok(total) => Ok(total),
            Err(error) => {
                let _the_first_error_counts = upload.abort().await;
                Err(failed("store", key, error))
            }
        }
    }

    /// Returns a whole blob.
    pub async fn get(&self, key: &BlobKey) -> Result<Bytes, BlobError> {
        let got = async { self.store.get(key.path()).await?.bytes().await };
        got.await.map_err(|error| failed("read", key, error.into()))
    }

    /// Returns the bytes `range` of a blob; fewer if the blob ends earlier.
    pub async fn get_range(&self, key: &BlobKey, range: Range<u64>) -> Result<Bytes, BlobError> {
        let size = self.size(key).await?;
        let (start, end) = (range.start.min(size), range.end.min(size));
        if start >= end {
            return Ok(Bytes::new());
        }
        let got = self.store.get_range(key.path(), start..end).await;
        got.map_err(|error| failed("read", key, error.into()))
    }

    /// Returns the size of a blob in bytes.
    pub async fn size(&self, key: &BlobKey) -> Result<u64, BlobError> {
        let head = self.store.head(key.path()).await;
        head.map(|meta| meta.size).map_err(|error| failed("read", key, error.into()))
    }

    /// Returns the organisations that have blobs, as the store spells them.
    pub async fn organisations(&self) -> Result<Vec<String>, BlobError> {
        let root = StorePath::from("o");
        let listed = self.store.list_with_delimiter(Some(&root)).await;
        let listed = listed.map_err(|error| unlisted(&root, error))?;
        let names = listed.common_prefixes.iter();
        Ok(names.filter_map(|place| Some(place.filename()?.to_owned())).collect())
    }

    /// Lists the blobs of one kind, in any order. It may include blobs that are stored or deleted meanwhile.
    pub fn list(
        &self,
        org: &str,
        kind: &str,
    ) -> impl Stream<Item = Result<Listed, BlobError>> + Send + use<> {
        let place = StorePath::from_iter(["o", org, kind]);
        let list = self.store.list(Some(&place));
        list.map(move |found| match found {
            Ok(meta) => Ok(Listed {
                name: meta.location.filename().unwrap_or_default().to_owned(),
                stored_ms: meta.last_modified.timestamp_millis(),
            }),
            Err(error) => Err(unlisted(&place, error)),
        })
    }

    /// Deletes a blob. Succeeds if it does not exist.
    pub async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        match self.store.delete(key.path()).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("delete", key, error.into())),
        }
    }
}

fn unlisted(place: &StorePath, error: object_store::Error) -> BlobError {
    BlobError::List { place: place.to_string(), source: error.into() }
}

async fn read_part(mut file: File) -> io::Result<(File, Bytes)> {
    let read = tokio::task::spawn_blocking(move || {
        let mut part = Vec::new();
        file.by_ref().take(PART_BYTES).read_to_end(&mut part)?;
        Ok((file, Bytes::from(part)))
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Names the errors that a caller can act on. Others keep their source.
fn failed(
    action: &'static str,
    key: &BlobKey,
    source: Box<dyn StdError + Send + Sync>,
) -> BlobError {
    if let Some(object_store::Error::NotFound { .. }) = source.downcast_ref() {
        return BlobError::NotFound(key.clone());
    }
    let mut cause: Option<&(dyn StdError + 'static)> = Some(source.as_ref());
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return BlobError::Full(key.clone());
        }
        cause = error.source();
    }
    BlobError::Store { action, key: key.clone(), source }
}

#[cfg(test)]
mod tests;
