//! The cluster of one history: workers, placement, gateways, the provider, and what goes wrong. One queue of
//! actions in virtual time; what is due at the same time goes in an order that the seed decides.
//!
//! Long because every action of a history is here, beside the state that it changes; the parts that stand alone
//! (drain, store, provider, checks) are files of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use context::{EnvironmentFacts, Loaded, SystemContext, date, environment};
use domain::{
    AttemptId, AttemptStarted, CallId, Delivery, IdMint, LocationId, MessageId, ModelRef, OrgId,
    PartId, Permitted, ProjectId, PromptAdmitted, PromptPart, Seq, SessionCreated, SessionError,
    SessionId, SessionRef, Stamp, ToolClass,
};
use history::{History, hash_hex};
use llm_protocol::{RawJson, ToolDefinition, retry::Schedule};
use session_rules::{
    Agent, Agents, Closed, CompactionSettings, Models, Observation, RuleSettings, Rules, Site,
    ToolFacts, WorkspaceState,
};

use crate::check::{Checker, MAX_BODIES, MAX_RECOVERIES, Violation};
use crate::drain::{Drain, Exit, Flow};
use crate::fault::{Fault, Faults, When, sites};
use crate::mutant::{Mutant, ShellMutant};
use crate::provider::{Provider, Stream, TOOLS};
use crate::rng::Rng;
use crate::store::{Admission, Basis, SimStore};
use crate::trace::Trace;

/// When virtual time begins, in Unix milliseconds.
const EPOCH: i64 = 1_795_000_000_000;
/// Actions of one history, at most.
const MAX_STEPS: u64 = 50_000;
const WORKERS: usize = 3;
const LOCATIONS: usize = 2;
const SESSIONS: usize = 3;
/// How often a worker looks by itself, and placement.
const SWEEP: i64 = 500;
/// How long a lease lasts after its last heartbeat.
const LEASE: i64 = 2_000;
/// When faults stop.
const QUIET: i64 = 9_000;
/// By when everything must be settled: the longest waits are a provider's, then a lease's.
const SETTLED: i64 = QUIET + 45_000;

/// What all drains share.
pub(crate) struct Facts {
    pub(crate) settings: RuleSettings,
    models: Models,
    tools: ToolFacts,
    sessions: Vec<SessionRef>,
    missing: SessionError,
}

struct Worker {
    /// It is another process with each.
    incarnation: u64,
    alive: bool,
    paused_until: i64,
    cut_off_until: i64,
    stopping: bool,
    crowded: bool,
    skew: i64,
    /// The token of each Location that it holds, and until when it may start drains there.
    held: BTreeMap<usize, (i64, i64)>,
    drains: BTreeMap<u64, Drain>,
    /// Folds of earlier drains.
    cache: BTreeMap<usize, History>,
}

#[derive(Clone, Copy)]
struct Assigned {
    worker: usize,
    token: i64,
}

/// What a Location's Context Sources say.
struct Place {
    branch: u64,
    unavailable: bool,
    missing: bool,
}

enum Action {
    Sweep { worker: usize, incarnation: u64 },
    Poll { worker: usize, incarnation: u64, drain: u64 },
    Placement,
    Client,
    Retry { session: usize, prompt: Box<PromptAdmitted> },
    Wake { session: usize },
    Interrupt { session: usize, seq: i64 },
    Place { location: usize },
    Trouble,
    Restart { worker: usize },
    Quiet,
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
    effects: BTreeSet<CallId>,
    checkers: Vec<Checker>,
    mint: IdMint,
    /// Prompts that a client believes to be admitted, with all that it needs to ask again.
    acknowledged: Vec<(usize, PromptAdmitted)>,
    crash_points: Vec<(Site, When, i64)>,
    quiet: bool,
    violation: Option<Violation>,
}

/// What came of a history.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) steps: u64,
    pub(crate) events: u64,
    pub(crate) hash: u64,
    pub(crate) faults: Faults,
    pub(crate) violation: Option<Violation>,
}

impl World {
    pub(crate) fn new(seed: u64, mutant: Option<Mutant>) -> Self {
        let mut rng = Rng::new(seed);
        let mut mint = IdMint::seeded(Stamp::default(), EPOCH, seed);
        let facts = facts(&mut mint);
        let mut store = SimStore::new(LOCATIONS, mutant);
        for session in &facts.sessions {
            let location = facts.sessions.iter().position(|other| other == session).unwrap_or(0);
            let created = SessionCreated {
                project: ProjectId::mint(&mut mint),
                location: session.location.clone(),
                directory: "/workspace".into(),
                title: "New session".into(),
                agent: "build".into(),
                model: None,
                parent: None,
                named: true,
            };
            store.create(location % LOCATIONS, created.into(), &mut mint, EPOCH);
        }
        // Each history dies at other crash points, so that a run meets them all.
        let sites: Vec<Site> = sites().collect();
        let points = sites.len() as u64 * When::ALL.len() as u64;
        let rare = When::ALL[usize::try_from(seed % 3).unwrap_or(0)];
        let crash_points = (0..4)
            .map(|turn| {
                let point = (seed.wrapping_mul(4) + turn) % points;
                let site = sites[usize::try_from(point / 3).unwrap_or(0)];
                let when = When::ALL[usize::try_from(point % 3).unwrap_or(0)];
                (site, when, i64::try_from(rng.below(5_000)).unwrap_or(0))
            })
            // Few takeovers find an effect missing: that one is always waited for.
            .chain([(Site::StartedAgain, rare, 0)])
            .collect();
        let worker = |_| Worker {
            incarnation: 0,
            alive: true,
            paused_until: 0,
            cut_off_until: 0,
            stopping: false,
            crowded: false,
            skew: 0,
            held: BTreeMap::new(),
            drains: BTreeMap::new(),
            cache: BTreeMap::new(),
        };
        let place = |_| Place { branch: 0, unavailable: false, missing: false };
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
            workers: (0..WORKERS).map(worker).collect(),
            assigned: vec![None; LOCATIONS],
            heard: vec![0; WORKERS],
            last_token: 0,
            places: (0..LOCATIONS).map(place).collect(),
            provider: Provider::default(),
            effects: BTreeSet::new(),
            checkers: vec![Checker::default(); SESSIONS],
            mint,
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
        let at = self.range(500, 2_000);
        self.at(at, Action::Trouble);
        self.at(QUIET, Action::Quiet);
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
        let hash = self.trace.hash();
        End { steps: self.steps, events, hash, faults: self.faults, violation: self.violation }
    }

    fn is_settled(&self) -> bool {
        let idle = self.workers.iter().all(|worker| worker.drains.is_empty());
        let retries = self.queue.values().any(|action| matches!(action, Action::Retry { .. }));
        idle && !retries && self.store.sessions.iter().all(|session| !session.head.ready())
    }

    fn finish(&mut self) {
        for (index, session) in self.store.sessions.iter().enumerate() {
            if let Err(violation) = self.checkers[index].settled(session) {
                self.violation = Some(violation);
                return;
            }
            let mut fresh = History::new();
            fresh.extend(session.events.iter());
            let fresh = format!("{fresh:?}");
            for worker in &mut self.workers {
                let Some(mut cached) = worker.cache.remove(&index) else { continue };
                let known = usize::try_from(cached.seq().0).unwrap_or(0);
                cached.extend(session.events.get(known..).unwrap_or_default());
                if format!("{cached:?}") != fresh {
                    self.violation = Some("I7: a fold in pieces is not the fold at once".into());
                    return;
                }
            }
        }
        for (session, prompt) in &self.acknowledged {
            if !self.checkers[*session].knows(&prompt.message) {
                self.violation =
                    Some(format!("I1: {} was acknowledged and is lost", prompt.message));
                return;
            }
        }
    }

    // ── What drains ask for ─────────────────────────────────────────────────────────────────────

    pub(crate) fn is(&self, mutant: ShellMutant) -> bool {
        self.mutant == Some(Mutant::Shell(mutant))
    }

    pub(crate) fn range(&mut self, low: u64, high: u64) -> i64 {
        i64::try_from(self.rng.within(low, high)).unwrap_or(0)
    }

    /// How long a statement takes.
    pub(crate) fn latency(&mut self) -> i64 {
        if self.rng.chance(10) && !self.quiet { self.range(20, 250) } else { self.range(1, 8) }
    }

    /// A worker's clock.
    pub(crate) fn clock(&self, worker: usize) -> i64 {
        EPOCH + self.now + self.workers[worker].skew
    }

    pub(crate) fn rules(&self, session: usize, worker: usize, interrupts_before: Seq) -> Rules<'_> {
        let place = &self.places[self.store.sessions[session].head.location];
        let facts = &self.facts;
        Rules {
            settings: &facts.settings,
            models: &facts.models,
            tools: &facts.tools,
            session: &facts.sessions[session],
            workspace: if place.missing {
                WorkspaceState::Missing(&facts.missing)
            } else {
                WorkspaceState::Here
            },
            stopping: self.workers[worker].stopping,
            crowded: self.workers[worker].crowded,
            interrupts_before,
        }
    }

    pub(crate) fn observe(
        &mut self,
        session: usize,
        worker: usize,
        history: &History,
    ) -> Observation {
        let now = self.clock(worker);
        let place = &self.places[self.store.sessions[session].head.location];
        let loaded = if place.unavailable {
            Loaded::Unavailable("the disk is asleep".to_owned())
        } else {
            Loaded::Value(EnvironmentFacts {
                directory: "/workspace".into(),
                platform: "linux".into(),
                repository: true,
                branch: Some(format!("branch{}", place.branch)),
            })
        };
        let seen =
            SystemContext::combine([environment(loaded), date(now, &jiff::tz::TimeZone::UTC)]);
        Observation::new(seen, Arc::new(history.read_paths().clone()))
    }

    /// The crash that a commit at `site` meets, if one.
    pub(crate) fn crash(&mut self, site: Site) -> Option<When> {
        if self.quiet {
            return None;
        }
        let now = self.now;
        let point =
            self.crash_points.iter().position(|(at, _, from)| *at == site && *from <= now)?;
        let (_, when, _) = self.crash_points.swap_remove(point);
        self.faults.crashed(site, when);
        Some(when)
    }

    /// A drain has written: what is new is checked against who it is.
    pub(crate) fn written(&mut self, session: usize, drain: u64, basis: Basis, events: usize) {
        self.trace.count(basis.claim());
        if basis.starts.is_some_and(|token| !self.holds(session, token)) {
            self.fail(format!("I10: drain {drain} started under a token that has passed on"));
        }
        self.trace.count(i64::try_from(events).unwrap_or(0));
        self.check_session(session, Some(drain));
    }

    /// A request comes to the provider.
    pub(crate) fn request(
        &mut self,
        session: usize,
        started: &AttemptStarted,
        body: &[u8],
    ) -> Stream {
        let components = format!("{:?}", started.components);
        let checked =
            self.checkers[session].request(&started.attempt, &hash_hex(body), &components, body);
        if let Err(violation) = checked {
            self.fail(violation);
        }
        self.trace.add(&started.body_hash);
        let forbidden = body.windows(13).any(|window| window == b"\"tool_choice\"");
        let Self { provider, rng, faults, quiet, now, .. } = self;
        let may_call = !*quiet && (!forbidden || rng.chance(30));
        provider.answer(&started.attempt, *now, *quiet, may_call, rng, faults)
    }

    /// Followers have seen something of an attempt's answer.
    pub(crate) fn show(&mut self, attempt: &AttemptId) {
        self.provider.shown.insert(attempt.clone());
    }

    pub(crate) fn body_started(&mut self, session: usize, call: &CallId) {
        if let Err(violation) = self.checkers[session].body(call) {
            self.fail(violation);
        }
    }

    pub(crate) fn effect(&mut self, session: usize, call: &CallId) {
        self.effects.insert(call.clone());
        if let Err(violation) = self.checkers[session].effect(call) {
            self.fail(violation);
        }
    }

    pub(crate) fn is_last_step(&self, session: usize, worker: usize, history: &History) -> bool {
        self.rules(session, worker, Seq(0)).is_last_step(history)
    }

    /// Whether a token is still the one of its Location.
    pub(crate) fn holds(&self, session: usize, token: i64) -> bool {
        self.store.fences[self.store.sessions[session].head.location] == token
    }

    pub(crate) fn had_effect(&self, call: &CallId) -> bool {
        self.effects.contains(call)
    }

    pub(crate) fn fail(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    fn check(&mut self, writer: Option<u64>) {
        for session in 0..SESSIONS {
            self.check_session(session, writer);
        }
    }

    fn check_session(&mut self, session: usize, writer: Option<u64>) {
        let max_steps = self.facts.settings.max_steps;
        let row = &self.store.sessions[session];
        let checked = self.checkers[session].take(row, writer, &self.provider, max_steps);
        if let Err(violation) = checked {
            self.fail(violation);
        }
    }

    // ── Actions ─────────────────────────────────────────────────────────────────────────────────

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
            Action::Retry { session, prompt } => self.retry(session, &prompt),
            Action::Wake { session } => self.wake(session),
            Action::Interrupt { session, seq } => self.interrupted(session, seq),
            Action::Place { location } => self.change_place(location),
            Action::Trouble => self.trouble(),
            Action::Restart { worker } => self.restart(worker),
            Action::Quiet => self.quieten(),
        }
    }

    fn poll(&mut self, worker: usize, incarnation: u64, id: u64) {
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
            // It was told of something sooner, and has another time by now.
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
            Exit::Closed(Closed::Ended(_)) | Exit::Idle => {}
            Exit::Closed(Closed::HandedOver | Closed::Yielded) => {
                let said =
                    head.handed_over || drain.claim().is_some_and(|claim| head.claim > claim + 1);
                if !said {
                    self.fail("R: a hand-over that the head does not know of".into());
                }
            }
            Exit::Superseded => {
                self.workers[worker].held.remove(&head.location);
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

    fn die(&mut self, worker: usize) {
        let host = &mut self.workers[worker];
        host.alive = false;
        host.drains.clear();
        host.cache.clear();
        host.held.clear();
        self.after(100, 2_500, Action::Restart { worker });
    }

    fn restart(&mut self, worker: usize) {
        let host = &mut self.workers[worker];
        if host.alive {
            return;
        }
        host.alive = true;
        host.incarnation += 1;
        host.paused_until = 0;
        host.stopping = false;
        let incarnation = host.incarnation;
        self.at(self.now, Action::Sweep { worker, incarnation });
    }

    /// A worker's heartbeat and its look at what it has.
    fn sweep(&mut self, worker: usize, incarnation: u64) {
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
            // It has ended in good order; another process takes its place.
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
        let mut woken = Vec::new();
        for drain in self.workers[worker].drains.values_mut() {
            let head = self.store.sessions[drain.session].head;
            drain.fenced |= drain.claim().is_some_and(|claim| head.claim > claim + 1);
            if drain.claim().is_some() {
                drain.hinted = drain.hinted.max(Seq(head.interrupt_seq));
            }
            if drain.fenced {
                drain.next_poll = now;
                woken.push(drain.id);
            }
        }
        for drain in woken {
            self.at(now, Action::Poll { worker, incarnation, drain });
        }
        self.at(now + SWEEP, Action::Sweep { worker, incarnation });
    }

    /// What placement says that a worker has.
    fn leases(&mut self, worker: usize) {
        for location in 0..LOCATIONS {
            let token = match self.assigned[location] {
                Some(assigned) if assigned.worker == worker => assigned.token,
                _ => {
                    self.workers[worker].held.remove(&location);
                    continue;
                }
            };
            let held = self.workers[worker].held.get(&location).map(|held| held.0);
            if held != Some(token) && !self.store.raise_fence(location, token) {
                continue;
            }
            if held != Some(token) {
                self.trace.count(token);
                self.end_tools(location, worker);
            }
            self.workers[worker].held.insert(location, (token, self.now + LEASE));
        }
    }

    /// A new holder ends the tools of those before it.
    fn end_tools(&mut self, location: usize, holder: usize) {
        for (worker, host) in
            self.workers.iter_mut().enumerate().filter(|(worker, _)| *worker != holder)
        {
            debug_assert_ne!(worker, holder);
            for drain in host.drains.values_mut() {
                if self.store.sessions[drain.session].head.location == location {
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
        host.drains.insert(id, Drain::new(id, worker, session, token, known, EPOCH + now));
        let incarnation = host.incarnation;
        if let Some(drain) = self.workers[worker].drains.get_mut(&id) {
            drain.next_poll = now;
        }
        self.at(now, Action::Poll { worker, incarnation, drain: id });
    }

    fn place_all(&mut self) {
        for location in 0..LOCATIONS {
            let now = self.now;
            let silent = |assigned: &Assigned| now - self.heard[assigned.worker] > LEASE;
            let gone = self.assigned[location].as_ref().is_none_or(silent);
            if gone && !self.store.ready_at(location).is_empty() {
                self.assign(location);
            }
        }
        self.at(self.now + SWEEP, Action::Placement);
    }

    fn assign(&mut self, location: usize) {
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

    // ── Gateways ────────────────────────────────────────────────────────────────────────────────

    fn client(&mut self) {
        if self.quiet {
            return;
        }
        self.after(100, 1_600, Action::Client);
        let session = self.rng.index(SESSIONS);
        let now = EPOCH + self.now;
        let mut mint = IdMint::seeded(self.mint.last(), now, self.scheduled);
        match self.rng.below(100) {
            0..=64 => {
                let prompt = self.prompt(&mut mint);
                self.mint.raise(mint.last());
                self.admit(session, prompt);
            }
            65..=69 => self.ask_again(),
            70..=84 => {
                if let crate::store::Interrupted::Applied(seq) =
                    self.store.interrupt(session, &mut mint, now)
                {
                    self.mint.raise(mint.last());
                    self.hint(|| Action::Interrupt { session, seq });
                }
            }
            other => {
                let waits: Vec<_> = self.store.sessions[session]
                    .inputs
                    .iter()
                    .map(|input| input.id.clone())
                    .collect();
                if waits.is_empty() {
                    return;
                }
                let message = waits[self.rng.index(waits.len())].clone();
                if other < 92 {
                    self.store.cancel(session, &message, &mut mint, now);
                } else {
                    let delivery =
                        if self.rng.chance(60) { Delivery::Steer } else { Delivery::Queue };
                    self.store.change(session, &message, delivery, &mut mint, now);
                    self.hint(|| Action::Wake { session });
                }
                self.mint.raise(mint.last());
            }
        }
    }

    fn prompt(&mut self, mint: &mut IdMint) -> PromptAdmitted {
        let text = format!("do thing {}", self.rng.below(1_000));
        let unknown = ModelRef { provider: "nobody".into(), model: "none".into() };
        let known = self.facts.models.default.clone();
        let model = match self.rng.below(100) {
            0..=3 => Some(unknown),
            4..=30 => Some(known),
            _ => None,
        };
        PromptAdmitted {
            message: MessageId::mint(mint),
            delivery: if self.rng.chance(55) { Delivery::Steer } else { Delivery::Queue },
            parts: vec![PromptPart::Text { id: PartId::mint(mint), text: text.clone() }],
            agent: None,
            model,
            wake: !self.rng.chance(12),
            digest: hash_hex(text.as_bytes()),
            synthetic: None,
        }
    }

    fn admit(&mut self, session: usize, prompt: PromptAdmitted) {
        let now = EPOCH + self.now;
        if self.is(ShellMutant::AckBeforeCommit) && self.rng.chance(20) {
            // The gateway has answered, and dies before its statement is sent.
            self.acknowledged.push((session, prompt));
            return;
        }
        let mut mint = IdMint::seeded(self.mint.last(), now, self.scheduled ^ 0x5555);
        let admitted = self.store.admit(session, &prompt, &mut mint, now);
        self.mint.raise(mint.last());
        if let Admission::Conflict = admitted {
            self.fail(format!("I1: {} is new and conflicts", prompt.message));
        }
        if self.rng.chance(8) {
            self.faults.note(Fault::AdmissionRetried);
            return self.after(20, 900, Action::Retry { session, prompt: Box::new(prompt) });
        }
        if prompt.wake {
            self.hint(|| Action::Wake { session });
        }
        self.acknowledged.push((session, prompt));
    }

    /// The same again: the client has had no answer.
    fn retry(&mut self, session: usize, prompt: &PromptAdmitted) {
        let now = EPOCH + self.now;
        let mut mint = IdMint::seeded(self.mint.last(), now, self.scheduled ^ 0xaaaa);
        let admitted = self.store.admit(session, prompt, &mut mint, now);
        self.mint.raise(mint.last());
        if !matches!(admitted, Admission::Retry(_)) {
            self.fail(format!("I1: an exact retry of {} gave {admitted:?}", prompt.message));
        }
        self.acknowledged.push((session, prompt.clone()));
        self.hint(|| Action::Wake { session });
    }

    /// An id that was used before, with another text or at another session: it must be refused.
    fn ask_again(&mut self) {
        if self.acknowledged.is_empty() {
            return;
        }
        let (session, mut prompt) =
            self.acknowledged[self.rng.index(self.acknowledged.len())].clone();
        let session = if self.rng.chance(50) { (session + 1) % SESSIONS } else { session };
        prompt.digest = hash_hex(b"another");
        let now = EPOCH + self.now;
        let mut mint = IdMint::seeded(self.mint.last(), now, self.scheduled ^ 0x3333);
        let admitted = self.store.admit(session, &prompt, &mut mint, now);
        self.mint.raise(mint.last());
        let lost = self.is(ShellMutant::AckBeforeCommit);
        if admitted != Admission::Conflict && !lost {
            self.fail(format!(
                "I1: another prompt under the id {} gave {admitted:?}",
                prompt.message
            ));
        }
    }

    /// A hint, which may be lost, late or double.
    fn hint(&mut self, action: impl Fn() -> Action) {
        if self.quiet {
            return self.after(1, 10, action());
        }
        match self.rng.below(100) {
            0..=14 => self.faults.note(Fault::HintDropped),
            15..=24 => {
                self.faults.note(Fault::HintDuplicated);
                self.after(1, 10, action());
                self.after(1, 400, action());
            }
            25..=39 => {
                self.faults.note(Fault::HintDelayed);
                self.after(300, 3_000, action());
            }
            _ => self.after(1, 15, action()),
        }
    }

    /// A wake comes to the holder, by placement's word.
    fn wake(&mut self, session: usize) {
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

    fn interrupted(&mut self, session: usize, seq: i64) {
        let now = self.now;
        let mut told = Vec::new();
        for (worker, host) in self.workers.iter_mut().enumerate() {
            let incarnation = host.incarnation;
            for drain in host.drains.values_mut().filter(|drain| drain.session == session) {
                if drain.claim().is_some() {
                    drain.hinted = drain.hinted.max(Seq(seq));
                    told.push((worker, incarnation, drain.id));
                }
            }
        }
        for (worker, incarnation, drain) in told {
            self.at(now, Action::Poll { worker, incarnation, drain });
        }
    }

    // ── Trouble ─────────────────────────────────────────────────────────────────────────────────

    fn change_place(&mut self, location: usize) {
        if self.quiet {
            return;
        }
        let place = &mut self.places[location];
        match self.rng.below(10) {
            0..=5 => place.branch = self.rng.below(3),
            6..=7 => {
                place.unavailable = !place.unavailable;
                if place.unavailable {
                    self.faults.note(Fault::SourceUnavailable);
                }
            }
            _ => {
                place.missing = !place.missing;
                if place.missing {
                    self.faults.note(Fault::WorkspaceMissing);
                }
            }
        }
        // What is missing comes back soon, or nothing would ever happen.
        let (low, high) = if self.places[location].missing { (50, 300) } else { (200, 1_500) };
        if self.places[location].missing && self.rng.chance(70) {
            self.places[location].missing = self.rng.chance(50);
        }
        self.after(low, high, Action::Place { location });
    }

    fn trouble(&mut self) {
        if self.quiet {
            return;
        }
        self.after(150, 1_500, Action::Trouble);
        let worker = self.rng.index(WORKERS);
        match self.rng.below(100) {
            0..=19 => {
                if self.workers[worker].alive {
                    self.faults.note(Fault::Death);
                    self.die(worker);
                }
            }
            20..=39 => {
                self.faults.note(Fault::Pause);
                let until = self.now + self.range(200, 5_000);
                self.workers[worker].paused_until = until;
            }
            40..=54 => {
                self.faults.note(Fault::Partition);
                let until = self.now + self.range(1_000, 6_000);
                self.workers[worker].cut_off_until = until;
            }
            55..=74 => {
                self.faults.note(Fault::TokenRace);
                let location = self.rng.index(LOCATIONS);
                self.assign(location);
            }
            75..=84 => {
                self.faults.note(Fault::Stop);
                self.workers[worker].stopping = true;
            }
            85..=89 => {
                self.faults.note(Fault::ClockJump);
                self.workers[worker].skew = self.range(0, 7_200_000) - 3_600_000;
            }
            _ => self.workers[worker].crowded = !self.workers[worker].crowded,
        }
    }

    /// Faults stop.
    fn quieten(&mut self) {
        self.quiet = true;
        for place in &mut self.places {
            place.unavailable = false;
            place.missing = false;
        }
        for worker in 0..WORKERS {
            let host = &mut self.workers[worker];
            host.paused_until = 0;
            host.cut_off_until = 0;
            host.crowded = false;
            if !host.alive {
                self.at(self.now, Action::Restart { worker });
            }
        }
    }
}

fn facts(mint: &mut IdMint) -> Facts {
    let locations: Vec<LocationId> = (0..LOCATIONS).map(|_| LocationId::mint(mint)).collect();
    let session = |index: usize| SessionRef {
        org: OrgId::FIRST,
        location: locations[index % LOCATIONS].clone(),
        session: SessionId::mint(mint),
    };
    let sessions = (0..SESSIONS).map(session).collect();
    let default = ModelRef { provider: "simulated".into(), model: "simulated".into() };
    let classes = [ToolClass::Pure, ToolClass::Keyed, ToolClass::Probe, ToolClass::Unsafe];
    let definition = |name: &&str| ToolDefinition {
        name: (*name).to_owned(),
        description: format!("Does {name}."),
        input_schema: RawJson::parse("{\"type\":\"object\"}".to_owned()).expect("JSON"),
    };
    Facts {
        settings: RuleSettings {
            agents: Agents::of(Agent {
                name: "build".into(),
                description: "Works.".into(),
                instructions: "You work.".into(),
                tools: Permitted::All,
                skills: Permitted::All,
                steps: None,
            }),
            max_steps: 5,
            retry: Schedule {
                base: std::time::Duration::from_millis(40),
                max_retries: 3,
                max_retry_after: std::time::Duration::from_millis(400),
            },
            max_recoveries: MAX_RECOVERIES,
            max_bodies: MAX_BODIES,
            compaction: CompactionSettings { auto: false, ..CompactionSettings::default() },
            titles: false,
        },
        models: Models {
            providers: BTreeSet::from([default.provider.clone()]),
            default,
            known: Vec::new(),
        },
        tools: ToolFacts {
            definitions: TOOLS.iter().map(definition).collect(),
            classes: TOOLS.iter().map(|tool| (*tool).to_owned()).zip(classes).collect(),
        },
        sessions,
        missing: SessionError {
            code: "workspace.unavailable".into(),
            message: "the files are elsewhere".into(),
        },
    }
}
