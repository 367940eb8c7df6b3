//! Blobs of an organisation: large, immutable, named bytes outside Postgres.
//!
//! ```text
//! put(org, kind, name, bytes) ─▶ bound, circuit ─▶ o/<org>/<kind>/<name> ─▶ object_store: a folder, S3, GCS, Azure
//! ```
//!
//! A blob is whole or absent, and a stored name never changes its content: a put creates, and one whose name is there
//! already succeeds only if the content is the same. Store the blob first and then its row, so that no row names a
//! missing blob.
//!
//! Absent: permissions. The caller proves the organisation, and rows name the blobs in use; a list is for
//! deleting the others.

mod circuit;
mod error;
mod guard;
mod key;
mod open;
mod place;
mod probe;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use object_store::path::Path as StorePath;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
};

pub use error::{BlobError, Cause};
pub use key::BlobKey;
pub use open::{BlobSettings, Pace};
pub use place::{BlobPlace, BucketStore};
pub use probe::Probed;

use error::{CauseKind, is_full};
use guard::{Failure, Guard, Op};

/// The size of one part of an upload from a file, in bytes; above S3's minimum of 5 MiB.
const PART_BYTES: u64 = 8 * 1024 * 1024;

/// The storage of blobs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Blobs {
    store: Arc<dyn ObjectStore>,
    /// The path of everything in it.
    root: StorePath,
    guard: Arc<Guard>,
}

/// A stored blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// The time when it was stored last, by the store's clock, in Unix milliseconds.
    pub stored_ms: i64,
}

/// Whether a put may replace what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Create,
    /// The name decides the content, and the blob's age begins anew.
    Renew,
}

impl Blobs {
    /// Stores `bytes`, durably when it returns. A blob of that name with the same bytes is a success too.
    ///
    /// # Errors
    /// [`BlobError::Taken`] when the name has other content.
    pub async fn put(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        self.put_bytes(key, bytes, Mode::Create).await
    }

    /// Stores `bytes` under a name that decides them, such as a hash. If it is there already, its age begins anew, so
    /// that a collection that was about to delete it does not.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn renew(&self, key: &BlobKey, bytes: Bytes) -> Result<(), BlobError> {
        self.put_bytes(key, bytes, Mode::Renew).await
    }

    /// Stores the rest of `file`, from its position on, in bounded memory. Returns the number of bytes. A
    /// failed upload leaves no blob. Files of more than 8 MiB replace a blob of that name: give such names a hash, or
    /// use them once.
    ///
    /// # Errors
    /// [`BlobError::Taken`] when the name of a smaller file has other content.
    pub async fn put_file(&self, key: &BlobKey, file: File) -> Result<u64, BlobError> {
        self.upload(key, file, Mode::Create).await
    }

    /// Like [`renew`](Self::renew), for a file.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn renew_file(&self, key: &BlobKey, file: File) -> Result<u64, BlobError> {
        self.upload(key, file, Mode::Renew).await
    }

    async fn put_bytes(&self, key: &BlobKey, bytes: Bytes, mode: Mode) -> Result<(), BlobError> {
        let path = self.path(key);
        let mode = match mode {
            Mode::Create => PutMode::Create,
            Mode::Renew => PutMode::Overwrite,
        };
        let mut answers_lost = 0;
        loop {
            let payload = PutPayload::from_bytes(bytes.clone());
            let put = self.store.put_opts(&path, payload, mode.clone().into());
            match self.guard.ask(Op::Write, put).await {
                Ok(_) => {
                    telemetry::metrics().blob_moved("write", bytes.len());
                    return Ok(());
                }
                // Somebody else's, or our own whose answer was lost: a store that fails after it stored is asked again.
                Err(Failure::Store(StoreError::AlreadyExists { .. })) => {
                    return self.is_same(key, &bytes).await;
                }
                Err(failure) => {
                    let error = self.failed("store", key, failure);
                    // Not repeated below, since a create is not idempotent. Here it is.
                    let is_lost = matches!(
                        &error,
                        BlobError::Store { source, .. } if source.kind == CauseKind::AnswerLost
                    );
                    if !is_lost || answers_lost > 0 {
                        return Err(error);
                    }
                    answers_lost += 1;
                }
            }
        }
    }

    async fn is_same(&self, key: &BlobKey, bytes: &Bytes) -> Result<(), BlobError> {
        let is_same = self.size(key).await? == bytes.len() as u64 && self.get(key).await? == *bytes;
        if is_same { Ok(()) } else { Err(BlobError::Taken(key.clone())) }
    }

    async fn upload(&self, key: &BlobKey, file: File, mode: Mode) -> Result<u64, BlobError> {
        let unread = |error: io::Error| {
            let (place, key) = (self.place().to_owned(), key.clone());
            BlobError::Store { action: "store", key, place, source: error.into() }
        };
        let (mut file, first) = read_part(file).await.map_err(unread)?;
        if (first.len() as u64) < PART_BYTES {
            let bytes = first.len() as u64;
            self.put_bytes(key, first, mode).await?;
            return Ok(bytes);
        }
        let path = self.path(key);
        let begun = self.guard.ask(Op::Write, self.store.put_multipart(&path)).await;
        let mut upload = begun.map_err(|failure| self.failed("store", key, failure))?;
        let sent = async {
            let (mut part, mut total) = (first, 0);
            while !part.is_empty() {
                total += part.len() as u64;
                telemetry::metrics().blob_moved("write", part.len());
                let put = upload.put_part(PutPayload::from_bytes(part));
                let put = self.guard.ask(Op::Write, put).await;
                put.map_err(|failure| self.failed("store", key, failure))?;
                (file, part) = read_part(file).await.map_err(unread)?;
            }
            let completed = self.guard.ask(Op::Write, upload.complete()).await;
            completed.map_err(|failure| self.failed("store", key, failure))?;
            Ok(total)
        };
        let sent: Result<u64, BlobError> = sent.await;
        if sent.is_err() {
            let _the_first_error_counts = upload.abort().await;
        }
        sent
    }

    /// Returns a whole blob.
    ///
    /// # Errors
    /// [`BlobError::NotFound`], or the store's.
    pub async fn get(&self, key: &BlobKey) -> Result<Bytes, BlobError> {
        let path = self.path(key);
        let got = self.guard.ask(Op::Read, async { self.store.get(&path).await?.bytes().await });
        let got = got.await.map_err(|failure| self.failed("read", key, failure))?;
        telemetry::metrics().blob_moved("read", got.len());
        Ok(got)
    }

    /// Returns the bytes `range` of a blob; fewer if the blob ends earlier.
    ///
    /// # Errors
    /// [`BlobError::NotFound`], or the store's.
    pub async fn get_range(&self, key: &BlobKey, range: Range<u64>) -> Result<Bytes, BlobError> {
        if range.is_empty() {
            return self.size(key).await.map(|_| Bytes::new());
        }
        let path = self.path(key);
        let start = range.start;
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let got = self
            .guard
            .ask(Op::Read, async { self.store.get_opts(&path, options).await?.bytes().await });
        match got.await {
            Ok(bytes) => {
                telemetry::metrics().blob_moved("read", bytes.len());
                Ok(bytes)
            }
            Err(failure) => {
                let error = self.failed("read", key, failure);
                // Stores refuse a range that begins behind the end, each in its own way.
                let may_be_behind =
                    matches!(&error, BlobError::Store { source, .. } if !source.is_away());
                if may_be_behind && self.size(key).await.is_ok_and(|size| size <= start) {
                    return Ok(Bytes::new());
                }
                Err(error)
            }
        }
    }

    /// Returns the size of a blob in bytes.
    ///
    /// # Errors
    /// [`BlobError::NotFound`], or the store's.
    pub async fn size(&self, key: &BlobKey) -> Result<u64, BlobError> {
        let path = self.path(key);
        let head = self.guard.ask(Op::Read, self.store.head(&path)).await;
        head.map(|meta| meta.size).map_err(|failure| self.failed("read", key, failure))
    }

    /// Returns the organisations that have blobs, as the store spells them.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn organisations(&self) -> Result<Vec<String>, BlobError> {
        let root = self.below(["o"]);
        let listed = self.guard.ask(Op::List, self.store.list_with_delimiter(Some(&root))).await;
        let listed = listed.map_err(|failure| unlisted(self.place(), &root, failure))?;
        let names = listed.common_prefixes.iter();
        Ok(names.filter_map(|place| Some(place.filename()?.to_owned())).collect())
    }

    /// Lists the blobs of one kind, in any order. It may include blobs that are stored or deleted meanwhile.
    pub fn list(
        &self,
        org: &str,
        kind: &str,
    ) -> impl Stream<Item = Result<Listed, BlobError>> + Send + use<> {
        let path = self.below(["o", org, kind]);
        let list = self.store.list(Some(&path));
        let guard = self.guard.clone();
        list.map(move |found| {
            guard.note(found.as_ref().err());
            match found {
                Ok(meta) => Ok(Listed {
                    name: meta.location.filename().unwrap_or_default().to_owned(),
                    stored_ms: meta.last_modified.timestamp_millis(),
                }),
                Err(error) => Err(unlisted(guard.place(), &path, error.into())),
            }
        })
    }

    /// Deletes a blob. Succeeds if it does not exist.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, key: &BlobKey) -> Result<(), BlobError> {
        let path = self.path(key);
        match self.guard.ask(Op::Delete, self.store.delete(&path)).await {
            Ok(()) | Err(Failure::Store(StoreError::NotFound { .. })) => Ok(()),
            Err(failure) => Err(self.failed("delete", key, failure)),
        }
    }

    fn path(&self, key: &BlobKey) -> StorePath {
        self.root.parts().chain(key.path().parts()).collect()
    }

    fn below<const N: usize>(&self, parts: [&str; N]) -> StorePath {
        let below = StorePath::from_iter(parts);
        self.root.parts().chain(below.parts()).collect()
    }

    /// Names the errors that a caller can act on. Others keep their cause in words.
    fn failed(&self, action: &'static str, key: &BlobKey, failure: Failure) -> BlobError {
        let place = self.place().to_owned();
        let (key, source) = match failure {
            Failure::Unsent(cause) => (key.clone(), cause),
            Failure::Store(error) => {
                if is_full(&error) {
                    return BlobError::Full(key.clone());
                }
                let cause = Cause::of(&error);
                let is_refused = cause.kind == CauseKind::Refused;
                if matches!(error, StoreError::NotFound { .. }) && !is_refused {
                    return BlobError::NotFound(key.clone());
                }
                (key.clone(), cause)
            }
        };
        BlobError::Store { action, key, place, source }
    }
}

fn unlisted(place: &str, path: &StorePath, failure: Failure) -> BlobError {
    let source = match failure {
        Failure::Unsent(cause) => cause,
        Failure::Store(error) => Cause::of(&error),
    };
    BlobError::List { place: format!("{place}, {path}"), source }
}

async fn read_part(mut file: File) -> io::Result<(File, Bytes)> {
    let read = tokio::task::spawn_blocking(move || {
        let mut part = Vec::new();
        file.by_ref().take(PART_BYTES).read_to_end(&mut part)?;
        Ok((file, Bytes::from(part)))
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
