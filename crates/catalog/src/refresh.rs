//! How the catalog stays fresh: fetched from time to time, published if it is one, else the last good one stays.

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

/// Where the shipped catalog is from.
pub const MODELS_DEV: &str = "https://models.dev/api.json";

/// Where from, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Of a file in the shape of [`MODELS_DEV`]; redirects are not followed.
    pub url: Url,
    /// How old what was last seen there may become.
    pub every: Duration,
    /// For a whole fetch.
    pub timeout: Duration,
}

impl Refresh {
    /// Whether it is time to fetch, when the catalog was last seen at `seen_ms`, by whomever. A time that is further
    /// off than `every` on either side of now says nothing.
    #[must_use]
    pub fn is_due(&self, seen_ms: Option<i64>, now_ms: i64) -> bool {
        seen_ms.is_none_or(|seen_ms| u128::from(now_ms.abs_diff(seen_ms)) >= self.every.as_millis())
    }
}

/// The catalog of a process: the newest good one. What has it keeps it; nothing changes under a decision.
#[derive(Debug)]
pub struct Feed {
    known: Mutex<(Arc<Catalog>, Freshness)>,
}

/// Where the current catalog is from, and how fresh it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The URL; none: it is the one that was shipped.
    pub source: Option<String>,
    /// When it was last seen there, by this process or another, in milliseconds since 1970.
    pub seen_ms: Option<i64>,
    /// Why this process could not renew it when it last tried; none: it could, or has not tried.
    pub failure: Option<String>,
}

/// A catalog that was fetched and believed: the current one now.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// What it is.
    pub catalog: Arc<Catalog>,
    /// Whether it is another than before.
    pub is_new: bool,
    /// Its text, to be kept for others and for the next start.
    pub json: Vec<u8>,
}

/// Why the last good catalog stays.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    /// The server did not answer with it.
    #[error("it could not be fetched: {0}")]
    Fetch(TransportError),
    /// The server took too long.
    #[error("it did not come within {} s", .0.as_secs())]
    Slow(Duration),
    /// The server answered with something else.
    #[error("its server answered with status {0}")]
    Status(u16),
    /// It cannot be read.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// It has lost too much to be believed.
    #[error(
        "what was offered has {offered} models, and the present one {present}: less than half; if that is right, \
         change the URL (a query is enough)"
    )]
    Shrunk {
        /// Models in it.
        offered: usize,
        /// Models in the present one.
        present: usize,
    },
    /// A cache or a mirror is behind.
    #[error(
        "what was offered was last changed on {offered}, and the present one on {present}; if that is right, change \
         the URL (a query is enough)"
    )]
    Older {
        /// Its newest change.
        offered: String,
        /// The newest change of the present one.
        present: String,
    },
}

impl Feed {
    /// Beginning with the one that was shipped, or another that counts as such.
    #[must_use]
    pub fn new(first: Arc<Catalog>) -> Self {
        Self { known: Mutex::new((first, Freshness::default())) }
    }

    /// The newest good one.
    #[must_use]
    pub fn current(&self) -> Arc<Catalog> {
        Arc::clone(&self.known().0)
    }

    /// Where it is from, and how fresh.
    #[must_use]
    pub fn freshness(&self) -> Freshness {
        self.known().1.clone()
    }

    fn known(&self) -> MutexGuard<'_, (Arc<Catalog>, Freshness)> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes a catalog that another process, or an earlier life of this one, has seen at `source` and believed.
    ///
    /// # Errors
    /// It cannot be read; what there was stays.
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

    /// The current catalog was seen at `source` at this time, by another process.
    pub fn seen(&self, source: &str, seen_ms: i64) {
        let fresh = &mut self.known().1;
        if fresh.source.as_deref() == Some(source) && fresh.seen_ms >= Some(seen_ms) {
            return;
        }
        *fresh =
            Freshness { source: Some(source.to_owned()), seen_ms: Some(seen_ms), failure: None };
    }

    /// Fetches the catalog once and publishes it, if it is one that can be believed. `now_ms`: as it is noted.
    ///
    /// # Errors
    /// It is not; what there was stays, and [`Freshness::failure`] says why.
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

    /// Whether it may follow the present one. Only what is from the same place can be compared: elsewhere there are
    /// other models on purpose.
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

/// Some megabytes of JSON take longer than a thread should be busy on which others wait.
async fn read(json: Vec<u8>) -> (Read, Vec<u8>) {
    match tokio::task::spawn_blocking(move || (ingest(&json), json)).await {
        Ok(read) => read,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The process ends, and whoever waits with it.
            Err(_) => std::future::pending().await,
        },
    }
}
