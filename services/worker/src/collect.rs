//! Deletes blobs that no row names any more, or never named.
//!
//! ```text
//! o/<org>/<kind>/… ─▶ a page of names ─▶ the store: which of them no row names, and since when ─▶ delete
//! ```
//!
//! A blob is deleted only after it has been without a row for the whole retention, and was not stored again in that
//! time. So a row that is restored from a backup of that time finds its blob.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use blobs::{BlobError, BlobKey, Blobs};
use domain::{Clock, OrgId};
use futures::TryStreamExt;
use store::{BlobUse, Store, StoreError};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::{info, warn};

pub(crate) const COLLECTION: TaskKind =
    TaskKind::new("blob collection", OnError::Log, OnCancel::Abort);

/// The name under which workers agree on who collects.
const CHORE: &str = "collect blobs";
/// The time between two looks of all workers together, unless the retention is shorter.
const EVERY: Duration = Duration::from_hours(24);
/// The most names in one query.
const PAGE: usize = 1_000;

const KINDS: [(&str, BlobUse); 2] =
    [(tools::BLOB_KIND, BlobUse::ToolOutput), (snapshots::BLOB_KIND, BlobUse::Snapshot)];

/// The collector, with its retention.
pub(crate) struct Collector {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) retention: Duration,
}

/// The result of a look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Collected {
    /// The number of blobs found.
    pub(crate) found: u64,
    /// The number of blobs deleted.
    pub(crate) deleted: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Collector {
    /// Looks from time to time, unless another worker does.
    pub(crate) async fn run(self) -> Result<(), Infallible> {
        let every = EVERY.min(self.retention);
        loop {
            match self.in_turn(every).await {
                Ok(Some(Collected { found, deleted })) if deleted > 0 => {
                    info!(found, deleted, "blobs that no row named any more are deleted");
                }
                Ok(_) => {}
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(
                        error,
                        "blobs that no row names could not all be deleted; the next look tries again"
                    );
                }
            }
            // The worker that began the last look may be gone.
            tokio::time::sleep(every / 4).await;
        }
    }

    async fn in_turn(&self, every: Duration) -> Result<Option<Collected>, CollectError> {
        if !self.store.claim_chore(CHORE, every).await? {
            return Ok(None);
        }
        self.collect().await.map(Some)
    }

    /// Looks at all blobs once.
    pub(crate) async fn collect(&self) -> Result<Collected, CollectError> {
        let mut all = Collected::default();
        for name in self.blobs.organisations().await? {
            // Anything else in the folder is not ours.
            let org = name.parse::<OrgId>().ok().filter(|org| org.to_string() == name);
            let Some(org) = org else { continue };
            for (kind, of) in KINDS {
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
