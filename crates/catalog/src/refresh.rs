//! Keeps the catalog fresh: fetches it from time to time and publishes a valid one; otherwise the last good
//! one stays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use llm_client::{ProviderTransport, TransportError, WireRequest};
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};
use tracing::warn;

use crate::ingest::{IngestError, MAX_BYTES, Skipped, ingest};
use crate::model::Catalog;

/// The source of the shipped catalog.
pub const MODELS_DEV: &str = "https://models.dev/api.json";

/// The source of the catalog, and the interval between fetches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// The URL of a file in the form of [`MODELS_DEV`]. Redirects are not followed.
    pub url: Url,
    /// The age after which the catalog is fetched again.
    pub every: Duration,
    /// The timeout of a whole fetch.
    pub timeout: Duration,
}

impl Refresh {
    /// Returns whether it is time to fetch. `seen_ms` is the time when any process last saw the catalog. A
    /// time further than `every` from now, before or after, does not count.
    #[must_use]
    pub fn is_due(&self, seen_ms: Option<i64>, now_ms: i64) -> bool {
        seen_ms.is_none_or(|seen_ms| u128::from(now_ms.abs_diff(seen_ms)) >= self.every.as_millis())
    }
}

/// The catalog of a process: the newest good one. Callers keep the `Arc` that they got, so nothing changes
/// during a decision.
#[derive(Debug)]
pub struct Feed {
    known: Mutex<(Arc<Catalog>, Freshness)>,
}

/// The source and age of the current catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The URL; none for the shipped catalog.
    pub source: Option<String>,
    /// The time when this or another process last saw it there, in milliseconds since 1970.
    pub seen_ms: Option<i64>,
    /// The reason why this process's last fetch failed; none if it succeeded or has not been tried.
    pub failure: Option<String>,
}

/// A fetched and accepted catalog, now the current one.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// The catalog.
    pub catalog: Arc<Catalog>,
    /// It differs from the previous one.
    pub is_new: bool,
    /// Its text, to store for other processes and the next start.
    pub json: Vec<u8>,
}

/// The reason why the last good catalog stays.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The request failed.
    #[error("it could not be fetched: {0}")]
    Fetch(TransportError),
    /// The server took too long.
    #[error("it did not come within {} s", .0.as_secs())]
    Slow(Duration),
    /// The server answered with another status.
    #[error("its server answered with status {0}")]
    Status(u16),
    /// The answer is not a catalog.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// It has lost too many models to be plausible.
    #[error(
        "what was offered has {offered} models, and the present one {present}: less than half; if that is right, \
         change the URL (a query is enough)"
    )]
    Shrunk {
        /// The number of models in it.
        offered: usize,
        /// The number of models in the current one.
        present: usize,
    },
    /// It is older than the current one: a cache or mirror is behind.
    #[error(
        "what was offered was last changed on {offered}, and the present one on {present}; if that is right, change \
         the URL (a query is enough)"
    )]
    Older {
        /// The date of its newest change.
        offered: String,
        /// The date of the current one's newest change.
        present: String,
    },
}

impl Feed {
    /// Starts with the shipped catalog, or another one in its place.
    #[must_use]
    pub fn new(first: Arc<Catalog>) -> Self {
        Self { known: Mutex::new((first, Freshness::default())) }
    }

    /// Returns the newest good catalog.
    #[must_use]
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.known().0)
    }

    /// Returns its source and age.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.known().1.clone()
    }

    fn known(&self) -> MutexGuard<'_, (Arc<Catalog>, Freshness)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a catalog that another process, or an earlier life of this one, fetched from `source` and
    /// accepted.
    ///
    /// # Errors
    /// It is not a catalog; the current one stays.
    pub async fn adopt(
        &self,
        json: Vec<u8>,
        source: &str,
        seen_ms: i64,
    ) -> Result<(), IngestError> {
        let (read, _) = read(json).await;
        let (catalog, _) = read?;
        self.publish(catalog, source, seen_ms);
        Ok(())
    }

    /// Records that another process saw the current catalog at `source` at this time.
    pub fn seen(&self, source: &str, seen_ms: i64) {
        let fresh = &mut self.known().1;
        if fresh.source.as_deref() == Some(source) && fresh.seen_ms >= Some(seen_ms) {
            return;
        }
        *fresh =
            Freshness { source: Some(source.to_owned()), seen_ms: Some(seen_ms), failure: None };
    }

    /// Fetches the catalog once, and publishes it if it is plausible. `now_ms` is recorded as the time.
    ///
    /// # Errors
    /// The fetch failed or the catalog is not plausible. The current one stays, and [`Freshness::failure`]
    /// has the reason.
    pub async fn fetch(
        &self,
        transport: &dyn ProviderTransport,
        from: &Refresh,
        now_ms: i64,
    ) -> Result<Fetched, RefreshError> {
        let fetched = match tokio::time::timeout(from.timeout, read_from(transport, from)).await {
            Ok(Ok(json)) => self.believe(json, from, now_ms).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(RefreshError::Slow(from.timeout)),
        };
        if let Err(error) = &fetched {
            self.known().1.failure = Some(error.to_string());
        }
        fetched
    }

    async fn believe(
        &self,
        json: Vec<u8>,
        from: &Refresh,
        now_ms: i64,
    ) -> Result<Fetched, RefreshError> {
        let (read, json) = read(json).await;
        let (offered, skipped) = read?;
        let present = self.current();
        let is_new = offered.version != present.version;
        if is_new {
            self.judge(&offered, &present, from.url.as_str())?;
            if let Some(first) = skipped.first() {
                warn!(skipped = skipped.len(), %first, "the new catalog has entries that cannot be read");
            }
        }
        let catalog = self.publish(offered, from.url.as_str(), now_ms);
        Ok(Fetched { catalog, is_new, json })
    }

    /// Checks whether a catalog may replace the current one. Only catalogs from the same source are compared,
    /// because another source has other models on purpose.
    fn judge(
        &self,
        offered: &Catalog,
        present: &Catalog,
        source: &str,
    ) -> Result<(), RefreshError> {
        if self.known().1.source.as_deref().unwrap_or(MODELS_DEV) != source {
            return Ok(());
        }
        if offered.models() < present.models().div_ceil(2) {
            let (offered, present) = (offered.models(), present.models());
            return Err(RefreshError::Shrunk { offered, present });
        }
        if !offered.updated.is_empty() && offered.updated < present.updated {
            let (offered, present) = (offered.updated.clone(), present.updated.clone());
            return Err(RefreshError::Older { offered, present });
        }
        Ok(())
    }

    fn publish(&self, catalog: Catalog, source: &str, seen_ms: i64) -> Arc<Catalog> {
        let (current, fresh) = &mut *self.known();
        *fresh =
            Freshness { source: Some(source.to_owned()), seen_ms: Some(seen_ms), failure: None };
        if catalog.version != current.version {
            *current = Arc::new(catalog);
        }
        Arc::clone(current)
    }
}

async fn read_from(
    transport: &dyn ProviderTransport,
    from: &Refresh,
) -> Result<Vec<u8>, RefreshError> {
    let (url, headers, body) = (from.url.clone(), HeaderMap::new(), Bytes::new());
    let request = WireRequest { method: Method::GET, url, headers, body };
    let mut answer = transport.send(request).await.map_err(RefreshError::Fetch)?;
    if !answer.status.is_success() {
        return Err(RefreshError::Status(answer.status.as_u16()));
    }
    let mut json = Vec::new();
    while let Some(chunk) = answer.body.next().await {
        json.extend_from_slice(&chunk.map_err(RefreshError::Fetch)?);
        if json.len() > MAX_BYTES {
            return Err(IngestError::TooLarge { bytes: json.len() }.into());
        }
    }
    Ok(json)
}

type Read = Result<(Catalog, Vec<Skipped>), IngestError>;

/// Parses on a blocking thread: megabytes of JSON would hold up other tasks.
async fn read(json: Vec<u8>) -> (Read, Vec<u8>) {
    match tokio::task::spawn_blocking(move || (ingest(&json), json)).await {
        Ok(read) => read,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
