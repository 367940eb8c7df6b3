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

/// The most leases that one heartbeat can return.
const MAX_RELEASED_PER_BEAT: usize = 10_000;
const MAX_URL_BYTES: usize = 512;
const MAX_SLOTS: u32 = 10_000;
/// The longest wait of a handler for the log. A majority that answers at all needs only milliseconds.
const WRITE_TIME: Duration = Duration::from_millis(1_500);

/// The leader's own state, for as long as it leads. Never agreed on, never stored.
pub(crate) struct Leading {
    jobs: mpsc::Sender<Job>,
    watch: Mutex<Watch>,
    sweep_now: Notify,
}

/// The reason why a member did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Refused {
    /// This member does not lead: ask the leader.
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
    // Once this entry of the new term is committed, all entries of earlier leaders are applied here.
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

    /// Returns the facts besides the state that decide who gets the next Location.
    pub(crate) fn load(&self, host: &Host) -> Load {
        let live = host.live();
        self.watch(|watch| watch.load(live.into_iter()))
    }

    pub(crate) fn is_silent(&self, incarnation: Incarnation) -> bool {
        self.watch(|watch| watch.is_silent(incarnation))
    }

    /// Returns the milliseconds since the last heartbeat, and its content.
    pub(crate) fn seen(&self, incarnation: Incarnation) -> (Option<u64>, Said) {
        self.watch(|watch| {
            let age = watch.age(incarnation);
            let age = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            (age, watch.said(incarnation))
        })
    }

    /// Returns whether another worker, one that reaches the store, could take this worker's Locations now.
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

    /// Records that a worker got a Location, which it will work on.
    pub(crate) fn note_assignment(&self, incarnation: Incarnation) {
        self.watch(|watch| watch.note_assignment(incarnation));
    }

    /// Sweeps before the next tick, because a worker or some work became free.
    pub(crate) fn sweep_soon(&self) {
        self.sweep_now.notify_one();
    }

    pub(crate) async fn sweep_asked(&self) {
        self.sweep_now.notified().await;
    }

    /// Hands a job to the writer, unless too many are waiting.
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
            // Without a majority, another member may lead and hear the workers.
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

    /// Handles a worker's heartbeat. Waits for the log only if the worker is new, has changed or returns
    /// leases.
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

    /// Returns the holder of a Location, assigning one if needed, and wakes the session there.
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

    /// Drains a node, or lets it take Locations again.
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
