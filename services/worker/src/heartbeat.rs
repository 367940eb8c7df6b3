//! The heartbeat, on its own thread: a busy runtime must not make a worker look dead.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use domain::{Clock, Incarnation, LocationRef};
use placement_api::{
    HEARTBEAT, Heartbeat, HeartbeatReply, Lease, LeaseChanges, Placement, PlacementError,
    SUSPICION, Worker,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// The shortest time between two heartbeats, even if hints ask for more.
const BREATH: Duration = Duration::from_millis(20);

/// The most leases that one heartbeat gives back. Placement accepts no more at once.
const MAX_RELEASED: usize = 10_000;

/// A message of the heartbeat to the executor.
#[derive(Debug)]
pub(crate) enum LeaseChange {
    /// The complete list of leases.
    All(Vec<Lease>),
    /// New leases, and ended ones.
    Some(LeaseChanges),
    /// This worker cannot reach the store and another one can: give all leases back.
    HandOver,
    /// Placement has declared this incarnation dead; the heartbeat continues as another.
    Reborn,
}

/// The state that the heartbeat shares with the rest of the worker.
pub(crate) struct Pulse {
    pub(crate) worker: Mutex<Worker>,
    pub(crate) incarnation: watch::Sender<Incarnation>,
    /// Leases to give back with the next heartbeat.
    released: Mutex<BTreeMap<LocationRef, Lease>>,
    /// The (monotonic) time until which leases allow new drains.
    valid_until: Mutex<Duration>,
    pub(crate) busy: AtomicU32,
    /// Whether the process stops.
    pub(crate) leaving: AtomicBool,
    /// Whether placement has asked the node to drain.
    pub(crate) drained: AtomicBool,
    /// The store's reachability.
    store: Mutex<StoreReach>,
    /// Placement's last answer.
    placement: Mutex<PlacementReach>,
    /// Asks for a heartbeat now.
    hurry: Notify,
}

/// Whether placement accepts this worker's heartbeats.
#[derive(Debug, Default)]
struct PlacementReach {
    /// The (monotonic) time of the last accepted heartbeat.
    accepted_at: Option<Duration>,
    /// Why the last one was not accepted.
    fault: Option<String>,
}

/// Whether the store answers this worker.
#[derive(Debug, Clone, Copy)]
struct StoreReach {
    /// The (monotonic) time at which the last answered look was asked.
    answered_at: Duration,
    /// Whether looks have failed for so long that the worker's sessions stand still.
    stranded: bool,
}

impl Pulse {
    pub(crate) fn new(worker: Worker, clock: &dyn Clock) -> Arc<Self> {
        let incarnation = watch::Sender::new(worker.incarnation);
        Arc::new(Self {
            worker: Mutex::new(worker),
            incarnation,
            released: Mutex::default(),
            valid_until: Mutex::default(),
            busy: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            store: Mutex::new(StoreReach { answered_at: clock.monotonic(), stranded: false }),
            placement: Mutex::default(),
            hurry: Notify::new(),
        })
    }

    /// Gives a lease back.
    pub(crate) fn release(&self, lease: Lease) {
        locked(&self.released).insert(lease.location.clone(), lease);
    }

    /// Returns whether drains may start: the lease has not expired since its last renewal. Silence of placement stops
    /// nothing that runs.
    pub(crate) fn may_start(&self, clock: &dyn Clock) -> bool {
        clock.monotonic() < *locked(&self.valid_until)
    }

    /// Asks for a heartbeat now, because placement may have news.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Notes that the store answered a look asked at `asked`. Returns whether the worker was stranded until then.
    pub(crate) fn store_answered(&self, asked: Duration) -> bool {
        let mut store = locked(&self.store);
        let was_stranded = std::mem::take(&mut store.stranded);
        store.answered_at = store.answered_at.max(asked);
        was_stranded
    }

    /// Notes that a look at the store failed. Returns how long the store has not answered.
    pub(crate) fn store_failed(&self, now: Duration) -> Duration {
        let mut store = locked(&self.store);
        let silent = now.saturating_sub(store.answered_at);
        store.stranded = silent >= STRANDED_AFTER;
        silent
    }

    /// Returns for how long the store has not answered a look.
    pub(crate) fn store_silent(&self, now: Duration) -> Duration {
        now.saturating_sub(locked(&self.store).answered_at)
    }

    /// Returns whether the store does not answer, so that the worker can do nothing for its sessions.
    pub(crate) fn is_stranded(&self) -> bool {
        locked(&self.store).stranded
    }

    /// Notes what became of a heartbeat.
    fn note_beat(&self, now: Duration, fault: Option<&PlacementError>) {
        let mut placement = locked(&self.placement);
        placement.fault = fault.map(ToString::to_string);
        if fault.is_none() {
            placement.accepted_at = Some(now);
        }
    }

    /// Returns what keeps this worker from being of use, if it is of none for longer than an election of placement takes.
    pub(crate) fn why_unready(&self, now: Duration) -> Option<String> {
        if self.leaving.load(Ordering::Relaxed) {
            return Some("this worker is stopping".to_owned());
        }
        if self.is_stranded() {
            return Some("the database does not answer this worker".to_owned());
        }
        let placement = locked(&self.placement);
        if placement.accepted_at.is_some_and(|at| now.saturating_sub(at) <= UNREADY_AFTER) {
            return None;
        }
        let fault = placement.fault.clone();
        Some(fault.unwrap_or_else(|| "placement has not answered this worker yet".to_owned()))
    }

    /// Returns whether the node must give its Locations back and take no new ones.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    fn beat(&self, known: u64, now: Duration) -> Heartbeat {
        let store = *locked(&self.store);
        let silent = now.saturating_sub(store.answered_at).as_millis();
        Heartbeat {
            worker: locked(&self.worker).clone(),
            known,
            deltas: true,
            store_silent_ms: u64::try_from(silent).unwrap_or(u64::MAX),
            stranded: store.stranded,
            released: locked(&self.released).values().take(MAX_RELEASED).cloned().collect(),
            draining: self.leaving.load(Ordering::Relaxed) || self.is_drained(),
            busy: self.busy.load(Ordering::Relaxed),
        }
    }
}

/// How long placement may accept no heartbeat before the worker says so: many elections.
const UNREADY_AFTER: Duration = Duration::from_secs(10);

/// How long looks must fail before a worker is stranded: longer than a lock, a checkpoint or one lost packet lasts,
/// and longer than placement believes a store's last answer (see `placement`'s watch).
const STRANDED_AFTER: Duration = Duration::from_millis(4_500);

/// Returns the changes of leases in a reply, except for those that this heartbeat or the next one gives back.
fn told(reply: HeartbeatReply, given_back: &BTreeMap<LocationRef, Lease>) -> Option<LeaseChange> {
    let keep = |lease: &Lease| given_back.get(&lease.location) != Some(lease);
    match (reply.leases, reply.changes) {
        (Some(mut leases), _) => {
            leases.retain(keep);
            Some(LeaseChange::All(leases))
        }
        (None, Some(mut changes)) => {
            changes.gained.retain(keep);
            Some(LeaseChange::Some(changes))
        }
        (None, None) => None,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread. It ends when `stop` fires, after a last heartbeat that gives everything back.
pub(crate) fn spawn(
    pulse: Arc<Pulse>,
    placement: Arc<dyn Placement>,
    clock: Arc<dyn Clock>,
    changes: mpsc::UnboundedSender<LeaseChange>,
    stop: CancellationToken,
) -> std::io::Result<thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("heartbeat".into()).spawn(move || {
        runtime.block_on(run(&pulse, &*placement, &*clock, &changes, &stop));
    })
}

async fn run(
    pulse: &Pulse,
    placement: &dyn Placement,
    clock: &dyn Clock,
    changes: &mpsc::UnboundedSender<LeaseChange>,
    stop: &CancellationToken,
) {
    let mut known = 0;
    let mut reachable = true;
    loop {
        // Taken before the request, so that a lease is never believed too long.
        let asked = clock.monotonic();
        let beat = pulse.beat(known, asked);
        let released: Vec<Lease> = beat.released.clone();
        let last = stop.is_cancelled();
        match placement.heartbeat(beat).await {
            Ok(reply) => {
                if !reachable {
                    info!("placement answers again");
                }
                reachable = true;
                pulse.note_beat(asked, None);
                known = reply.version;
                *locked(&pulse.valid_until) = asked + SUSPICION;
                let mut pending = locked(&pulse.released);
                let given_back = pending.clone();
                for lease in &released {
                    if pending.get(&lease.location) == Some(lease) {
                        pending.remove(&lease.location);
                    }
                }
                drop(pending);
                pulse.drained.store(reply.drain, Ordering::Relaxed);
                let hand_over = reply.hand_over.then_some(LeaseChange::HandOver);
                for change in told(reply, &given_back).into_iter().chain(hand_over) {
                    if changes.send(change).is_err() {
                        return;
                    }
                }
            }
            Err(PlacementError::Superseded) => {
                let incarnation = Incarnation::random();
                warn!(%incarnation, "placement had given this worker up; it goes on as a new incarnation");
                locked(&pulse.worker).incarnation = incarnation;
                locked(&pulse.released).clear();
                *locked(&pulse.valid_until) = Duration::ZERO;
                known = 0;
                if changes.send(LeaseChange::Reborn).is_err() {
                    return;
                }
                pulse.incarnation.send_replace(incarnation);
                continue;
            }
            Err(error @ (PlacementError::Unreachable { .. } | PlacementError::NoWorker)) => {
                if reachable {
                    warn!(%error, "placement does not answer; running drains go on");
                }
                pulse.note_beat(asked, Some(&error));
                reachable = false;
            }
            Err(error @ PlacementError::Invalid { .. }) => {
                warn!(%error, "placement refused the heartbeat");
                pulse.note_beat(asked, Some(&error));
                reachable = false;
            }
        }
        if last {
            debug!("the last heartbeat was sent");
            return;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(HEARTBEAT) => {}
            () = async {
                tokio::time::sleep(BREATH).await;
                pulse.hurry.notified().await;
            } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::SystemClock;

    use super::*;

    // Finding ops B6: a worker with a wrong secret, or without placement, was ready.
    #[test]
    fn a_worker_is_ready_while_placement_and_store_accept_it() {
        let clock = SystemClock::new();
        let worker = Worker {
            incarnation: Incarnation::random(),
            node: "w".into(),
            url: "http://w:1".into(),
            slots: 1,
        };
        let pulse = Pulse::new(worker, &clock);
        let at = |seconds| clock.monotonic() + Duration::from_secs(seconds);
        let unready = |seconds| pulse.why_unready(at(seconds)).unwrap_or_default();
        assert!(unready(0).contains("placement has not answered"), "{}", unready(0));
        let refused = PlacementError::Unreachable { reason: "refused the cluster secret".into() };
        pulse.note_beat(at(0), Some(&refused));
        assert!(unready(0).contains("refused the cluster secret"), "{}", unready(0));
        pulse.note_beat(at(1), None);
        assert_eq!(unready(2), "");
        // An election, and then silence.
        pulse.note_beat(at(3), Some(&refused));
        assert_eq!(unready(10), "", "an election is no reason");
        assert!(unready(12).contains("refused the cluster secret"), "{}", unready(12));
        pulse.note_beat(at(12), None);
        assert_eq!(unready(13), "");
        pulse.store_failed(at(60));
        assert!(unready(13).contains("the database"), "{}", unready(13));
        pulse.store_answered(at(60));
        assert_eq!(unready(13), "");
        pulse.leaving.store(true, Ordering::Relaxed);
        assert!(unready(13).contains("stopping"), "{}", unready(13));
    }
}
