//! Deletes blobs that no row names any more, or never named.
//!
//! ```text
//! o/<org>/<kind>/… ─▶ a page of names ─▶ the store: which of them no row names, and since when ─▶ delete
//! ```
//!
//! A blob is deleted only after it has been without a row for the whole retention, and was not stored again in that
//! time. So a row that is restored from a backup of that time finds its blob.

use std::sync::Arc;
use std::time::Duration;

use blobs::{BlobError, BlobKey, Blobs};
use domain::{Clock, OrgId};
use futures::TryStreamExt;
use store::{BlobUse, Store, StoreError};

/// The most names in one query.
const PAGE: usize = 1_000;

/// The collector of blobs, with its retention.
pub(super) struct BlobCollector {
    pub(super) store: Store,
    pub(super) blobs: Blobs,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) retention: Duration,
}

/// The result of a look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct CollectedBlobs {
    /// The number of blobs found.
    pub(super) found: u64,
    /// The number of blobs deleted.
    pub(super) deleted: u64,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BlobCollector {
    /// Looks at all blobs once.
    pub(super) async fn collect(&self) -> Result<CollectedBlobs, CollectError> {
        let mut all = CollectedBlobs::default();
        for name in self.blobs.organisations().await? {
            // Anything else in the folder is not ours.
            let org = name.parse::<OrgId>().ok().filter(|org| org.to_string() == name);
            let Some(org) = org else { continue };
            for of in BlobUse::ALL {
                let kind = of.kind();
                let mut pages = std::pin::pin!(self.blobs.list(&name, kind).try_chunks(PAGE));
                while let Some(page) = pages.try_next().await.map_err(|error| error.1)? {
                    let old = self.clock.now_ms().saturating_sub(self.retention_ms());
                    all.found += page.len() as u64;
                    let names = page.iter().map(|blob| blob.name.clone()).collect();
                    let unnamed =
                        self.store.note_unnamed_blobs(org, of, names, self.retention).await?;
                    let is_old = |name: &String| {
                        page.iter().any(|blob| blob.name == *name && blob.stored_ms <= old)
                    };
                    let gone: Vec<String> = unnamed.into_iter().filter(is_old).collect();
                    if gone.is_empty() {
                        continue;
                    }
                    // Forgotten before the deletion, so that no note remains of a missing blob. If a blob remains,
                    // the next look notes it again.
                    self.store.forget_blobs(org, of, gone.clone()).await?;
                    for blob in gone {
                        self.blobs.delete(&BlobKey::new(&name, kind, &blob)?).await?;
                        all.deleted += 1;
                    }
                }
            }
        }
        Ok(all)
    }

    fn retention_ms(&self) -> i64 {
        i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX)
    }
}
