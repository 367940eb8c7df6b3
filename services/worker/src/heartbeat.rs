//! The heartbeat, on a thread of its own: a busy runtime must not make a worker look dead.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use domain::{Clock, Incarnation, LocationRef};
use placement_api::{HEARTBEAT, Heartbeat, Lease, Placement, PlacementError, SUSPICION, Worker};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

/// What the heartbeat tells the executor.
#[derive(Debug)]
pub(crate) enum LeaseChange {
    /// These are all leases now.
    All(Vec<Lease>),
    /// Placement has declared this incarnation dead; the heartbeat goes on as another.
    Reborn,
}

/// What the heartbeat and the rest of the worker share.
pub(crate) struct Pulse {
    pub(crate) worker: Mutex<Worker>,
    pub(crate) incarnation: watch::Sender<Incarnation>,
    /// Leases to give back with the next heartbeat.
    released: Mutex<BTreeMap<LocationRef, Lease>>,
    /// Until when (monotonic) leases are good for starting drains.
    valid_until: Mutex<Duration>,
    pub(crate) busy: AtomicU32,
    /// The process stops.
    pub(crate) leaving: AtomicBool,
    /// Placement asked the node to drain, and has not taken it back.
    pub(crate) drained: AtomicBool,
}

impl Pulse {
    pub(crate) fn new(worker: Worker) -> Arc<Self> {
        let incarnation = watch::Sender::new(worker.incarnation);
        Arc::new(Self {
            worker: Mutex::new(worker),
            incarnation,
            released: Mutex::default(),
            valid_until: Mutex::default(),
            busy: AtomicU32::new(0),
            leaving: AtomicBool::new(false),
            drained: AtomicBool::new(false),
        })
    }

    /// Gives a lease back.
    pub(crate) fn release(&self, lease: Lease) {
        locked(&self.released).insert(lease.location.clone(), lease);
    }

    /// Whether drains may start: the lease has not run out since its last renewal. Silence from
    /// placement stops nothing that runs.
    pub(crate) fn may_start(&self, clock: &dyn Clock) -> bool {
        clock.monotonic() < *locked(&self.valid_until)
    }

    /// A lease that was just assigned is good from now on.
    pub(crate) fn assigned(&self, now: Duration) {
        let mut until = locked(&self.valid_until);
        *until = (*until).max(now + SUSPICION);
    }

    /// Whether the node is to give its Locations back and take no new ones.
    pub(crate) fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Relaxed)
    }

    fn beat(&self, known: u64) -> Heartbeat {
        Heartbeat {
            worker: locked(&self.worker).clone(),
            known,
            released: locked(&self.released).values().cloned().collect(),
            draining: self.leaving.load(Ordering::Relaxed) || self.is_drained(),
            busy: self.busy.load(Ordering::Relaxed),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread; it ends when `stop` fires, after a last heartbeat that gives everything back.
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
        // Counted from before the request: we never believe in a lease for too long.
        let asked = clock.monotonic();
        let beat = pulse.beat(known);
        let released: Vec<Lease> = beat.released.clone();
        let last = stop.is_cancelled();
        match placement.heartbeat(beat).await {
            Ok(reply) => {
                if !reachable {
                    info!("placement answers again");
                }
                reachable = true;
                known = reply.version;
                *locked(&pulse.valid_until) = asked + SUSPICION;
                let mut pending = locked(&pulse.released);
                for lease in &released {
                    if pending.get(&lease.location) == Some(lease) {
                        pending.remove(&lease.location);
                    }
                }
                drop(pending);
                pulse.drained.store(reply.drain, Ordering::Relaxed);
                if let Some(leases) = reply.leases {
                    let kept = leases.into_iter().filter(|lease| !released.contains(lease));
                    if changes.send(LeaseChange::All(kept.collect())).is_err() {
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
                reachable = false;
            }
            Err(error @ PlacementError::Invalid { .. }) => {
                warn!(%error, "placement refused the heartbeat");
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
        }
    }
}
