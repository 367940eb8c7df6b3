//! A database that comes back without its last commits, as after a failover to a standby that lagged behind. Workers,
//! their drains and followers live on with what it has forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::{AttemptId, CallId, EventId, MessageId, RecordedEvent, SessionEvent, SnapshotTree};

use super::World;
use super::facts::{PLACES, SESSIONS};
use super::gateways::Asked;
use crate::check::{Checker, Violation};
use crate::fault::Fault;
use crate::mutant::ShellMutant;
use crate::rng::Rng;
use crate::store::SimStore;

/// Past states that it may come back as, at most.
const STATES: usize = 4;

/// The past of a database, and those who read it.
pub(super) struct Shorter {
    /// A generator of its own leaves the other histories as they are.
    rng: Rng,
    past: VecDeque<State>,
    /// Events that are forgotten.
    events: BTreeSet<EventId>,
    /// Requests and calls whose rows are forgotten. Their drains do not know that before their next write.
    attempts: BTreeSet<AttemptId>,
    calls: BTreeSet<CallId>,
    /// Inputs whose rows are forgotten. A client may believe that they are there.
    inputs: BTreeSet<MessageId>,
    /// Calls whose effects no drain waits to have captured, since that has failed. No row says so, and drains remember it.
    uncaptured: BTreeSet<CallId>,
    /// The interrupt that each drain was told of. It obeys also if the row is forgotten.
    told: BTreeMap<u64, EventId>,
    /// The log of each session as a follower has received it.
    followers: Vec<Vec<EventId>>,
}

/// Everything that is committed at some time, and what a client knows to be.
struct State {
    store: SimStore,
    checkers: Vec<Checker>,
    acknowledged: Vec<(usize, Asked)>,
    told_lost: BTreeSet<CallId>,
    snapshots: Vec<(Option<SnapshotTree>, (i64, i64))>,
}

impl Shorter {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(!seed.rotate_left(48)),
            past: VecDeque::new(),
            events: BTreeSet::new(),
            attempts: BTreeSet::new(),
            calls: BTreeSet::new(),
            inputs: BTreeSet::new(),
            uncaptured: BTreeSet::new(),
            told: BTreeMap::new(),
            followers: vec![Vec::new(); SESSIONS],
        }
    }

    /// Notes what the events name that are forgotten.
    fn forget(&mut self, events: &[RecordedEvent]) {
        for recorded in events {
            self.events.insert(recorded.id.clone());
            #[expect(clippy::wildcard_enum_match_arm, reason = "only these name work outside")]
            match &recorded.event {
                SessionEvent::AttemptStarted(started) => {
                    self.attempts.insert(started.attempt.clone());
                }
                SessionEvent::ToolCalled(called) => {
                    self.calls.insert(called.intent.call.clone());
                }
                SessionEvent::ToolStarted(started) => {
                    self.calls.insert(started.call.clone());
                }
                SessionEvent::PromptAdmitted(prompt) => {
                    self.inputs.insert(prompt.message.clone());
                }
                SessionEvent::ControlAdmitted(control) => {
                    self.inputs.insert(control.message.clone());
                }
                _ => {}
            }
        }
    }
}

impl World {
    /// Keeps the database's state now and then, for the time when it comes back as it was; a follower reads on.
    pub(super) fn remember(&mut self) {
        let Some(shorter) = &mut self.shorter else { return };
        let (keeps, reads) = (!self.quiet && shorter.rng.chance(4), shorter.rng.chance(30));
        if keeps {
            let snapshots = (0..PLACES).map(|at| self.disks[at].row()).collect();
            shorter.past.push_back(State {
                store: self.store.clone(),
                checkers: self.checkers.clone(),
                acknowledged: self.acknowledged.clone(),
                told_lost: self.told_lost.clone(),
                snapshots,
            });
            if shorter.past.len() > STATES {
                shorter.past.pop_front();
            }
        }
        if reads {
            let session = shorter.rng.index(SESSIONS);
            self.follow(session);
        }
    }

    /// The database comes back as it was. Whether it did.
    pub(super) fn goes_back(&mut self) -> bool {
        let sessions = self.store.sessions.len();
        let Some(shorter) = &mut self.shorter else { return false };
        // A Fork that is forgotten would have to be forgotten by the simulation too.
        shorter.past.retain(|state| state.store.sessions.len() == sessions);
        // Two workers would have files of their own for a Location whose fence falls. This world has one disk for it.
        if self.own_disks {
            shorter.past.retain(|state| state.store.fences == self.store.fences);
        }
        if shorter.past.is_empty() || !shorter.rng.chance(15) {
            return false;
        }
        let place = shorter.rng.index(shorter.past.len());
        let Some(state) = shorter.past.remove(place) else { return false };
        shorter.past.truncate(place);
        for (now, then) in self.store.sessions.iter().zip(&state.store.sessions) {
            shorter.forget(now.events.get(then.events.len()..).unwrap_or_default());
        }
        self.faults.note(Fault::WentBack);
        self.fences.clone_from(&state.store.fences);
        self.store = state.store;
        self.checkers = state.checkers;
        self.checkers.iter_mut().for_each(|checker| checker.went_back(&shorter.uncaptured));
        self.acknowledged = state.acknowledged;
        self.told_lost = state.told_lost;
        for (disk, row) in self.disks.iter_mut().zip(state.snapshots) {
            disk.comes_back(row);
        }
        true
    }

    /// Whether the database ever comes back without some commits.
    pub(crate) fn may_go_back(&self) -> bool {
        self.shorter.is_some()
    }

    /// Whether the row of a request is forgotten.
    pub(super) fn forgets_attempt(&self, attempt: &AttemptId) -> bool {
        self.shorter.as_ref().is_some_and(|shorter| shorter.attempts.contains(attempt))
    }

    /// Whether the row of a call is forgotten.
    pub(super) fn forgets_call(&self, call: &CallId) -> bool {
        self.shorter.as_ref().is_some_and(|shorter| shorter.calls.contains(call))
    }

    /// Keeps what drains know of captures that failed.
    pub(super) fn keep_uncaptured(&mut self, calls: Vec<CallId>) {
        if let Some(shorter) = &mut self.shorter {
            shorter.uncaptured.extend(calls);
        }
    }

    /// Checks that the log of a drain that takes it for forgotten ends with an event that is.
    pub(super) fn went_back(&mut self, drain: u64, last: Option<&EventId>) {
        let forgets = |shorter: &Shorter| last.is_some_and(|last| shorter.events.contains(last));
        if !self.shorter.as_ref().is_some_and(forgets) {
            self.fail(format!("R: drain {drain} takes its log for forgotten, and it is not"));
        }
    }

    /// Whether the row of an input is forgotten.
    pub(super) fn forgets_input(&self, message: &MessageId) -> bool {
        self.shorter.as_ref().is_some_and(|shorter| shorter.inputs.contains(message))
    }

    /// An input whose row was forgotten is admitted again.
    pub(super) fn is_known_again(&mut self, message: &MessageId) {
        if let Some(shorter) = &mut self.shorter {
            shorter.inputs.remove(message);
        }
    }

    /// Notes that a drain is told of the session's newest interrupt, which is its own.
    pub(super) fn tells(&mut self, session: usize, drain: u64) {
        let Some(shorter) = &mut self.shorter else { return };
        let interrupt = self.store.event(session, self.store.sessions[session].head.interrupt_seq);
        if let Some(interrupt) = interrupt {
            shorter.told.insert(drain, interrupt.id.clone());
        }
    }

    /// Whether a drain was told of an interrupt whose row is forgotten.
    pub(super) fn forgets_interrupt_of(&self, session: usize, drain: u64) -> bool {
        let told = self.shorter.as_ref().and_then(|shorter| shorter.told.get(&drain));
        let log = &self.store.sessions[session].events;
        told.is_some_and(|told| log.iter().all(|event| event.id != *told))
    }

    /// A follower reads on, or from the beginning if the log is not the one that it has.
    fn follow(&mut self, session: usize) {
        let believes = self.is(ShellMutant::FollowerBelievesNumbers);
        let Some(shorter) = &mut self.shorter else { return };
        let log = &self.store.sessions[session].events;
        let had = &mut shorter.followers[session];
        let last = had.len().checked_sub(1).map(|last| log.get(last).map(|event| &event.id));
        let is_known = match last {
            None => true,
            Some(None) => false,
            Some(Some(id)) => believes || had.last() == Some(id),
        };
        if !is_known {
            had.clear();
        }
        had.extend(log[had.len()..].iter().map(|event| event.id.clone()));
    }

    /// Whether a follower that has read to the end has another log than the database.
    pub(super) fn followers_differ(&mut self) -> Option<Violation> {
        (0..SESSIONS).find_map(|session| {
            self.follow(session);
            let had = self.shorter.as_ref()?.followers.get(session)?;
            let log = self.store.sessions[session].events.iter().map(|event| &event.id);
            (!had.iter().eq(log))
                .then(|| format!("I5: a follower of session {session} has another log"))
        })
    }
}
