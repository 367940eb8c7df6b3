//! One Session Drain, from its claim to its end.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{Claim, Clock, DrainOutcome, FencingToken, IdMint, OrgId, Seq, SessionRef, Stamp};
use history::History;
use llm_client::Client;
use signals::Signals;
use store::{DrainEnd, DrainTx, Started, Store, StoreError, Taken};
use tracing::{Instrument, info_span, warn};

use crate::boundary::TurnPlan;
use crate::control::DrainControl;
use crate::draft::Draft;
use crate::live::Live;
use crate::models::ConfiguredModels;
use crate::observe::{Observation, observe};
use crate::settings::DrainSettings;
use crate::toolbox::Toolbox;
use crate::workspace::Workspace;

/// What every drain of a worker shares. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    /// The database.
    pub store: Store,
    /// Hints to followers.
    pub signals: Arc<dyn Signals>,
    /// Calls providers.
    pub llm: Client,
    /// The tools.
    pub tools: Arc<tools::Registry>,
    /// Where large outputs go.
    pub blobs: blobs::Blobs,
    /// The models that can be called.
    pub models: Arc<ConfiguredModels>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How drains behave.
    pub settings: Arc<DrainSettings>,
    /// Components that are known to be stored.
    pub stored: StoredComponents,
}

impl Runtime {
    /// Which of these (hash, bytes) must be stored with an attempt that names them.
    pub(crate) fn new_components(
        &self,
        org: OrgId,
        components: Vec<(String, Vec<u8>)>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        components
            .into_iter()
            .filter(|(hash, _)| !self.stored.contains(org, hash))
            .filter_map(|(hash, bytes)| Some((hex::decode(hash).ok()?, bytes)))
            .collect()
    }
}

/// Remembers which request components are stored, so that they are not sent again with every turn.
/// Bounded: it forgets everything when it holds 10,000.
#[derive(Debug, Clone, Default)]
pub struct StoredComponents {
    known: Arc<Mutex<HashSet<(OrgId, String)>>>,
}

impl StoredComponents {
    const BOUND: usize = 10_000;

    fn contains(&self, org: OrgId, hash: &str) -> bool {
        self.lock().contains(&(org, hash.to_owned()))
    }

    /// Notes what a committed attempt named.
    pub(crate) fn note(&self, org: OrgId, hashes: impl IntoIterator<Item = String>) {
        let mut known = self.lock();
        if known.len() > Self::BOUND {
            known.clear();
        }
        known.extend(hashes.into_iter().map(|hash| (org, hash)));
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<(OrgId, String)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a drain ended, for whoever started it.
#[derive(Debug)]
pub enum DrainExit {
    /// There was nothing to do.
    Idle,
    /// It ended durably. If someone woke the session since, it is *ready* again.
    Ended(DrainOutcome),
    /// It stopped at a boundary on request; the next holder goes on.
    HandedOver,
    /// The claim has passed on.
    Fenced,
    /// The Location has passed on: give it up.
    Superseded,
    /// The store failed; the session stays *ready*, and a later drain recovers it.
    Failed(StoreError),
}

/// Why a drain cannot go on.
#[derive(Debug)]
pub(crate) enum Stop {
    Fenced,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { .. } => Self::Fenced,
            error @ (StoreError::NotFound
            | StoreError::Conflict { .. }
            | StoreError::Superseded
            | StoreError::Schema(_)
            | StoreError::Unreadable(_)
            | StoreError::Database(_)) => Self::Store(error),
        }
    }
}

/// Runs the session until nothing is left to do. `history` is what is known of its log so far (the fold
/// of a prefix of it, or of nothing); it is returned for the next drain while it is still a true one.
///
/// Cancel safety: dropped between two writes it leaves the session *open*, and a later drain recovers it.
pub async fn drain(
    runtime: &Runtime,
    session: &SessionRef,
    token: FencingToken,
    workspace: &Workspace,
    control: DrainControl,
    history: History,
) -> (DrainExit, Option<History>) {
    let span = info_span!("session.drain", org.id = %session.org, session.id = %session.session);
    let mut drain = Drain {
        runtime,
        session,
        workspace,
        toolbox: Toolbox::new(runtime, session, workspace),
        control,
        history,
        mint: IdMint::after(Stamp::default(), runtime.clock.now_ms()),
        live: Live::new(runtime.signals.clone(), session),
        claim: Claim(0),
        interrupts_before: Seq(0),
        failures: 0,
    };
    match Box::pin(drain.run(token)).instrument(span).await {
        Ok(exit) => (exit, Some(drain.history)),
        Err(Stop::Fenced) => (DrainExit::Fenced, None),
        Err(Stop::Store(error)) => (DrainExit::Failed(error), None),
    }
}

pub(crate) struct Drain<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) session: &'r SessionRef,
    pub(crate) workspace: &'r Workspace,
    pub(crate) toolbox: Toolbox<'r>,
    pub(crate) control: DrainControl,
    pub(crate) history: History,
    pub(crate) mint: IdMint,
    pub(crate) live: Live,
    pub(crate) claim: Claim,
    /// The newest interrupt that is not this drain's to apply.
    pub(crate) interrupts_before: Seq,
    /// Failures since the last whole reply: they share one retry budget.
    pub(crate) failures: u32,
}

/// What the drain does next.
pub(crate) enum Next {
    /// Run a turn whose intent is committed.
    Turn(Box<TurnPlan>),
    /// The end is committed.
    End(DrainExit),
}

impl Drain<'_> {
    async fn run(&mut self, token: FencingToken) -> Result<DrainExit, Stop> {
        let observed = self.observe().await;
        let started = self.runtime.store.start_drain(self.session.clone(), token).await?;
        let mut next = match started {
            Started::Claimed(tx, taken) => self.claimed(*tx, taken, observed).await?,
            Started::Superseded => return Ok(DrainExit::Superseded),
            Started::Idle => return Ok(DrainExit::Idle),
        };
        loop {
            next = match next {
                Next::End(exit) => return Ok(exit),
                Next::Turn(plan) => {
                    let span = info_span!("session.turn", turn.id = %plan.turn);
                    Box::pin(self.turn(*plan)).instrument(span).await?
                }
            };
        }
    }

    /// Goes on in the claim's own transaction: with the first boundary, or with recovery.
    async fn claimed(
        &mut self,
        tx: DrainTx,
        taken: Taken,
        observed: Observation,
    ) -> Result<Next, Stop> {
        self.claim = tx.claim();
        let newest_interrupt = tx.head().interrupt_seq;
        let draft = self.draft(tx).await?;
        // An interrupt of work that is still open is this drain's to apply; any other is history.
        self.interrupts_before = match draft.history().interrupt() {
            Some(seq) if taken.was_open => Seq(seq.0 - 1),
            _ => newest_interrupt,
        };
        self.control.claimed(self.claim);
        if let Some(error) = self.workspace.unavailable() {
            return self.give_up(draft, error.clone()).await;
        }
        if taken.recoveries > self.runtime.settings.max_recoveries {
            let error = crate::recover::exhausted(taken.recoveries);
            return self.give_up(draft, error).await;
        }
        if draft.history().open_turn().is_some() {
            if !taken.handed_over {
                warn!(recoveries = taken.recoveries, "recovering what an earlier owner left");
            }
            return Box::pin(self.recover(draft, observed)).await;
        }
        let continuing = taken.was_open && draft.history().wants_turn();
        self.boundary(draft, continuing, observed).await
    }

    /// Begins the drain's next transaction.
    pub(crate) async fn resume(&mut self) -> Result<Draft, Stop> {
        let tx = self.runtime.store.resume_drain(self.session.clone(), self.claim).await?;
        self.draft(tx).await
    }

    async fn draft(&mut self, tx: DrainTx) -> Result<Draft, Stop> {
        let history = std::mem::take(&mut self.history);
        let now = self.runtime.clock.now_ms();
        Ok(Draft::begin(tx, history, self.mint.clone(), now).await?)
    }

    /// Commits what was drafted and tells followers.
    pub(crate) async fn commit(&mut self, draft: Draft, end: DrainEnd) -> Result<(), Stop> {
        (self.history, self.mint) = draft.commit(end).await?;
        self.live.committed(self.history.seq());
        Ok(())
    }

    /// Looks at the Context Sources. I/O: never with a transaction open.
    pub(crate) async fn observe(&self) -> Observation {
        observe(self.runtime, self.workspace).await
    }

    /// Whether `history` holds an interrupt that this drain must apply.
    pub(crate) fn is_interrupted(&self, history: &History) -> bool {
        history.interrupt().is_some_and(|seq| seq > self.interrupts_before)
    }
}
