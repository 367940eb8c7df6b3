//! Deletes what outlives sessions and nothing uses any more: rows, blobs and folders; and what is kept for hours only.
//!
//! ```text
//! changes  any worker, each hour    which sessions were changed three hours ago
//! rows     one worker, once a day   components of requests, Locations, and the packs of deleted Locations
//! blobs    one worker, once a day   what no row has named for the retention
//! folders  each worker, its own     what it has on disk of deleted Locations and forgotten repositories
//! copies   each worker, its own     of repositories' packs: more bytes than it may have, each half hour
//! ```
//!
//! A blob is looked at after the rows that may name it, so each look is a step: a session's Location goes, then its
//! packs, then their blobs.

mod blobs;
mod copies;
mod folders;
mod rows;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use session::Runtime;
use tasks::{OnCancel, OnError, TaskKind};
use tokio::time::Instant;
use tracing::{info, warn};

use self::blobs::{BlobCollector, CollectError, CollectedBlobs};
use self::rows::{CollectedRows, RowCollector};
use crate::options::WorkerOptions;

pub(crate) const COLLECTION: TaskKind = TaskKind::new("collection", OnError::Log, OnCancel::Abort);

/// The names under which workers agree on who collects.
const ROWS: &str = "collect rows";
const BLOBS: &str = "collect blobs";
/// The time between two looks of all workers together, unless the retention is shorter.
const EVERY: Duration = Duration::from_hours(24);

/// Twice in each hour, so that the rows of the next one find an empty partition, and few fills come before the next look.
const CHANGES_EVERY: Duration = Duration::from_mins(30);

/// The collections of a worker.
pub(crate) struct Collector {
    pub(crate) runtime: Runtime,
    pub(crate) options: Arc<WorkerOptions>,
    /// The folder of this worker's copies of repositories' packs.
    pub(crate) repositories: Option<PathBuf>,
}

impl Collector {
    /// Looks from time to time, unless another worker does.
    pub(crate) async fn run(self) -> Result<(), Infallible> {
        let every = self.options.blob_retention.map_or(EVERY, |retention| EVERY.min(retention));
        // The worker that began the last look of all may be gone.
        let rest = every / 4;
        let mut looked: Option<Instant> = None;
        loop {
            self.changes().await;
            self.copies().await;
            if looked.is_none_or(|at| at.elapsed() >= rest) {
                looked = Some(Instant::now());
                self.rows(every).await;
                self.blobs(every).await;
                self.folders().await;
            }
            tokio::time::sleep(CHANGES_EVERY.min(rest)).await;
        }
    }

    async fn changes(&self) {
        // Several workers may do it: there is nothing left for the second.
        if let Err(error) = self.runtime.store.forget_changes().await {
            failed("changes", &error);
        }
    }

    async fn copies(&self) {
        let Some(repositories) = self.repositories.clone() else { return };
        let most = self.options.repository_copies;
        let now = Duration::from_millis(u64::try_from(self.runtime.clock.now_ms()).unwrap_or(0));
        let bound = move || copies::bound(&repositories, most, UNIX_EPOCH + now);
        match tokio::task::spawn_blocking(bound).await.map_err(io::Error::from).flatten() {
            Ok(0) => {}
            Ok(bytes) => {
                info!(bytes, "copies of repositories that were not used lately are removed")
            }
            Err(error) => failed("copies of repositories", &error),
        }
    }

    async fn rows(&self, every: Duration) {
        let store = self.runtime.store.clone();
        let collector =
            RowCollector { store: store.clone(), retention: self.options.blob_retention };
        let looked = async {
            if !store.claim_chore(ROWS, every).await? {
                return Ok(CollectedRows::default());
            }
            collector.collect().await
        };
        match looked.await {
            Ok(collected) if collected == CollectedRows::default() => {}
            Ok(CollectedRows { components, locations, packs, workspaces }) => {
                info!(
                    components,
                    locations, packs, workspaces, "rows that nothing used any more are deleted"
                );
            }
            Err(error) => failed("rows", &error),
        }
    }

    async fn blobs(&self, every: Duration) {
        let Some(retention) = self.options.blob_retention else { return };
        let Runtime { store, blobs, clock, .. } = self.runtime.clone();
        let collector = BlobCollector { store: store.clone(), blobs, clock, retention };
        let looked = async {
            if !store.claim_chore(BLOBS, every).await? {
                return Ok::<_, CollectError>(CollectedBlobs::default());
            }
            collector.collect().await
        };
        match looked.await {
            Ok(CollectedBlobs { deleted: 0, .. }) => {}
            Ok(CollectedBlobs { found, deleted }) => {
                info!(found, deleted, "blobs that no row named any more are deleted");
            }
            Err(error) => failed("blobs", &error),
        }
    }

    async fn folders(&self) {
        match folders::collect(&self.runtime.store, &self.options).await {
            Ok(0) => {}
            Ok(deleted) => info!(deleted, "folders of deleted Locations are removed"),
            Err(error) => failed("folders", &error),
        }
        let Some(repositories) = &self.repositories else { return };
        match folders::collect_repositories(&self.runtime.store, repositories).await {
            Ok(0) => {}
            Ok(deleted) => info!(deleted, "copies of forgotten repositories are removed"),
            Err(error) => failed("copies of repositories", &error),
        }
    }
}

fn failed(what: &'static str, error: &(dyn std::error::Error + 'static)) {
    warn!(error, what, "not everything without a use could be deleted; the next look tries again");
}

#[cfg(test)]
mod tests;
