//! Deletes blobs that no row names any more, or that none ever named.
//!
//! ```text
//! o/<org>/<kind>/… ─▶ a page of names ─▶ the store: which of them no row names, and since when ─▶ delete
//! ```
//!
//! Nothing is deleted before it has been without a row for the whole retention, and not if it was stored anew within
//! it: a row that is restored from a backup of that time finds its blob.

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

/// The name under which workers agree who looks.
const CHORE: &str = "collect blobs";
/// From one look to the next, of all workers together; shorter where the retention is.
const EVERY: Duration = Duration::from_hours(24);
/// Names that are asked for at once.
const PAGE: usize = 1_000;

const KINDS: [(&str, BlobUse); 2] =
    [(tools::BLOB_KIND, BlobUse::ToolOutput), (snapshots::BLOB_KIND, BlobUse::Snapshot)];

/// What collects, and how long it leaves what no row names.
pub(crate) struct Collector {
    pub(crate) store: Store,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) retention: Duration,
}

/// What a look came to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Collected {
    /// Blobs that were there.
    pub(crate) found: u64,
    /// Those that were deleted.
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
    /// Looks from time to time, if no other worker does.
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
            // Whoever began the last look may be gone.
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
            // What else lies there is not ours.
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
                    // Before, so that nothing is remembered of what is not there; one that stays is noted anew.
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
