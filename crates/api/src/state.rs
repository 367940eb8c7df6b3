use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use auth::Authenticator;
use blobs::Blobs;
use credentials::Credentials;
use domain::Clock;
use placement_api::Placement;
use session_rules::Agents;
use signals::Signals;
use store::Store;
use tasks::TaskGroup;

use crate::error::ApiError;
use crate::follow::{Feeds, Hub};
use crate::homes::Homes;
use crate::settings::{ApiSettings, ModelList};
use crate::shares::{LargeReads, Shares};
use crate::wake::Waker;

/// What the API is made of.
pub struct ApiParts {
    /// The truth.
    pub store: Store,
    /// Hints to workers, and from them.
    pub signals: Arc<dyn Signals>,
    /// Who runs what.
    pub placement: Arc<dyn Placement>,
    /// Where workers keep snapshots of files, if this gateway sees that: diffs are made of rows alone without.
    pub blobs: Option<Blobs>,
    /// What organisations prove themselves to model providers with.
    pub credentials: Credentials,
    /// Which models are listed.
    pub models: ModelList,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Owns what runs beside the requests: readers of followed sessions, placements.
    pub tasks: TaskGroup,
    /// How it answers.
    pub settings: ApiSettings,
}

/// What handlers share. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    blobs: Option<Blobs>,
    credentials: Credentials,
    models: ModelList,
    clock: Arc<dyn Clock>,
    settings: ApiSettings,
    authenticator: Authenticator,
    waker: Arc<Waker>,
    hub: Arc<Hub>,
    feeds: Arc<Feeds>,
    homes: Homes,
    agents: Agents,
    streams: Arc<Shares>,
    large_reads: LargeReads,
    serving: AtomicBool,
}

impl ApiState {
    /// Starts what runs beside the requests; it ends with `parts.tasks`.
    #[must_use]
    pub fn start(parts: ApiParts) -> Self {
        let ApiParts {
            store,
            signals,
            placement,
            blobs,
            credentials,
            models,
            clock,
            tasks,
            settings,
        } = parts;
        let waker = Waker::new(signals.clone(), placement, clock.clone(), tasks.clone());
        let hub = Hub::start(store.clone(), signals, waker.clone(), &tasks);
        let feeds = Feeds::new(store.clone(), hub.clone(), clock.clone(), tasks, settings.clone());
        let authenticator = Authenticator::new(store.clone(), clock.clone());
        let serving = AtomicBool::new(true);
        let homes = Homes::default();
        // Those that workers have: there are no others yet.
        let agents = Agents::default();
        Self {
            shared: Arc::new(Shared {
                store,
                blobs,
                credentials,
                models,
                clock,
                settings,
                authenticator,
                waker,
                hub,
                feeds,
                homes,
                agents,
                streams: Shares::of_streams(),
                large_reads: LargeReads::default(),
                serving,
            }),
        }
    }

    /// Makes `/readyz` answer 503 from now on, so that load balancers stop sending requests. What is
    /// sent is still served.
    pub fn stop_being_ready(&self) {
        self.shared.serving.store(false, Ordering::Release);
    }

    /// Ends every stream, telling its client to come back (to another gateway) within two seconds.
    pub fn end_streams(&self) {
        self.shared.hub.end_streams();
    }

    /// Why a session that was followed has no more events for its follower.
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

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.authenticator
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

    pub(crate) fn large_reads(&self) -> &LargeReads {
        &self.shared.large_reads
    }

    pub(crate) fn agents(&self) -> &Agents {
        &self.shared.agents
    }
}
