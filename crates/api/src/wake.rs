//! Hints to the worker that holds a Location: wake, interrupt, resync. All of them may be lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, Incarnation, LocationRef, Seq, SessionRef};
use placement_api::{PlaceRequest, Placement};
use signals::{Hint, SessionHint, Signals, Topic, WorkerHint};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

const PLACE: TaskKind = TaskKind::new("place a Location", OnError::Log, OnCancel::Abort);
/// How long a holder is believed without asking placement.
const TRUSTED_FOR: Duration = Duration::from_secs(2);
/// How long a holder is hinted at all; beyond it, only placement is asked.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Locations remembered; when there are more, those that have run out go, then all.
const MAX_HOLDERS: usize = 50_000;
/// Placements asked at once; what is beyond is found by placement's own sweep.
const MAX_ASKED: usize = 256;
/// Hints that wait for one placement.
const MAX_WAITING: usize = 64;

/// Sends hints to holders, and asks placement who they are, beside the request.
pub(crate) struct Waker {
    signals: Arc<dyn Signals>,
    placement: Arc<dyn Placement>,
    clock: Arc<dyn Clock>,
    tasks: TaskGroup,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    holders: HashMap<LocationRef, (Incarnation, Duration)>,
    /// Placements under way, with the hints to send once the holder is known.
    asked: HashMap<LocationRef, Vec<WorkerHint>>,
}

impl Waker {
    pub(crate) fn new(
        signals: Arc<dyn Signals>,
        placement: Arc<dyn Placement>,
        clock: Arc<dyn Clock>,
        tasks: TaskGroup,
    ) -> Arc<Self> {
        Arc::new(Self { signals, placement, clock, tasks, known: Mutex::default() })
    }

    /// A session has work. Returns at once.
    pub(crate) fn wake(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Wake { session: session.clone() }, session);
    }

    /// A session has an interrupt. Returns at once.
    pub(crate) fn interrupt(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Interrupt { session: session.clone() }, session);
    }

    /// Someone follows a session and lacks text. Returns at once.
    pub(crate) fn resync(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Resync { session: session.clone() }, session);
    }

    /// The log of a session reaches to `seq`: for its followers, here and elsewhere.
    pub(crate) fn committed(&self, at: &SessionRef, seq: Seq) {
        let topic = Topic::Session(at.org, at.session.clone());
        self.signals.publish(&topic, Hint::Session(SessionHint::Committed { seq, ends: true }));
    }

    fn send(self: &Arc<Self>, hint: WorkerHint, session: SessionRef) {
        let location = session.location_ref();
        let now = self.clock.monotonic();
        let holder = self.lock().holders.get(&location).copied();
        let sent = match holder {
            Some((holder, asked)) if now < asked + KEPT_FOR => {
                self.signals.publish(&Topic::Worker(holder), Hint::Worker(hint.clone()));
                now < asked + TRUSTED_FOR
            }
            _ => false,
        };
        if !sent {
            self.ask(location, session, hint);
        }
    }

    /// Asks placement in the background; it leases the Location if nobody holds it, and forwards the
    /// session's wake. Then the hints go to whom it names.
    fn ask(self: &Arc<Self>, location: LocationRef, session: SessionRef, hint: WorkerHint) {
        {
            let mut known = self.lock();
            if let Some(hints) = known.asked.get_mut(&location) {
                if hints.len() < MAX_WAITING {
                    hints.push(hint);
                }
                return;
            }
            if known.asked.len() >= MAX_ASKED {
                return;
            }
            known.asked.insert(location.clone(), vec![hint]);
        }
        let waker = self.clone();
        self.tasks.spawn(PLACE, async move {
            let asked = waker.clock.monotonic(); // from before the request: never believed too long
            let request =
                PlaceRequest { location: location.clone(), session: Some(session.session) };
            let answer = waker.placement.place(request).await;
            let mut known = waker.lock();
            let hints = known.asked.remove(&location).unwrap_or_default();
            match answer {
                Ok(placed) => {
                    let holder = placed.worker.incarnation;
                    known.remember(location, holder, asked);
                    drop(known);
                    for hint in hints {
                        waker.signals.publish(&Topic::Worker(holder), Hint::Worker(hint));
                    }
                }
                Err(error) => {
                    known.holders.remove(&location);
                    drop(known);
                    // The work is durable and *ready*: placement's sweep finds it.
                    tracing::warn!(%error, location = %location.location, "not placed yet");
                }
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code of others runs under this lock; a poisoned cache is still a right one.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn remember(&mut self, location: LocationRef, holder: Incarnation, asked: Duration) {
        if self.holders.len() >= MAX_HOLDERS {
            self.holders.retain(|_, (_, at)| asked < *at + KEPT_FOR);
            if self.holders.len() >= MAX_HOLDERS {
                self.holders.clear();
            }
        }
        self.holders.insert(location, (holder, asked));
    }
}
