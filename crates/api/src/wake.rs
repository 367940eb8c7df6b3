//! Hints to the worker that holds a Location: wake, interrupt, resync. Any of them may be lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, Incarnation, LocationRef, Seq, SessionRef};
use placement_api::{PlaceRequest, Placement};
use signals::{Hint, SessionHint, Signals, Topic, WorkerHint};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};

const PLACE: TaskKind = TaskKind::new("place a Location", OnError::Log, OnCancel::Abort);
/// How long a known holder is trusted without asking placement.
const TRUSTED_FOR: Duration = Duration::from_secs(2);
/// How long a known holder still gets hints. After that only placement is asked.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// The most Locations to remember. At the bound, expired ones are dropped, and if that is not enough, all.
const MAX_HOLDERS: usize = 50_000;
/// The most requests to placement at a time. Placement's own sweep finds the rest.
const MAX_ASKED: usize = 256;
/// The most hints that wait for one request to placement.
const MAX_WAITING: usize = 64;

/// Sends hints to holders, and asks placement for unknown ones in the background.
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
    /// Requests to placement in progress, with the hints to send to the holder.
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

    /// Hints that a session has work. Returns at once.
    pub(crate) fn wake(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Wake { session: session.clone() }, session);
    }

    /// Hints that a session has an interrupt. Returns at once.
    pub(crate) fn interrupt(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Interrupt { session: session.clone() }, session);
    }

    /// Hints that a follower of the session lacks text. Returns at once.
    pub(crate) fn resync(self: &Arc<Self>, session: SessionRef) {
        self.send(WorkerHint::Resync { session: session.clone() }, session);
    }

    /// Tells followers on all gateways that a session's log now reaches `seq`.
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

    /// Asks placement in the background, then sends the hints to the holder that it names. Placement leases the
    /// Location if nobody holds it, and forwards the session's wake.
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
            let asked = waker.clock.monotonic(); // taken before the request, so that the answer is never trusted too long
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
                    // The work is durable and *ready*, so placement's sweep finds it.
                    tracing::warn!(%error, location = %location.location, "not placed yet");
                }
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // No foreign code runs under this lock, and a poisoned cache is still correct.
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
