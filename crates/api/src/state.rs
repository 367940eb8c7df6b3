use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use auth::Authenticator;
use blobs::Blobs;
use checkouts::Checkouts;
use credentials::Credentials;
use domain::Clock;
use oidc::Providers;
use placement_api::Placement;
use signals::Signals;
use store::Store;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::ApiError;
use crate::follow::{Feeds, Hub};
use crate::homes::Homes;
use crate::kept::Kept;
use crate::settings::{ApiSettings, ModelList};
use crate::shares::{LargeReads, Shares};
use crate::spools::{SpoolSettings, Spools};
use crate::summaries::Summaries;
use crate::wake::Waker;

/// How long a fork of a large log waits for another one.
const FORK_WAIT: Duration = Duration::from_secs(20);
const BELIEFS: TaskKind = TaskKind::new("renew beliefs", OnError::StopRole, OnCancel::Wait);

/// The parts of the API.
pub struct ApiParts {
    /// The database.
    pub store: Store,
    /// Hints to and from workers.
    pub signals: Arc<dyn Signals>,
    /// The assignment of Locations to workers.
    pub placement: Arc<dyn Placement>,
    /// The workers' snapshots of files, if this gateway can read them. Without them, diffs come from rows alone.
    pub blobs: Option<Blobs>,
    /// The directories of this machine, if this gateway may look into them.
    pub checkouts: Option<Checkouts>,
    /// Organisations' credentials at model providers.
    pub credentials: Credentials,
    /// The models to list.
    pub models: ModelList,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Owner of the background tasks: readers of followed sessions, requests to placement.
    pub tasks: TaskGroup,
    /// The settings.
    pub settings: ApiSettings,
    /// Where uploads and imports wait until all of them is proved. The folder is there.
    pub spools: SpoolSettings,
}

/// The state that handlers share. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    blobs: Option<Blobs>,
    checkouts: Option<Checkouts>,
    credentials: Credentials,
    models: ModelList,
    clock: Arc<dyn Clock>,
    settings: ApiSettings,
    authenticator: Arc<Authenticator>,
    providers: Providers,
    tasks: TaskGroup,
    placement: Arc<dyn Placement>,
    waker: Arc<Waker>,
    hub: Arc<Hub>,
    feeds: Arc<Feeds>,
    homes: Homes,
    streams: Arc<Shares>,
    waits: Arc<Shares>,
    uploads: Arc<Shares>,
    spools: Arc<Spools>,
    large_reads: LargeReads,
    large_forks: Arc<Semaphore>,
    summaries: Summaries,
    provider_lists: Kept,
    serving: AtomicBool,
}

impl ApiState {
    /// Starts the background tasks, which end with `parts.tasks`.
    #[must_use]
    pub fn start(parts: ApiParts) -> Self {
        let ApiParts {
            store,
            signals,
            placement,
            blobs,
            checkouts,
            credentials,
            models,
            clock,
            tasks,
            settings,
            spools,
        } = parts;
        let waker = Waker::new(signals.clone(), placement.clone(), clock.clone(), tasks.clone());
        let hub = Hub::start(store.clone(), signals, waker.clone(), &tasks);
        let (its, known) = (tasks.clone(), settings.clone());
        let feeds = Feeds::new(store.clone(), hub.clone(), clock.clone(), its, known);
        let authenticator = Arc::new(Authenticator::new(store.clone(), clock.clone()));
        let (keeper, stop) = (authenticator.clone(), tasks.token());
        tasks.spawn(BELIEFS, async move {
            keeper.keep(stop).await;
            Ok::<(), Infallible>(())
        });
        let outside = Arc::new(credentials.egress().for_organisations());
        let providers = Providers::new(outside, clock.clone());
        let serving = AtomicBool::new(true);
        let homes = Homes::default();
        Self {
            shared: Arc::new(Shared {
                store,
                blobs,
                checkouts,
                credentials,
                models,
                clock,
                settings,
                authenticator,
                providers,
                tasks,
                placement,
                waker,
                hub,
                feeds,
                homes,
                streams: Shares::of_streams(),
                waits: Shares::of_waits(),
                uploads: Shares::of_uploads(),
                spools: Spools::new(spools),
                large_reads: LargeReads::default(),
                large_forks: Arc::new(Semaphore::new(1)),
                summaries: Summaries::default(),
                provider_lists: Kept::default(),
                serving,
            }),
        }
    }

    /// Returns placement.
    pub(crate) fn placement(&self) -> &dyn Placement {
        &*self.shared.placement
    }

    /// Makes `/readyz` answer 503 from now on, so that load balancers stop sending requests. Requests that still
    /// arrive are served.
    pub fn stop_being_ready(&self) {
        self.shared.serving.store(false, Ordering::Release);
    }

    /// Ends every stream. Each client is told to reconnect within two seconds, to another gateway.
    pub fn end_streams(&self) {
        self.shared.hub.end_streams();
    }

    /// Returns the error for a follower whose session has no more events.
    pub(crate) fn no_more_events(&self) -> ApiError {
        if self.is_serving() {
            return ApiError::NotFound("the session was deleted meanwhile: it was");
        }
        let message = "this gateway stops, and the work goes on; ask again, another answers";
        ApiError::Unavailable { message, cause: None }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.shared.serving.load(Ordering::Acquire)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn blobs(&self) -> Option<&Blobs> {
        self.shared.blobs.as_ref()
    }

    /// Returns the directories of this machine, if this gateway may look into them.
    pub(crate) fn checkouts(&self) -> Option<&Checkouts> {
        self.shared.checkouts.as_ref()
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    pub(crate) fn models(&self) -> &ModelList {
        &self.shared.models
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    pub(crate) fn settings(&self) -> &ApiSettings {
        &self.shared.settings
    }

    /// Returns the owner of this gateway's background tasks.
    pub(crate) fn tasks(&self) -> &TaskGroup {
        &self.shared.tasks
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.authenticator
    }

    /// Returns the identity providers of organisations.
    pub(crate) fn providers(&self) -> &Providers {
        &self.shared.providers
    }

    pub(crate) fn waker(&self) -> &Arc<Waker> {
        &self.shared.waker
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.shared.hub
    }

    pub(crate) fn feeds(&self) -> &Arc<Feeds> {
        &self.shared.feeds
    }

    pub(crate) fn homes(&self) -> &Homes {
        &self.shared.homes
    }

    pub(crate) fn streams(&self) -> &Arc<Shares> {
        &self.shared.streams
    }

    /// Waits until no other fork of a large log runs here.
    ///
    /// # Errors
    /// 503 when that takes too long.
    pub(crate) async fn enter_large_fork(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let forks = self.shared.large_forks.clone();
        match timeout(FORK_WAIT, forks.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::Unavailable {
                message: "other large sessions are being forked here; ask again",
                cause: None,
            }),
        }
    }

    pub(crate) fn waits(&self) -> &Arc<Shares> {
        &self.shared.waits
    }

    pub(crate) fn uploads(&self) -> &Arc<Shares> {
        &self.shared.uploads
    }

    pub(crate) fn spools(&self) -> &Arc<Spools> {
        &self.shared.spools
    }

    pub(crate) fn large_reads(&self) -> &LargeReads {
        &self.shared.large_reads
    }

    /// Returns how much sessions have changed, as far as it is known.
    pub(crate) fn summaries(&self) -> &Summaries {
        &self.shared.summaries
    }

    /// Returns the lists of all providers as stock clients get them.
    pub(crate) fn provider_lists(&self) -> &Kept {
        &self.shared.provider_lists
    }
}
