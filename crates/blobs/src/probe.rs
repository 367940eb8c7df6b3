//! Finds out at the start whether a store keeps what it has: a second create of the same name must be refused.

use bytes::Bytes;
use object_store::path::Path as StorePath;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload};
use uuid::Uuid;

use crate::error::{Cause, CauseKind};
use crate::guard::{Failure, Op};
use crate::{BlobError, Blobs};

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probed {
    /// Blobs can be kept here.
    Fit,
    /// It does not answer now, so that nobody knows; the reason.
    Away(String),
}

impl Blobs {
    /// Returns the folder or the bucket's URL, for people.
    #[must_use]
    pub fn place(&self) -> &str {
        self.guard.place()
    }

    /// Writes a small object twice, reads it and deletes it.
    ///
    /// # Errors
    /// [`BlobError::Setup`] when blobs cannot be kept here: the store would overwrite, or it refuses us. The message has
    /// the remedy.
    pub async fn probe(&self) -> Result<Probed, BlobError> {
        let path = self.below([format!("probe-{}", Uuid::new_v4()).as_str()]);
        match self.probe_at(&path).await {
            Ok(()) => Ok(Probed::Fit),
            Err(cause) if cause.is_away() => Ok(Probed::Away(cause.to_string())),
            Err(source) => Err(BlobError::Setup { place: self.place().to_owned(), source }),
        }
    }

    async fn probe_at(&self, path: &StorePath) -> Result<(), Cause> {
        let text =
            Bytes::from_static(b"opencode-cloud looks whether this store keeps what it has\n");
        let create = || {
            let payload = PutPayload::from_bytes(text.clone());
            self.guard.ask(Op::Write, self.store.put_opts(path, payload, PutMode::Create.into()))
        };
        match create().await {
            // After a lost answer, the repetition finds its own object.
            Ok(_) | Err(Failure::Store(StoreError::AlreadyExists { .. })) => {}
            Err(failure) => return Err(cause(failure)),
        }
        let second = create().await;
        let read = self.guard.ask(Op::Read, async { self.store.get(path).await?.bytes().await });
        let read = read.await;
        let deleted = self.guard.ask(Op::Delete, self.store.delete(path)).await;
        match second {
            Err(Failure::Store(StoreError::AlreadyExists { .. })) => {}
            Ok(_) => {
                return Err(Cause::new(
                    CauseKind::Refused,
                    "this store ignores conditional puts (If-None-Match: *), so that a late worker could overwrite \
                     what another one has stored; use a store or a version that has them",
                ));
            }
            Err(failure) => return Err(cause(failure)),
        }
        if read.map_err(cause)? != text {
            return Err(Cause::new(CauseKind::Refused, "it returns other bytes than were stored"));
        }
        deleted.map_err(cause)
    }
}

fn cause(failure: Failure) -> Cause {
    match failure {
        Failure::Unsent(cause) => cause,
        Failure::Store(error) => Cause::of(&error),
    }
}
