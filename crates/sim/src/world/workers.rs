//! Workers: their sweeps and leases, and the drains that they start. Placement, which gives them Locations.

use std::collections::BTreeMap;

use domain::Seq;
use history::History;
use session_rules::Closed;

use super::facts::{EPOCH, LEASE, PLACES, SWEEP, WORKERS};
use super::{Action, World};
use crate::drain::{Drain, Exit, Flow};

/// A process that may run drains.
pub(super) struct Worker {
    /// Each restart makes it another process.
    pub(super) incarnation: u64,
    pub(super) alive: bool,
    pub(super) paused_until: i64,
    pub(super) cut_off_until: i64,
    pub(super) stopping: bool,
    pub(super) crowded: bool,
    pub(super) skew: i64,
    /// Whose tools it has.
    pub(super) release: usize,
    /// The token of each Location that it holds, and until when it may start drains there.
    pub(super) held: BTreeMap<usize, (i64, i64)>,
    pub(super) drains: BTreeMap<u64, Drain>,
    /// Folds of earlier drains.
    pub(super) cache: BTreeMap<usize, History>,
}

impl Worker {
    pub(super) fn new() -> Self {
        Self {
            incarnation: 0,
            alive: true,
            paused_until: 0,
            cut_off_until: 0,
            stopping: false,
            crowded: false,
            skew: 0,
            release: 0,
            held: BTreeMap::new(),
            drains: BTreeMap::new(),
            cache: BTreeMap::new(),
        }
    }
}

/// Placement's word on a Location.
#[derive(Clone, Copy)]
pub(super) struct Assigned {
    pub(super) worker: usize,
    token: i64,
}

impl World {
    pub(super) fn poll(&mut self, worker: usize, incarnation: u64, id: u64) {
        let host = &mut self.workers[worker];
        if host.incarnation != incarnation || !host.alive {
            return;
        }
        if host.paused_until > self.now {
            let until = host.paused_until;
            return self.at(until, Action::Poll { worker, incarnation, drain: id });
        }
        let Some(mut drain) = host.drains.remove(&id) else { return };
        if drain.next_poll > self.now {
            // A hint has moved it to another time.
            host.drains.insert(id, drain);
            return;
        }
        match drain.step(self) {
            Flow::Poll(at) => {
                drain.next_poll = at;
                self.workers[worker].drains.insert(id, drain);
                self.at(at, Action::Poll { worker, incarnation, drain: id });
            }
            Flow::Exit(exit) => self.exited(worker, drain, exit),
            Flow::Died => self.die(worker),
        }
    }

    fn exited(&mut self, worker: usize, drain: Drain, exit: Exit) {
        let session = drain.session;
        let head = self.store.sessions[session].head;
        self.trace.add(&format!("{exit:?}"));
        match exit {
            Exit::Closed(Closed::Ended(_) | Closed::Waiting) | Exit::Idle => {}
            Exit::Closed(Closed::HandedOver | Closed::Yielded) => {
                let said =
                    head.handed_over || drain.claim().is_some_and(|claim| head.claim > claim + 1);
                if !said {
                    self.fail("R: a hand-over that the head does not know of".into());
                }
            }
            Exit::Superseded | Exit::WentBack => {
                if exit == Exit::WentBack {
                    self.went_back(drain.id, drain.history.last_event());
                }
                // The database may have forgotten rows of the Location's files, too.
                self.workers[worker].held.remove(&drain.at);
                return;
            }
            Exit::Moved => {
                // The holder of the new Location hears of it, or finds it.
                self.hint(|| Action::Wake { session });
                return;
            }
            Exit::Fenced | Exit::Failed => return,
        }
        if self.rng.chance(70) {
            self.workers[worker].cache.insert(session, drain.history);
        }
        if head.ready() {
            self.start(worker, session);
        }
    }

    pub(super) fn die(&mut self, worker: usize) {
        let host = &mut self.workers[worker];
        host.alive = false;
        host.drains.clear();
        host.cache.clear();
        host.held.clear();
        self.after(100, 2_500, Action::Restart { worker });
    }

    pub(super) fn restart(&mut self, worker: usize) {
        let host = &mut self.workers[worker];
        if host.alive {
            return;
        }
        host.alive = true;
        host.incarnation += 1;
        host.paused_until = 0;
        host.stopping = false;
        let incarnation = host.incarnation;
        self.release(worker);
        self.at(self.now, Action::Sweep { worker, incarnation });
    }

    /// A worker's heartbeat and its look at what it has.
    pub(super) fn sweep(&mut self, worker: usize, incarnation: u64) {
        let now = self.now;
        let host = &self.workers[worker];
        if host.incarnation != incarnation || !host.alive {
            return;
        }
        if host.paused_until > now {
            let until = host.paused_until;
            return self.at(until, Action::Sweep { worker, incarnation });
        }
        if host.stopping && host.drains.is_empty() {
            // It has stopped in good order. Another process takes its place.
            self.workers[worker].alive = false;
            self.workers[worker].held.clear();
            self.workers[worker].cache.clear();
            return self.after(50, 500, Action::Restart { worker });
        }
        if host.cut_off_until <= now && !host.stopping {
            self.heard[worker] = now;
            self.leases(worker);
        }
        let held: Vec<usize> = self.workers[worker].held.keys().copied().collect();
        for location in held {
            for session in self.store.ready_at(location) {
                self.start(worker, session);
            }
        }
        let (mut woken, mut told) = (Vec::new(), Vec::new());
        for drain in self.workers[worker].drains.values_mut() {
            let head = self.store.sessions[drain.session].head;
            drain.fenced |= drain.claim().is_some_and(|claim| head.claim > claim + 1);
            if drain.is_of(&head) && drain.hears_of(Seq(head.interrupt_seq)) {
                told.push((drain.session, drain.id));
            }
            if drain.fenced {
                drain.next_poll = now;
                woken.push(drain.id);
            }
        }
        for (session, drain) in told {
            self.tells(session, drain);
        }
        for drain in woken {
            self.at(now, Action::Poll { worker, incarnation, drain });
        }
        self.at(now + SWEEP, Action::Sweep { worker, incarnation });
    }

    /// A worker hears from placement which Locations are its own.
    fn leases(&mut self, worker: usize) {
        for location in 0..PLACES {
            let token = match self.assigned[location] {
                Some(assigned) if assigned.worker == worker => assigned.token,
                _ => {
                    self.workers[worker].held.remove(&location);
                    continue;
                }
            };
            let held = self.workers[worker].held.get(&location).map(|held| held.0);
            if held == Some(token) || self.take_over(worker, location, token) {
                self.workers[worker].held.insert(location, (token, self.now + LEASE));
            }
        }
    }

    /// A worker raises a Location's fence to its new token. False if it may not start there, or not yet.
    fn take_over(&mut self, worker: usize, location: usize, token: i64) -> bool {
        if self.fence_stalls(location, token) {
            return false;
        }
        let before = self.store.fences[location];
        if !self.store.raise_fence(location, token) {
            return false;
        }
        if self.own_disks {
            self.own_disk(location, worker, before, token);
        }
        self.trace.count(token);
        self.end_tools(location, worker);
        true
    }

    /// A new holder ends the tools of those before it.
    fn end_tools(&mut self, location: usize, holder: usize) {
        for (worker, host) in
            self.workers.iter_mut().enumerate().filter(|(worker, _)| *worker != holder)
        {
            debug_assert_ne!(worker, holder);
            for drain in host.drains.values_mut() {
                if drain.at == location {
                    drain.kill_bodies();
                }
            }
        }
    }

    fn start(&mut self, worker: usize, session: usize) {
        let location = self.store.sessions[session].head.location;
        let now = self.now;
        let host = &mut self.workers[worker];
        let Some((token, until)) = host.held.get(&location).copied() else { return };
        let runs = host.drains.values().any(|drain| drain.session == session);
        if runs || until <= now || host.stopping || !host.alive {
            return;
        }
        self.drains += 1;
        let id = self.drains;
        let known = host.cache.remove(&session).unwrap_or_default();
        host.drains
            .insert(id, Drain::new(id, worker, session, (location, token), known, EPOCH + now));
        let incarnation = host.incarnation;
        if let Some(drain) = self.workers[worker].drains.get_mut(&id) {
            drain.next_poll = now;
        }
        self.at(now, Action::Poll { worker, incarnation, drain: id });
    }

    pub(super) fn place_all(&mut self) {
        for location in 0..PLACES {
            let now = self.now;
            let silent = |assigned: &Assigned| now - self.heard[assigned.worker] > LEASE;
            let gone = self.assigned[location].as_ref().is_none_or(silent);
            if gone && !self.store.ready_at(location).is_empty() {
                self.assign(location);
            }
        }
        self.at(self.now + SWEEP, Action::Placement);
    }

    pub(super) fn assign(&mut self, location: usize) {
        let fresh = |worker: &usize| {
            self.now - self.heard[*worker] <= LEASE && !self.workers[*worker].stopping
        };
        let fit: Vec<usize> = (0..WORKERS).filter(fresh).collect();
        if fit.is_empty() {
            return;
        }
        let worker = fit[self.rng.index(fit.len())];
        self.last_token += 1;
        self.assigned[location] = Some(Assigned { worker, token: self.last_token });
    }

    /// A wake comes to the worker that holds the Location according to placement.
    pub(super) fn wake(&mut self, session: usize) {
        let location = self.store.sessions[session].head.location;
        if self.assigned[location].is_none() {
            self.assign(location);
        }
        let Some(Assigned { worker, .. }) = self.assigned[location] else { return };
        let host = &self.workers[worker];
        if !host.alive || host.paused_until > self.now || host.cut_off_until > self.now {
            return;
        }
        if !host.held.contains_key(&location) {
            self.heard[worker] = self.now;
            self.leases(worker);
        }
        self.start(worker, session);
    }

    /// A hint that the session was interrupted: its worker looks at the head.
    pub(super) fn interrupted(&mut self, session: usize) {
        let now = self.now;
        let head = self.store.sessions[session].head;
        let mut told = Vec::new();
        for (worker, host) in self.workers.iter_mut().enumerate() {
            let incarnation = host.incarnation;
            for drain in host.drains.values_mut().filter(|drain| drain.session == session) {
                if drain.is_of(&head) {
                    let is_its_own = drain.hears_of(Seq(head.interrupt_seq));
                    drain.next_poll = now;
                    told.push((worker, incarnation, drain.id, is_its_own));
                }
            }
        }
        for (worker, incarnation, drain, is_its_own) in told {
            if is_its_own {
                self.tells(session, drain);
            }
            self.at(now, Action::Poll { worker, incarnation, drain });
        }
    }
}
