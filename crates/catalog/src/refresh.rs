//! How the catalog stays fresh: fetched from time to time, published if it is one, else the last good one stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::ingest::{IngestError, MAX_BYTES, ingest};
use crate::model::Catalog;

/// Where from, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Of a file in the shape of <https://models.dev/api.json>.
    pub url: String,
    /// From the end of one fetch to the begin of the next.
    pub every: Duration,
    /// For a whole fetch.
    pub timeout: Duration,
}

/// The catalog of a process: the newest good one. What has it keeps it; nothing changes under a decision.
#[derive(Debug)]
pub struct Feed {
    current: watch::Sender<Arc<Catalog>>,
}

/// What became of a catalog that was offered.
#[derive(Clone, Debug, PartialEq)]
pub enum Offered {
    /// It is the current one now.
    Published(Arc<Catalog>),
    /// It is what there was.
    Same,
}

/// Why the last good catalog stays.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The server did not answer with it.
    #[error("the catalog could not be fetched")]
    Fetch(#[source] reqwest::Error),
    /// The server answered with something else.
    #[error("the server of the catalog answered with status {0}")]
    Status(u16),
    /// It cannot be read.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// It has lost too much to be believed.
    #[error(
        "the catalog that was offered has {offered} models, and the present one {present}: less than half"
    )]
    Shrunk {
        /// Models in it.
        offered: usize,
        /// Models in the present one.
        present: usize,
    },
    /// A cache or a mirror is behind.
    #[error(
        "the catalog that was offered was last changed on {offered}, and the present one on {present}"
    )]
    Older {
        /// Its newest change.
        offered: String,
        /// The newest change of the present one.
        present: String,
    },
}

impl Feed {
    /// Beginning with this one.
    #[must_use]
    pub fn new(first: Arc<Catalog>) -> Self {
        Self { current: watch::Sender::new(first) }
    }

    /// The newest good one.
    #[must_use]
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.current.borrow())
    }

    /// Tells of every new one.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<Arc<Catalog>> {
        self.current.subscribe()
    }

    /// Publishes a catalog in models.dev's shape, if it is one that can be believed.
    ///
    /// # Errors
    /// It is not; what there was stays.
    pub fn offer(&self, json: &[u8]) -> Result<Offered, RefreshError> {
        let (offered, skipped) = ingest(json)?;
        let present = self.current();
        if offered.version == present.version {
            return Ok(Offered::Same);
        }
        if offered.models() < present.models().div_ceil(2) {
            let (offered, present) = (offered.models(), present.models());
            return Err(RefreshError::Shrunk { offered, present });
        }
        if offered.updated < present.updated {
            let (offered, present) = (offered.updated, present.updated.clone());
            return Err(RefreshError::Older { offered, present });
        }
        if let Some(first) = skipped.first() {
            warn!(skipped = skipped.len(), first = %first, "the new catalog has entries that cannot be read");
        }
        let offered = Arc::new(offered);
        self.current.send_replace(Arc::clone(&offered));
        Ok(Offered::Published(offered))
    }

    /// Fetches the catalog once, publishes it, and returns its text if it is new, to be kept for the next start.
    ///
    /// # Errors
    /// There is none that can be believed; what there was stays.
    pub async fn fetch(
        &self,
        http: &reqwest::Client,
        from: &Refresh,
    ) -> Result<Option<(Arc<Catalog>, Vec<u8>)>, RefreshError> {
        let request = http.get(&from.url).timeout(from.timeout);
        let mut answer = request.send().await.map_err(RefreshError::Fetch)?;
        if !answer.status().is_success() {
            return Err(RefreshError::Status(answer.status().as_u16()));
        }
        let mut json = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(RefreshError::Fetch)? {
            json.extend_from_slice(&chunk);
            if json.len() > MAX_BYTES {
                return Err(IngestError::TooLarge { bytes: json.len() }.into());
            }
        }
        Ok(match self.offer(&json)? {
            Offered::Published(catalog) => Some((catalog, json)),
            Offered::Same => None,
        })
    }

    /// Fetches again and again until it is dropped; `keep` gets each new catalog with its text. A failure is logged, and
    /// tried again at the next time.
    pub async fn run<F, K>(&self, http: &reqwest::Client, from: &Refresh, mut keep: F)
    where
        F: FnMut(Arc<Catalog>, Vec<u8>) -> K,
        K: Future<Output = ()>,
    {
        loop {
            match self.fetch(http, from).await {
                Ok(Some((catalog, json))) => {
                    info!(
                        catalog.version = catalog.version,
                        models = catalog.models(),
                        "a new catalog"
                    );
                    keep(catalog, json).await;
                }
                Ok(None) => {}
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    warn!(%error, cause, "the catalog stays as it is");
                }
            }
            tokio::time::sleep(from.every).await;
        }
    }
}
