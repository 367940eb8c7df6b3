//! The catalog of models of a process: the shipped one, or one that a single process fetches for all.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use catalog::{Feed, Freshness, Refresh};
use clap::Args;
use domain::{Clock, TimestampMs};
use egress::{Egress, FetchLimits};
use llm_client::{ProviderTransport, Secret};
use rand::RngExt;
use reqwest::Url;
use store::{CatalogSnapshot, LastCatalog, Store};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tracing::{debug, info, warn};

use super::ServeError;
use super::args::ModelArgs;
use super::period::{Period, period};

const REFRESH: TaskKind = TaskKind::new("catalog", OnError::Log, OnCancel::Abort);

/// How long the start waits for the first catalog. A later one is used once it is there.
const FIRST: Duration = Duration::from_secs(5);
/// The time limit of a whole fetch.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The most redirects that a fetch follows.
const REDIRECTS: usize = 3;
/// The time between two looks at what other processes have fetched, plus up to half as much again.
const LOOK: Duration = Duration::from_secs(60);
/// The time between two looks while no catalog is fresh, because another process will have one soon.
const STALE_LOOK: Duration = Duration::from_millis(250);
/// The shortest time between two attempts of all processes together to fetch, unless `--catalog-refresh` is shorter.
const AGAIN: Duration = Duration::from_secs(60);
/// The source of the catalog of models.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Catalog of models")]
pub struct CatalogArgs {
    /// URL of a catalog in the format of https://models.dev/api.json, fetched from time to time [default: the catalog
    /// that is shipped with this build; nothing is fetched]
    #[arg(long, value_name = "URL", env = "OPENCODE_CLOUD_CATALOG_URL")]
    pub catalog_url: Option<String>,
    /// Age at which the catalog is fetched again: seconds, 30m, 6h or 1d; off fetches nothing
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1h",
        value_parser = period,
        env = "OPENCODE_CLOUD_CATALOG_REFRESH"
    )]
    pub catalog_refresh: Period,
}

impl CatalogArgs {
    /// Returns the URL and the period of fetches, if there are any.
    ///
    /// # Errors
    /// When the URL is not valid.
    pub(crate) fn refresh(&self) -> Result<Option<Refresh>, ServeError> {
        let given = self.catalog_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let Some(given) = given else { return Ok(None) };
        let wrong = |why: &str| ServeError::Usage(format!("--catalog-url: {why}"));
        let url = Url::parse(given).map_err(|error| wrong(&error.to_string()))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(wrong("it is fetched with http or https"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("a name or password in it would be stored and shown"));
        }
        let every = self.catalog_refresh.length();
        Ok(every.map(|every| Refresh { url, every, timeout: TIMEOUT }))
    }

    /// Returns the same settings as flags for another process.
    pub(crate) fn words(&self) -> Vec<String> {
        let url = self.catalog_url.iter().map(|url| format!("--catalog-url={url}"));
        let every = self.catalog_refresh.word();
        url.chain([format!("--catalog-refresh={every}")]).collect()
    }

    /// Returns the current catalog, and keeps it fresh with a task in `role`'s group. Waits a little for the first
    /// fetch.
    ///
    /// # Errors
    /// When the URL is not valid.
    pub(crate) async fn feed(
        &self,
        egress: &Egress,
        store: &Store,
        clock: &Arc<dyn Clock>,
        role: &TaskGroup,
    ) -> Result<Arc<Feed>, ServeError> {
        let feed = Arc::new(Feed::new(catalog::shipped()));
        let Some(from) = self.refresh()? else { return Ok(feed) };
        let limits = FetchLimits { time: TIMEOUT, bytes: catalog::MAX_BYTES, redirects: REDIRECTS };
        let transport = Arc::new(egress.for_operator().following(limits));
        let keeper = Keeper::new(feed.clone(), store, clock, transport, from);
        if tokio::time::timeout(FIRST, Box::pin(keeper.first())).await.is_err() {
            info!(
                "the catalog has not come within {} s: it is used when it comes",
                FIRST.as_secs()
            );
        }
        role.spawn(REFRESH, async move {
            keeper.run().await;
            Ok::<(), Infallible>(())
        });
        Ok(feed)
    }
}

/// The task that keeps a process's catalog fresh, together with the other processes of the database.
struct Keeper {
    feed: Arc<Feed>,
    store: Store,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn ProviderTransport>,
    from: Refresh,
}

/// The result of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The catalog is fresh.
    Fresh,
    /// The catalog is stale, and this process failed to fetch one.
    Failed,
    /// The catalog is stale, and another process is fetching or has just failed; or there is no database.
    Waiting,
}

impl Keeper {
    fn new(
        feed: Arc<Feed>,
        store: &Store,
        clock: &Arc<dyn Clock>,
        transport: Arc<dyn ProviderTransport>,
        from: Refresh,
    ) -> Self {
        let (store, clock) = (store.clone(), clock.clone());
        Self { feed, store, clock, transport, from }
    }

    /// Looks until there is a fresh catalog, or no prospect of one.
    async fn first(&self) {
        while self.look().await == Look::Waiting {
            tokio::time::sleep(STALE_LOOK).await;
        }
    }

    async fn run(self) {
        loop {
            let pause = (self.from.every / 10).clamp(STALE_LOOK, LOOK);
            let pause = pause.mul_f64(0.5 + rand::rng().random::<f64>());
            tokio::time::sleep(pause).await;
            self.look().await;
        }
    }

    /// Takes over what another process has fetched, and fetches if nobody has for too long.
    async fn look(&self) -> Look {
        let source = self.from.url.as_str();
        let known = self.feed.current().version.clone();
        match self.store.last_catalog(source.to_owned(), known).await {
            Ok(Some(last)) => self.take(last).await,
            Ok(None) => {}
            Err(error) => {
                // Other parts report that the database is away.
                debug!(%error, "the last catalog cannot be read");
                return Look::Waiting;
            }
        }
        let fresh = self.feed.freshness();
        let seen_ms = fresh.seen_ms.filter(|_| fresh.source.as_deref() == Some(source));
        let now = self.clock.now_ms();
        if !self.from.is_due(seen_ms, now) {
            return Look::Fresh;
        }
        match self.store.claim_catalog(source, now, self.from.every.min(AGAIN)).await {
            Ok(true) => self.fetch(&fresh, now).await,
            Ok(false) => Look::Waiting,
            Err(error) => {
                debug!(%error, "no fetch of the catalog can be agreed on");
                Look::Waiting
            }
        }
    }

    async fn take(&self, last: LastCatalog) {
        let source = self.from.url.as_str();
        let Some(body) = last.body else { return self.feed.seen(source, last.fetched_ms) };
        let unpacked = match tokio::task::spawn_blocking(move || catalog::unpack(&body)).await {
            Ok(Ok(json)) => {
                self.feed.adopt(json, source, last.fetched_ms).await.map_err(|e| e.to_string())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = unpacked {
            // The next fetch replaces it.
            debug!(version = last.version, error, "a catalog that was kept cannot be read");
        }
    }

    async fn fetch(&self, before: &Freshness, now: TimestampMs) -> Look {
        let error = match self.feed.fetch(&*self.transport, &self.from, now).await {
            Ok(fetched) => {
                let (version, models) = (fetched.catalog.version.clone(), fetched.catalog.models());
                if fetched.is_new {
                    info!(version, models, "a new catalog of models");
                } else if before.failure.is_some() {
                    info!(version, "the catalog of models can be renewed again");
                }
                self.keep(version, fetched.json, now).await;
                return Look::Fresh;
            }
            Err(error) => error,
        };
        // Log one line when fetching begins to fail. Everything continues with the old catalog.
        if before.failure.is_none() {
            let catalog = self.feed.current();
            let seen = match before.seen_ms {
                Some(seen) => format!("{} s ago", now.saturating_sub(seen) / 1_000),
                None => "when this build was made".to_owned(),
            };
            let (version, updated) = (&catalog.version, &catalog.updated);
            warn!(%error, version, updated, seen, "the catalog of models stays as it is");
        }
        Look::Failed
    }

    async fn keep(&self, version: String, json: Vec<u8>, now: TimestampMs) {
        let kept = match tokio::task::spawn_blocking(move || catalog::pack(&json)).await {
            Ok(Ok(body)) => {
                let (source, fetched_ms) = (self.from.url.to_string(), now);
                let snapshot = CatalogSnapshot { version, source, fetched_ms, body };
                self.store.put_catalog(snapshot).await.map_err(|error| error.to_string())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = kept {
            warn!(error, "the catalog of models is not kept: others fetch it themselves");
        }
    }
}

/// Returns the process's variables for providers: keys, accounts, regions. Our own variables are not among them.
pub(crate) fn environment(args: &ModelArgs) -> BTreeMap<String, Secret> {
    environment_of(std::env::vars_os(), args.openai_api_key.as_deref())
}

fn environment_of(
    vars: impl Iterator<Item = (OsString, OsString)>,
    openai: Option<&str>,
) -> BTreeMap<String, Secret> {
    let vars = vars.filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let is_theirs = !name.starts_with("OPENCODE_CLOUD_") && !value.trim().is_empty();
        is_theirs.then(|| (name, Secret::new(&value)))
    });
    let mut all: BTreeMap<String, Secret> = vars.collect();
    let given = openai.filter(|key| !key.trim().is_empty());
    all.extend(given.map(|key| ("OPENAI_API_KEY".to_owned(), Secret::new(key))));
    all
}

#[cfg(test)]
#[path = "catalog_tests.rs"]
mod tests;
