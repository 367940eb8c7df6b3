//! Looks at the database, which find what lost hints have missed.

use std::time::Duration;

use domain::{LocationRef, SessionRef};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::{info, warn};

use super::{Executor, Look, Message, Running, chain};
use crate::sweep::{self, Found, LookError, Watched};

const SWEEP: TaskKind = TaskKind::new("sweep", OnError::Log, OnCancel::Abort);
/// How long the store may fail to answer before tools, provider requests and drains end. An ordinary failover is
/// shorter, and the running work is then written under the same claim.
pub(super) const WITHOUT_STORE: Duration = Duration::from_secs(30);

impl Executor {
    /// Asks the store for everything that lost hints may have missed.
    pub(super) fn sweep(&mut self) {
        self.release_idle();
        if self.sweeping {
            return;
        }
        self.sweeping = true;
        let held = self.held.iter().filter(|(_, held)| held.workspace.is_some());
        let held: Vec<LocationRef> = held.map(|(at, _)| at.clone()).collect();
        let drains = self.running.iter().map(|(session, running)| watched(session, running));
        let drains = drains.collect();
        self.look(true, held, drains);
    }

    /// Looks at one session's head now.
    pub(super) fn look_at(&self, session: &SessionRef) {
        if let Some(running) = self.running.get(session) {
            self.look(false, Vec::new(), vec![watched(session, running)]);
        }
    }

    fn look(&self, whole: bool, held: Vec<LocationRef>, drains: Vec<Watched>) {
        let store = self.parts.runtime.store.clone();
        let inbox = self.inbox.clone();
        let look = Look { asked: self.parts.runtime.clock.monotonic(), whole };
        self.tasks.spawn(SWEEP, async move {
            let found = sweep::look(&store, held, drains).await;
            if found.is_err() && whole {
                tokio::time::sleep(sweep::BACK_OFF).await;
            }
            let _gone = inbox.send(Message::Looked(look, found));
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn looked(&mut self, look: &Look, result: Result<Found, LookError>) {
        self.sweeping &= !look.whole;
        let found = match result {
            Ok(found) => found,
            Err(error) => return self.look_failed(&error),
        };
        if self.pulse.store_answered(look.asked) {
            info!("the database answers again; this worker takes work");
        }
        if found.databases > self.databases {
            self.databases = found.databases;
            self.forget_database();
        }
        for (watched, head) in found.watched {
            let running = self.running.get(&watched.session);
            let Some(Running { handle, .. }) =
                running.filter(|running| running.number == watched.drain)
            else {
                continue;
            };
            if watched.is_fenced(head.as_ref(), handle.claim()) {
                handle.fence();
            } else if let Some(head) = head {
                handle.interrupted(head.interrupt_seq);
                handle.moved(head.seq);
            }
        }
        let now = self.parts.runtime.clock.monotonic();
        for session in found.ready {
            if !self.running.contains_key(&session) && !self.strikes.rests(&session, now) {
                self.poke(session);
            }
        }
    }

    fn look_failed(&self, error: &LookError) {
        let was_stranded = self.pulse.is_stranded();
        let silent = self.pulse.store_failed(self.parts.runtime.clock.monotonic());
        let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        if !was_stranded {
            warn!(error = %chain(error), silent_ms, "the sweep failed; the next one is on its way");
        }
        if silent >= WITHOUT_STORE {
            if !self.running.is_empty() {
                warn!(silent_ms, drains = self.running.len(), "drains end: the database is away");
            }
            for Running { handle, .. } in self.running.values() {
                handle.fence();
            }
        }
    }
}

fn watched(session: &SessionRef, running: &Running) -> Watched {
    let claim = running.handle.claim();
    Watched { session: session.clone(), drain: running.number, claim }
}
