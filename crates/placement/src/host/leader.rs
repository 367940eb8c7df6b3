use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::Incarnation;
use placement_api::{
    Heartbeat, HeartbeatReply, PlaceRequest, Placed, PlacementError, Worker, valid_node,
};
use tokio::sync::{Notify, mpsc, oneshot};

use super::Host;
use super::job::{Job, MAX_RELEASED, MAX_WAITING, Waiter};
use super::sweep::{read_generation, sweep};
use super::watch::{Said, Watch};
use super::writer::Writer;
use crate::rules::{Batch, Load};

/// Leases that one heartbeat may give back.
const MAX_RELEASED_PER_BEAT: usize = 10_000;
const MAX_URL_BYTES: usize = 512;
const MAX_SLOTS: u32 = 10_000;
/// How long a handler waits for the log. A majority that answers at all answers in milliseconds.
const WRITE_TIME: Duration = Duration::from_millis(1_500);

/// What only the leader knows, from when it has led until it no longer does. Never agreed on, never stored.
pub(crate) struct Leading {
    jobs: mpsc::Sender<Job>,
    watch: Mutex<Watch>,
    sweep_now: Notify,
}

/// Why a member did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Ask the leader.
    NotLeader,
    /// The leader's answer.
    Answer(PlacementError),
}

impl From<PlacementError> for Refused {
    fn from(error: PlacementError) -> Self {
        Self::Answer(error)
    }
}

/// Leads until this future is dropped or a write fails.
pub(crate) async fn lead(host: &Host) {
    read_generation(host).await;
    // Committed by this term: all that earlier leaders committed is applied here now.
    let first = Batch::new(host.generation(), Vec::new());
    if let Err(error) = host.raft.client_write(first).await {
        tracing::info!(%error, "placement does not lead after all");
        return;
    }
    let (jobs, waiting) = mpsc::channel(MAX_WAITING);
    let leading = Arc::new(Leading {
        jobs,
        watch: Mutex::new(Watch::new(host.timing.suspicion)),
        sweep_now: Notify::new(),
    });
    host.set_leading(Some(leading.clone()));
    tracing::info!(id = host.id, "placement leads");
    tokio::select! {
        () = Writer::new(host, &leading).run(waiting) => {}
        () = leading.listen(host) => {}
        () = sweep(host, &leading) => {}
    }
}

impl Leading {
    fn watch<T>(&self, look: impl FnOnce(&mut Watch) -> T) -> T {
        look(&mut self.watch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What decides who gets the next Location, beside the state.
    pub(crate) fn load(&self, host: &Host) -> Load {
        let live = host.live();
        self.watch(|watch| watch.load(live.into_iter()))
    }

    pub(crate) fn is_silent(&self, incarnation: Incarnation) -> bool {
        self.watch(|watch| watch.is_silent(incarnation))
    }

    /// Milliseconds since the last heartbeat, and what it said.
    pub(crate) fn seen(&self, incarnation: Incarnation) -> (Option<u64>, Said) {
        self.watch(|watch| {
            let age = watch.age(incarnation);
            let age = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            (age, watch.said(incarnation))
        })
    }

    /// Whether a worker other than this one takes its Locations now: where it does not reach the store, one that does.
    fn another_is_fit(&self, host: &Host, incarnation: Incarnation) -> bool {
        let others: Vec<Incarnation> = host.state.read(|state| {
            let takes = |worker: &Worker| {
                worker.incarnation != incarnation && !state.is_drained(&worker.node)
            };
            let workers = state.workers().map(|standing| &standing.worker);
            workers.filter(|worker| takes(worker)).map(|worker| worker.incarnation).collect()
        });
        self.watch(|watch| others.into_iter().any(|other| watch.is_fit(other)))
    }

    /// Sweeps before the next tick: someone became free, or work did.
    pub(crate) fn sweep_soon(&self) {
        self.sweep_now.notify_one();
    }

    pub(crate) async fn sweep_asked(&self) {
        self.sweep_now.notified().await;
    }

    /// Hands a job to the writer, unless too many wait.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Refused> {
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Closed(_) => Refused::NotLeader,
            mpsc::error::TrySendError::Full(_) => Refused::Answer(PlacementError::Unreachable {
                reason: format!("{MAX_WAITING} requests wait already; ask again"),
            }),
        })
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, PlacementError>>) -> Job,
    ) -> Result<T, Refused> {
        let (reply, answer) = oneshot::channel();
        self.submit(job(reply))?;
        match tokio::time::timeout(WRITE_TIME, answer).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(_)) => Err(Refused::NotLeader),
            Err(_) => Err(Refused::Answer(PlacementError::Unreachable {
                reason: "no majority of the placement members answers".to_owned(),
            })),
        }
    }

    /// Declares workers dead that are silent for too long.
    async fn listen(&self, host: &Host) {
        let tick = Watch::tick(host.timing.suspicion);
        let mut last = host.clock.monotonic();
        let mut retiring = BTreeSet::new();
        loop {
            tokio::time::sleep(tick).await;
            let now = host.clock.monotonic();
            let elapsed = now.saturating_sub(last);
            last = now;
            // Without a majority others may lead and hear them.
            if !host.has_majority() {
                continue;
            }
            let live = host.live();
            let silent = self.watch(|watch| {
                watch.advance(elapsed);
                watch.silent(&live)
            });
            retiring.retain(|incarnation| silent.contains(incarnation));
            for incarnation in silent {
                if !retiring.contains(&incarnation)
                    && self.submit(Job::Retire { incarnation }).is_ok()
                {
                    retiring.insert(incarnation);
                }
            }
        }
    }

    /// A worker's heartbeat. Waits for the log only when the worker is new, changed or gives leases back.
    pub(crate) async fn heartbeat(
        &self,
        host: &Host,
        beat: &Heartbeat,
    ) -> Result<HeartbeatReply, Refused> {
        valid(beat)?;
        let incarnation = beat.worker.incarnation;
        self.watch(|watch| watch.hear(incarnation, Said::of(beat)));
        if !host.has_majority() {
            return Err(Refused::NotLeader);
        }
        let (retired, known) = host.state.read(|state| {
            let known = state.worker(incarnation).is_some_and(|known| known.worker == beat.worker);
            (state.is_retired(incarnation), known)
        });
        if retired {
            return Err(PlacementError::Superseded.into());
        }
        if !known {
            let worker = beat.worker.clone();
            self.ask(|reply| Job::Register { worker, reply }).await?;
        }
        let drains = host.state.read(|state| state.is_drained(&beat.worker.node));
        for leases in beat.released.chunks(MAX_RELEASED) {
            let reassign = drains || beat.draining || beat.stranded;
            let leases = leases.to_vec();
            self.ask(|reply| Job::Release { incarnation, leases, reassign, reply }).await?;
        }
        let hand_over = beat.stranded && self.another_is_fit(host, incarnation);
        host.state.read(|state| {
            let standing = state.worker(incarnation).ok_or(PlacementError::Superseded)?;
            let news = standing.version != beat.known;
            let changes =
                if news && beat.deltas { standing.changes_since(beat.known) } else { None };
            Ok(HeartbeatReply {
                version: standing.version,
                leases: (news && changes.is_none()).then(|| standing.leases()),
                changes,
                drain: state.is_drained(&beat.worker.node),
                hand_over,
            })
        })
    }

    /// Finds or makes the holder of a Location, and wakes the session there.
    pub(crate) async fn place(
        &self,
        host: &Host,
        request: &PlaceRequest,
    ) -> Result<Placed, Refused> {
        let PlaceRequest { location, session } = request;
        if !host.has_majority() {
            return Err(Refused::NotLeader);
        }
        if let Some(placed) = host.held(location) {
            host.wake(&placed, session.as_ref());
            return Ok(placed);
        }
        self.ask(|reply| Job::Place {
            location: location.clone(),
            waiter: Waiter { session: session.clone(), tries: 0, reply: Some(reply) },
        })
        .await
    }

    /// Asks a node to drain, or lets it take Locations again.
    pub(crate) async fn drain(&self, node: String, on: bool) -> Result<(), Refused> {
        valid_node(&node)?;
        self.ask(|reply| Job::Drain { node, on, reply }).await
    }
}

fn valid(beat: &Heartbeat) -> Result<(), PlacementError> {
    valid_node(&beat.worker.node)?;
    let reason = if beat.worker.slots == 0 || beat.worker.slots > MAX_SLOTS {
        format!("a worker has 1 to {MAX_SLOTS} slots, not {}", beat.worker.slots)
    } else if beat.worker.url.len() > MAX_URL_BYTES {
        format!("a worker's url has at most {MAX_URL_BYTES} bytes")
    } else if beat.released.len() > MAX_RELEASED_PER_BEAT {
        format!(
            "a heartbeat gives back at most {MAX_RELEASED_PER_BEAT} leases; send the rest with the next"
        )
    } else {
        return Ok(());
    };
    Err(PlacementError::Invalid { reason })
}
