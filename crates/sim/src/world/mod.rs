//! The cluster of one history: workers, placement, gateways, the provider, and faults. One queue of actions in virtual
//! time; the seed decides the order of actions that are due at the same time.
//!
//! ```text
//! facts      sizes, times, settings
//! desk       the surroundings of a drain
//! workers    sweeps, leases, drains that start and end; placement
//! files      the files of Locations, and their snapshots
//! gateways   requests of clients, and hints
//! forks      sessions that begin with the conversation of another
//! releases   workers that come back with other tools
//! reborn     sessions that are deleted and made anew under their ids
//! shorter    a database that comes back without its last commits, and followers of logs
//! trouble    faults, until they stop
//! ```

mod desk;
mod facts;
mod files;
mod forks;
mod gateways;
mod reborn;
mod releases;
mod shorter;
mod trouble;
mod workers;

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    CallId, IdMint, MessageId, RecordedEvent, SessionEvent, SessionIncarnation, SnapshotTree,
    Stamp, TurnOutcome,
};
use history::History;
use session_rules::Site;

use self::facts::{
    CALM, EPOCH, Facts, LOCATIONS, MAX_STEPS, PLACES, QUIET, SESSIONS, SETTLED, WORKERS,
};
pub(crate) use self::files::{Capture, Taken};
use self::files::{Content, Disk};
use self::gateways::Asked;
use self::releases::Releases;
use self::shorter::Shorter;
use self::trouble::Place;
use self::workers::{Assigned, Worker};
use crate::check::{Checker, Violation};
use crate::drain::Statement;
use crate::fault::{Faults, RARE, When, sites};
use crate::mutant::Mutant;
use crate::provider::Provider;
use crate::rng::Rng;
use crate::store::SimStore;
use crate::trace::Trace;

enum Action {
    Sweep {
        worker: usize,
        incarnation: u64,
    },
    Poll {
        worker: usize,
        incarnation: u64,
        drain: u64,
    },
    Placement,
    Client,
    /// People answer asks, or are waited for no longer.
    People,
    Retry {
        session: usize,
        incarnation: i64,
        asked: Box<Asked>,
    },
    Wake {
        session: usize,
    },
    Interrupt {
        session: usize,
    },
    Place {
        location: usize,
    },
    Trouble,
    Arrives {
        statement: Box<Statement>,
    },
    FenceArrives {
        location: usize,
        token: i64,
    },
    Restart {
        worker: usize,
    },
    Quiet,
    LastPrompts,
}

pub(crate) struct World {
    pub(crate) now: i64,
    pub(crate) rng: Rng,
    pub(crate) store: SimStore,
    pub(crate) facts: Facts,
    pub(crate) faults: Faults,
    pub(crate) trace: Trace,
    mutant: Option<Mutant>,
    queue: BTreeMap<(i64, u32, u64), Action>,
    scheduled: u64,
    steps: u64,
    drains: u64,
    workers: Vec<Worker>,
    assigned: Vec<Option<Assigned>>,
    heard: Vec<i64>,
    last_token: i64,
    places: Vec<Place>,
    provider: Provider,
    /// Calls that have changed files.
    effects: BTreeSet<CallId>,
    /// Calls whose effects are gone, as sessions know.
    told_lost: BTreeSet<CallId>,
    touched: u64,
    /// The call that has written each version of a file.
    writers: BTreeMap<u64, CallId>,
    /// The sessions that have ever been at a Location.
    visitors: Vec<BTreeSet<usize>>,
    disks: Vec<Disk>,
    /// Decides when Postgres stands still, in the few histories in which it does. A generator of its own leaves the
    /// other histories as they are.
    stalls: Option<Rng>,
    /// Decides when clients delete sessions and make them anew, in the histories in which they do.
    reborn: Option<Rng>,
    /// The database's past states, in the histories in which it comes back as one of them.
    shorter: Option<Shorter>,
    releases: Releases,
    /// The fences at the last check.
    fences: Vec<i64>,
    /// Whether workers die much more than usual.
    deadly: bool,
    /// Whether clients mostly ask for Reverts.
    reverts: bool,
    /// Whether each holder of a Location has a disk of its own.
    own_disks: bool,
    trees: BTreeMap<SnapshotTree, Content>,
    packs: BTreeSet<String>,
    checkers: Vec<Checker>,
    mint: IdMint,
    /// The last prompt of each session.
    last: Vec<(usize, MessageId)>,
    /// Inputs that a client believes to be admitted, with all that it needs to ask again.
    acknowledged: Vec<(usize, Asked)>,
    crash_points: Vec<(Site, When, i64)>,
    quiet: bool,
    violation: Option<Violation>,
}

/// The end of a history.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) steps: u64,
    pub(crate) events: u64,
    pub(crate) hash: u64,
    pub(crate) faults: Faults,
    pub(crate) violation: Option<Violation>,
    pub(crate) logs: Vec<Vec<RecordedEvent>>,
}

/// Each history dies at other crash points, so that a run meets them all.
fn crash_points(seed: u64, rng: &mut Rng) -> Vec<(Site, When, i64)> {
    let whens = When::ALL.len() as u64;
    let when = |point: u64| When::ALL[usize::try_from(point % whens).unwrap_or(0)];
    let sites: Vec<Site> = sites().collect();
    let points = sites.len() as u64 * whens;
    let rare = rare(seed);
    // A Revert can only be resumed if its drain left it.
    let left = (rare == Site::RevertResumed).then_some((Site::RevertStaging, When::After, 0));
    (0..4)
        .map(|turn| {
            let point = (seed.wrapping_mul(4) + turn) % points;
            let site = sites[usize::try_from(point / whens).unwrap_or(0)];
            (site, when(point), i64::try_from(rng.below(5_000)).unwrap_or(0))
        })
        // Few takeovers find an effect missing, so every history waits for one.
        .chain([(rare, when(seed), 0), (Site::StartedAgain, when(seed / whens), 0)])
        .chain(left)
        .collect()
}

/// The sessions that begin at a Location.
fn visitors(location: usize) -> BTreeSet<usize> {
    (0..SESSIONS).filter(|session| session % LOCATIONS == location).collect()
}

/// The site for which the history of `seed` waits.
fn rare(seed: u64) -> Site {
    let turn = seed / When::ALL.len() as u64 % RARE.len() as u64;
    RARE[usize::try_from(turn).unwrap_or(0)]
}

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut rng = Rng::new(seed);
        let mut mint = IdMint::seeded(Stamp::default(), EPOCH, seed);
        let reverts = matches!(
            rare(seed),
            Site::RevertReached | Site::RevertStaging | Site::RevertResumed | Site::UnrevertReached
        );
        let facts = Facts::new(&mut mint, !reverts);
        let mut store = SimStore::new(facts.locations.clone(), mutant);
        for session in 0..SESSIONS {
            let created = facts.begun(session);
            store.create(session % LOCATIONS, created.into(), &mut mint, EPOCH);
        }
        let crash_points = crash_points(seed, &mut rng);
        let limit = facts.context_limit();
        let mut world = Self {
            now: 0,
            rng,
            store,
            facts,
            faults: Faults::default(),
            trace: Trace::default(),
            mutant,
            queue: BTreeMap::new(),
            scheduled: 0,
            steps: 0,
            drains: 0,
            workers: (0..WORKERS).map(|_| Worker::new()).collect(),
            assigned: vec![None; PLACES],
            heard: vec![0; WORKERS],
            last_token: 0,
            places: (0..PLACES).map(|_| Place::default()).collect(),
            provider: Provider::default(),
            effects: BTreeSet::new(),
            told_lost: BTreeSet::new(),
            touched: 0,
            writers: BTreeMap::new(),
            disks: vec![Disk::default(); PLACES],
            visitors: (0..PLACES).map(visitors).collect(),
            stalls: matches!(seed % 8, 3 | 5).then(|| Rng::new(!seed)),
            reborn: (seed % 8 == 5).then(|| Rng::new(!seed.rotate_left(32))),
            shorter: (seed % 8 == 1).then(|| Shorter::new(seed)),
            releases: Releases::new(seed),
            fences: vec![0; PLACES],
            deadly: seed % 8 == 7,
            reverts,
            own_disks: seed % 5 < 2,
            trees: BTreeMap::new(),
            packs: BTreeSet::new(),
            checkers: vec![Checker::new(limit); SESSIONS],
            mint,
            last: Vec::new(),
            acknowledged: Vec::new(),
            crash_points,
            quiet: false,
            violation: None,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for worker in 0..WORKERS {
            let at = self.range(0, 100);
            self.at(at, Action::Sweep { worker, incarnation: 0 });
        }
        self.at(50, Action::Placement);
        for _ in 0..2 {
            let at = self.range(0, 200);
            self.at(at, Action::Client);
        }
        for location in 0..LOCATIONS {
            let at = self.range(300, 2_000);
            self.at(at, Action::Place { location });
        }
        self.at(700, Action::People);
        let at = self.range(500, 2_000);
        self.at(at, Action::Trouble);
        self.at(QUIET, Action::Quiet);
        self.at(QUIET + CALM, Action::LastPrompts);
    }

    /// Runs the history to its end.
    pub(crate) fn run(mut self) -> End {
        while self.violation.is_none() {
            let Some(((at, _, _), action)) = self.queue.pop_first() else { break };
            self.now = self.now.max(at);
            if self.quiet && self.is_settled() {
                break;
            }
            if self.now > SETTLED {
                self.fail("I11: it does not settle".into());
                break;
            }
            self.steps += 1;
            if self.steps > MAX_STEPS {
                self.fail(format!("it goes round in circles at {} ms", self.now));
                break;
            }
            self.trace.count(self.now);
            self.act(action);
            self.check(None);
            self.remember();
        }
        if self.violation.is_none() {
            self.finish();
        }
        let events = self.store.sessions.iter().map(|session| session.events.len() as u64).sum();
        for session in &self.store.sessions {
            for event in &session.events {
                self.trace.add(event.id.as_str());
                self.trace.add(event.event.kind());
            }
        }
        let logs = self.store.sessions.into_iter().map(|session| session.events).collect();
        End {
            steps: self.steps,
            events,
            hash: self.trace.hash(),
            faults: self.faults,
            violation: self.violation,
            logs,
        }
    }

    fn is_settled(&self) -> bool {
        let idle = self.workers.iter().all(|worker| worker.drains.is_empty());
        let retries = self.queue.values().any(|action| matches!(action, Action::Retry { .. }));
        let asked = !self.last.is_empty();
        asked && idle && !retries && self.store.sessions.iter().all(|session| !session.head.busy())
    }

    fn finish(&mut self) {
        for (index, session) in self.store.sessions.iter().enumerate() {
            if let Err(violation) = self.checkers[index].settled(session) {
                self.violation = Some(violation);
                return;
            }
            let last = self.last.iter().find(|(of, _)| *of == index).map(|(_, message)| message);
            if let Some(violation) = last.and_then(|last| wedged(&session.events, last)) {
                self.violation = Some(violation);
                return;
            }
            let mut fresh = History::new();
            fresh.belong_to(SessionIncarnation(session.head.incarnation));
            fresh.extend(session.events.iter());
            fresh.give_up_hidden();
            let fresh = format!("{fresh:?}");
            for worker in &mut self.workers {
                let Some(mut cached) = worker.cache.remove(&index) else { continue };
                if cached.incarnation().0 != session.head.incarnation {
                    continue; // of one that was deleted
                }
                let known = usize::try_from(cached.seq().0).unwrap_or(0);
                let last = known.checked_sub(1).and_then(|last| session.events.get(last));
                if last.map(|event| &event.id) != cached.last_event() {
                    continue; // of a log that is forgotten
                }
                cached.extend(session.events.get(known..).unwrap_or_default());
                if cached.lacks_texts() {
                    continue; // its next drain would fold the log again
                }
                cached.give_up_hidden();
                if format!("{cached:?}") != fresh {
                    self.violation = Some("I7: a fold in pieces is not the fold at once".into());
                    return;
                }
            }
        }
        if let Some(violation) = self.followers_differ() {
            self.violation = Some(violation);
            return;
        }
        for (session, asked) in &self.acknowledged {
            if !self.checkers[*session].knows(asked.message()) {
                self.violation =
                    Some(format!("I1: {} was acknowledged and is lost", asked.message()));
                return;
            }
        }
    }

    fn check(&mut self, writer: Option<u64>) {
        for (at, fence) in self.store.fences.iter().enumerate() {
            if *fence < self.fences[at] {
                let (before, fence) = (self.fences[at], *fence);
                self.violation.get_or_insert(format!("I10: a fence fell from {before} to {fence}"));
                break;
            }
            self.fences[at] = *fence;
        }
        for session in 0..self.store.sessions.len() {
            self.check_session(session, writer);
        }
    }

    fn check_session(&mut self, session: usize, writer: Option<u64>) {
        let max_steps = self.facts.settings.max_steps;
        let obeys = writer.is_some_and(|drain| self.forgets_interrupt_of(session, drain));
        let row = &self.store.sessions[session];
        let checker = &mut self.checkers[session];
        checker.obeys_forgotten(obeys);
        let checked = checker.take(row, writer, &self.provider, max_steps);
        if let Err(violation) = checked {
            self.fail(violation);
        }
    }

    fn at(&mut self, time: i64, action: Action) {
        self.scheduled += 1;
        let tie = u32::try_from(self.rng.draw() >> 32).unwrap_or(0);
        self.queue.insert((time, tie, self.scheduled), action);
    }

    fn after(&mut self, low: u64, high: u64, action: Action) {
        let delay = self.range(low, high);
        self.at(self.now + delay, action);
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Sweep { worker, incarnation } => self.sweep(worker, incarnation),
            Action::Poll { worker, incarnation, drain } => self.poll(worker, incarnation, drain),
            Action::Placement => self.place_all(),
            Action::Client => self.client(),
            Action::People => self.people(),
            Action::Retry { session, incarnation, asked } => {
                self.retry(session, incarnation, *asked);
            }
            Action::Wake { session } => self.wake(session),
            Action::Interrupt { session } => self.interrupted(session),
            Action::Place { location } => self.change_place(location),
            Action::Trouble => self.trouble(),
            Action::Arrives { statement } => self.arrives(&statement),
            Action::FenceArrives { location, token } => self.fence_arrives(location, token),
            Action::Restart { worker } => self.restart(worker),
            Action::Quiet => self.quieten(),
            Action::LastPrompts => self.last_prompts(),
        }
    }
}

/// The reason why a session does not answer its last prompt, although no fault stops it.
fn wedged(log: &[RecordedEvent], last: &MessageId) -> Option<Violation> {
    let is_it = |event: &RecordedEvent| matches!(&event.event, SessionEvent::PromptPromoted(promoted) if promoted.message == *last);
    let promoted = log.iter().position(is_it);
    let Some(promoted) = promoted else { return Some(format!("size: {last} was never promoted")) };
    for event in &log[promoted..] {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say what came of it")]
        match &event.event {
            SessionEvent::TurnSettled(settled) if settled.outcome == TurnOutcome::Completed => {
                return None;
            }
            SessionEvent::DrainEnded(ended) => {
                return Some(format!("size: the last prompt {last} is not answered: {ended:?}"));
            }
            _ => {}
        }
    }
    Some(format!("size: nothing came of the last prompt {last}"))
}
