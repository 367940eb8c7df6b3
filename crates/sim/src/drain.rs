//! A Session Drain's shell without its I/O: the same decisions as in `session`, each await of it one step.
//!
//! Long because it is the counterpart of four files of `session` (drain, log, turn, ending), and is read beside
//! them from top to bottom.

use std::time::Duration;

use domain::{
    AttemptStarted, CallId, IdMint, PartId, Seq, SessionError, Stamp, Taken, ToolIntent,
    ToolOutcomeKind, ToolSettled, TurnOutcome,
};
use history::{History, Mark};
use llm_protocol::{ErrorReason, Usage};
use session_rules::Site;
use session_rules::{
    Closed, Draft, Drafted, Heard, Next, Observation, Recovery, Replied, Rules, Said, TurnPlan,
    Verdict, settled_as, unclear,
};

use crate::fault::{Fault, When};
use crate::mutant::ShellMutant;
use crate::provider::{Frame, Stream};
use crate::store::{Append, Basis, Look, Written};
use crate::world::World;

const INTENT_DELAY: i64 = 30;
const RESULT_DELAY: i64 = 100;
const CHECKPOINT_EVERY: i64 = 120;
const CHECKPOINT_BYTES: usize = 64;
const STOP_TOOLS: i64 = 80;

/// How a drain ended for its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Idle,
    Closed(Closed),
    Fenced,
    Superseded,
    Failed,
}

/// What a step came to.
pub(crate) enum Flow {
    /// The next one is at this time.
    Poll(i64),
    Exit(Exit),
    /// The worker died.
    Died,
}

/// A body that runs.
#[derive(Debug, Clone)]
struct Body {
    intent: ToolIntent,
    /// When it has its effect, until it has had it.
    effect_at: Option<i64>,
    started: i64,
    ends_at: i64,
    fails: bool,
    cancelled: bool,
}

/// The open turn.
struct Turn {
    plan: Option<Box<TurnPlan>>,
    said: Said,
    stream: Option<Stream>,
    bodies: Vec<Body>,
    intend_at: Option<i64>,
    checkpoint_at: Option<i64>,
    commit_at: Option<i64>,
}

impl Turn {
    fn of(said: Said, plan: Option<Box<TurnPlan>>) -> Self {
        Self {
            plan,
            said,
            stream: None,
            bodies: Vec::new(),
            intend_at: None,
            checkpoint_at: None,
            commit_at: None,
        }
    }

    fn finished(&mut self, done: ToolSettled, now: i64) {
        self.said.done.push(done);
        self.commit_at.get_or_insert(now + RESULT_DELAY);
    }
}

/// What is being written.
enum Op {
    Open(Taken, Observation),
    Replied(Observation),
    Settled(TurnOutcome, Observation),
    Interrupted,
    Failed(SessionError),
    Cut(SessionError, i64),
    Retry(Option<Usage>, SessionError, i64),
    Intents,
    Results,
    Checkpoint(Vec<(PartId, usize, String)>),
    StartAgain(Vec<(ToolIntent, i32)>),
}

enum Decided {
    Next(Next),
    Replied(Replied),
    Settled(Option<Next>),
    Intents(bool),
    Attempt(AttemptStarted),
    Done,
}

/// A decision that is on its way to the store.
struct Pending {
    op: Op,
    basis: Basis,
    mark: Mark,
    drafted: Drafted,
    decided: Decided,
    end: domain::DrainEnd,
    site: Site,
}

enum Phase {
    Look {
        locked: bool,
    },
    Writing(Box<Pending>),
    /// The head is to be locked, then decided on again.
    Locked(Op),
    Streaming,
    Bodies {
        pause: Option<i64>,
        then: Then,
    },
    Stopping {
        deadline: i64,
    },
    /// Between two phases.
    Moving,
}

enum Then {
    Settle(TurnOutcome),
    Fail(SessionError),
    Stream,
}

/// A drain that runs.
pub(crate) struct Drain {
    pub(crate) id: u64,
    pub(crate) worker: usize,
    pub(crate) session: usize,
    pub(crate) next_poll: i64,
    /// The worker's sweep has seen a higher claim.
    pub(crate) fenced: bool,
    /// The newest interrupt that it was told of.
    pub(crate) hinted: Seq,
    token: i64,
    claim: Option<i64>,
    pub(crate) history: History,
    mint: IdMint,
    seed: u64,
    basis: Option<Basis>,
    observed: Option<Observation>,
    interrupts_before: Seq,
    phase: Phase,
    resume: Option<Phase>,
    turn: Option<Turn>,
}

impl Drain {
    pub(crate) fn new(
        id: u64,
        worker: usize,
        session: usize,
        token: i64,
        history: History,
        now: i64,
    ) -> Self {
        let seed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            id,
            worker,
            session,
            next_poll: now,
            fenced: false,
            hinted: Seq(0),
            token,
            claim: None,
            history,
            mint: IdMint::seeded(Stamp::default(), now, seed),
            seed,
            basis: None,
            observed: None,
            interrupts_before: Seq(0),
            phase: Phase::Look { locked: false },
            resume: None,
            turn: None,
        }
    }

    /// The claim that it holds; `None` before it has one.
    pub(crate) fn claim(&self) -> Option<i64> {
        self.claim
    }

    /// Its tools are gone: whoever has the Location now has ended them.
    pub(crate) fn kill_bodies(&mut self) {
        if let Some(turn) = &mut self.turn {
            for body in &mut turn.bodies {
                body.effect_at = None;
                body.fails = true;
            }
        }
    }

    /// Does what is next.
    pub(crate) fn step(&mut self, world: &mut World) -> Flow {
        if self.fenced && self.claim.is_some() {
            return Flow::Exit(Exit::Fenced);
        }
        match std::mem::replace(&mut self.phase, Phase::Moving) {
            Phase::Look { locked } => self.look(locked, world),
            Phase::Writing(pending) => self.commit(*pending, world),
            Phase::Locked(op) => self.decide_locked(op, world),
            Phase::Streaming => self.stream(world),
            Phase::Bodies { pause, then } => self.bodies(pause, then, world),
            Phase::Stopping { deadline } => self.stopping(deadline, world),
            Phase::Moving => unreachable!("a step leaves a phase behind"),
        }
    }

    fn rules<'w>(&self, world: &'w World) -> Rules<'w> {
        world.rules(self.session, self.worker, self.interrupts_before)
    }

    fn is_interrupted(&self, world: &World) -> bool {
        self.hinted > self.interrupts_before || self.rules(world).is_interrupted(&self.history)
    }

    // ── Writes ──────────────────────────────────────────────────────────────────────────────────

    fn look(&mut self, locked: bool, world: &mut World) -> Flow {
        match world.store.look(self.session, self.token, self.history.seq()) {
            Look::Superseded => Flow::Exit(Exit::Superseded),
            Look::Idle => Flow::Exit(Exit::Idle),
            Look::Ready(basis, taken, events) => {
                self.history.extend(events.iter());
                self.interrupts_before =
                    Rules::interrupts_before(&self.history, taken, Seq(basis.interrupt_seq));
                let observed = match self.observed.take() {
                    Some(observed) => observed,
                    None => world.observe(self.session, self.worker, &self.history),
                };
                self.observed = Some(observed.clone());
                self.decide(Op::Open(taken, observed), basis, locked, world)
            }
        }
    }

    /// Decides on what is known of the log, if it is known.
    fn write(&mut self, op: Op, world: &mut World) -> Flow {
        if world.is(ShellMutant::BodyBeforeIntent) && matches!(op, Op::Intents) {
            let intents = self.turn.as_ref().map(|turn| turn.said.unintended.clone());
            self.start(intents.unwrap_or_default(), world);
        }
        match self.basis.take() {
            Some(basis) => self.decide(op, basis, false, world),
            None => {
                self.phase = Phase::Locked(op);
                Flow::Poll(world.now + world.latency())
            }
        }
    }

    fn decide_locked(&mut self, op: Op, world: &mut World) -> Flow {
        let claim = self.claim.unwrap_or(0);
        let Some((basis, events)) = world.store.prove(self.session, claim, self.history.seq())
        else {
            return Flow::Exit(Exit::Fenced);
        };
        self.history.extend(events.iter());
        self.decide(op, basis, true, world)
    }

    fn decide(&mut self, op: Op, basis: Basis, locked: bool, world: &mut World) -> Flow {
        let now = world.clock(self.worker);
        self.mint.raise(basis.last_id);
        let mark = self.history.mark();
        let rules = self.rules(world);
        let mint = IdMint::seeded(self.mint.last(), now, self.seed);
        let mut draft = Draft::new(&mut self.history, mint, now);
        let verdict = decided(&rules, &mut draft, &op, self.turn.as_ref());
        let drafted = draft.finish();
        match verdict {
            Verdict::Leave(decided) => {
                self.history.back_to(mark);
                self.basis = Some(basis);
                self.after(op, decided, world)
            }
            Verdict::Write(decided, end, site) => {
                let pending = Pending { op, basis, mark, drafted, decided, end, site };
                if locked {
                    return self.commit(pending, world);
                }
                self.phase = Phase::Writing(Box::new(pending));
                Flow::Poll(world.now + world.latency())
            }
        }
    }

    fn commit(&mut self, pending: Pending, world: &mut World) -> Flow {
        let Pending { op, basis, mark, mut drafted, decided, end, site } = pending;
        let crash = world.crash(site);
        if crash == Some(When::Before) {
            return Flow::Died;
        }
        if world.is(ShellMutant::RequestBeforeCommit)
            && let Decided::Next(Next::Turn(plan)) = &decided
        {
            world.request(self.session, &plan.started, &plan.body);
        }
        let head = world.store.sessions[self.session].head;
        if basis.claim() < head.claim && basis.starts.is_none() {
            world.faults.note(Fault::ZombieWrite);
        }
        let append = Append {
            events: &drafted.events,
            promoted: drafted.promoted,
            progress: drafted.progress,
            end,
        };
        let now = world.clock(self.worker);
        let written = world.store.write(self.session, basis, &append, &mut drafted.mint, now);
        world.trace.add(site.name());
        if let Written::Next(_) = written {
            world.written(self.session, self.id, basis, drafted.events.len());
        }
        match crash {
            Some(When::After) => return Flow::Died,
            Some(When::AnswerLost) => {
                if world.is(ShellMutant::LostAnswerWrittenAgain)
                    && let Some((basis, _)) =
                        world.store.prove(self.session, basis.claim(), self.history.seq())
                {
                    world.store.write(self.session, basis, &append, &mut drafted.mint, now);
                    world.written(self.session, self.id, basis, drafted.events.len());
                }
                return Flow::Exit(Exit::Failed);
            }
            Some(When::Before) | None => {}
        }
        match written {
            Written::Next(next) => {
                self.mint.raise(drafted.mint.last());
                self.claim = Some(basis.claim());
                self.basis = Some(next);
                self.after(op, decided, world)
            }
            Written::Stale => {
                world.faults.note(Fault::StaleLook);
                if !world.is(ShellMutant::StaleDraftKept) {
                    self.history.back_to(mark);
                }
                self.phase = if matches!(op, Op::Open(..)) {
                    Phase::Look { locked: true }
                } else {
                    Phase::Locked(op)
                };
                Flow::Poll(world.now + world.latency())
            }
            Written::Fenced if world.is(ShellMutant::GoesOnWhenFenced) => {
                self.after(op, decided, world)
            }
            Written::Fenced => Flow::Exit(Exit::Fenced),
            Written::Superseded => Flow::Exit(Exit::Superseded),
        }
    }

    fn after(&mut self, op: Op, decided: Decided, world: &mut World) -> Flow {
        match (op, decided) {
            (_, Decided::Next(next) | Decided::Settled(Some(next))) => self.follow(next, world),
            (_, Decided::Settled(None) | Decided::Replied(Replied::Interrupted)) => {
                self.interrupt(world)
            }
            (_, Decided::Replied(Replied::LookFirst)) => {
                let observed = world.observe(self.session, self.worker, &self.history);
                self.write(Op::Replied(observed), world)
            }
            (_, Decided::Replied(Replied::Refused(error))) => {
                self.wait(0, Then::Fail(error), world)
            }
            (_, Decided::Replied(Replied::Crossed(next))) => self.follow(next, world),
            (_, Decided::Replied(Replied::Calls)) => {
                self.start_intended(world);
                self.wait(0, Then::Settle(TurnOutcome::Completed), world)
            }
            (_, Decided::Intents(started)) => {
                if started {
                    self.start_intended(world);
                }
                self.resume(world)
            }
            (Op::Retry(_, _, delay), Decided::Attempt(next)) => {
                if let Some(turn) = &mut self.turn {
                    turn.stream = None;
                    if let Some(plan) = &mut turn.plan {
                        plan.started = next;
                    }
                }
                self.wait(delay, Then::Stream, world)
            }
            (Op::Cut(_, delay), _) => {
                if let Some(turn) = &mut self.turn {
                    turn.said.unintended.clear();
                    turn.intend_at = None;
                }
                self.wait(delay, Then::Settle(TurnOutcome::Cut), world)
            }
            (Op::Results, _) => {
                if let Some(turn) = &mut self.turn {
                    turn.commit_at = None;
                    turn.said.done.clear();
                }
                self.resume(world)
            }
            (Op::StartAgain(calls), _) => {
                self.start(calls.into_iter().map(|(intent, _)| intent).collect(), world);
                self.resume(world)
            }
            (_, Decided::Done | Decided::Attempt(_)) => self.resume(world),
        }
    }

    fn resume(&mut self, world: &World) -> Flow {
        self.phase = self.resume.take().unwrap_or(Phase::Streaming);
        Flow::Poll(world.now)
    }

    fn follow(&mut self, next: Next, world: &mut World) -> Flow {
        match next {
            Next::End(closed) => Flow::Exit(Exit::Closed(closed)),
            Next::Turn(plan) => {
                let said = Said::new(plan.turn.clone(), plan.message.clone());
                self.turn = Some(Turn::of(said, Some(plan)));
                self.phase = Phase::Streaming;
                Flow::Poll(world.now)
            }
            Next::Recover(recovery) => self.recover(*recovery, world),
            // Its settings and its clients ask for none of these.
            Next::Compact(_)
            | Next::Title
            | Next::Files(_)
            | Next::Move(_)
            | Next::Moved(_) => {
                world.fail("something that nothing asked for".into());
                Flow::Exit(Exit::Failed)
            }
        }
    }

    fn recover(&mut self, recovery: Recovery, world: &mut World) -> Flow {
        let Recovery { said, run, probe, outcome } = recovery;
        let id = said.turn.clone();
        self.turn = Some(Turn::of(said, None));
        self.start(run, world);
        let mut again = Vec::new();
        let now = world.clock(self.worker);
        for (intent, body) in probe {
            let call = intent.call.clone();
            let found = match (world.had_effect(&call), world.rng.chance(10)) {
                (_, true) => Some(unclear(id.clone(), call, now)),
                (true, false) => Some(settled_as(
                    id.clone(),
                    call,
                    ToolOutcomeKind::Completed,
                    "it was done",
                    now,
                )),
                (false, false) => None,
            };
            match (found, &mut self.turn) {
                (Some(settled), Some(turn)) => turn.finished(settled, world.now),
                _ => again.push((intent, body)),
            }
        }
        let settle = Phase::Bodies { pause: None, then: Then::Settle(outcome) };
        if again.is_empty() {
            self.phase = settle;
            return Flow::Poll(world.now);
        }
        self.resume = Some(settle);
        self.write(Op::StartAgain(again), world)
    }

    // ── The stream and the bodies ───────────────────────────────────────────────────────────────

    fn start_intended(&mut self, world: &mut World) {
        let Some(turn) = &mut self.turn else { return };
        turn.intend_at = None;
        let intents = std::mem::take(&mut turn.said.unintended);
        if !world.is(ShellMutant::BodyBeforeIntent) {
            self.start(intents, world);
        }
    }

    fn start(&mut self, intents: Vec<ToolIntent>, world: &mut World) {
        for intent in intents {
            if !world.holds(self.session, self.token) {
                continue; // the Location's lock is another's: nothing can be started
            }
            world.body_started(self.session, &intent.call);
            let now = world.now;
            let longest = if world.rng.chance(20) { 600 } else { 60 };
            let ends_at = now + world.range(0, longest);
            let effect_at = Some(now + world.range(0, u64::try_from(ends_at - now).unwrap_or(0)));
            let fails = world.rng.chance(10);
            let body = Body { intent, effect_at, started: now, ends_at, fails, cancelled: false };
            if let Some(turn) = &mut self.turn {
                turn.bodies.push(body);
            }
        }
    }

    /// What bodies have come to by now. True if something has.
    fn run_bodies(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let Some(turn) = &mut self.turn else { return false };
        let mut some = false;
        for body in turn.bodies.iter_mut().filter(|body| body.effect_at.is_some_and(|at| at <= now))
        {
            body.effect_at = None;
            some = true;
            if !body.fails {
                world.effect(self.session, &body.intent.call);
            }
        }
        if let Some(index) = turn.bodies.iter().position(|body| body.ends_at <= now) {
            let body = turn.bodies.remove(index);
            let outcome = match (body.cancelled, body.fails) {
                (true, _) => ToolOutcomeKind::Interrupted,
                (false, true) => ToolOutcomeKind::Failed,
                (false, false) => ToolOutcomeKind::Completed,
            };
            let call: CallId = body.intent.call;
            let done = settled_as(turn.said.turn.clone(), call, outcome, "done", body.started);
            turn.finished(done, now);
            some = true;
        }
        some
    }

    /// Results that wait too long are written; the phase goes on after it.
    fn due_results(&self, world: &World) -> bool {
        self.turn.as_ref().and_then(|turn| turn.commit_at).is_some_and(|at| at <= world.now)
    }

    /// When the next thing is due: bodies, their results, and what the phase waits for besides.
    fn due(&self, world: &World, more: [Option<i64>; 3]) -> Flow {
        let Some(turn) = &self.turn else { return Flow::Poll(world.now) };
        let bodies = turn.bodies.iter().flat_map(|body| [body.effect_at, Some(body.ends_at)]);
        let next = bodies.chain([turn.commit_at]).chain(more).flatten().min();
        // Without anything due, only the worker's sweep or a hint goes on.
        Flow::Poll(next.unwrap_or(world.now + 250).max(world.now))
    }

    fn stream(&mut self, world: &mut World) -> Flow {
        if self.is_interrupted(world) {
            return self.interrupt(world);
        }
        let Some(turn) = &mut self.turn else { unreachable!("a stream has a turn") };
        if turn.stream.is_none() {
            let Some(plan) = &turn.plan else { unreachable!("a stream has a plan") };
            let stream = world.request(self.session, &plan.started, &plan.body);
            turn.stream = Some(stream);
            self.phase = Phase::Streaming;
            return self.due_frame(world);
        }
        if self.run_bodies(world) {
            self.phase = Phase::Streaming;
            return Flow::Poll(world.now);
        }
        let now = world.now;
        let Some(turn) = &mut self.turn else { unreachable!("a stream has a turn") };
        if turn.intend_at.is_some_and(|at| at <= now) {
            turn.intend_at = None;
            self.resume = Some(Phase::Streaming);
            return self.write(Op::Intents, world);
        }
        if turn.commit_at.is_some_and(|at| at <= now) {
            self.resume = Some(Phase::Streaming);
            return self.write(Op::Results, world);
        }
        if turn.checkpoint_at.is_some_and(|at| at <= now)
            || turn.said.reply.unkept() >= CHECKPOINT_BYTES
        {
            turn.checkpoint_at = None;
            let unkept = turn.said.reply.take_unkept();
            if !unkept.is_empty() {
                self.resume = Some(Phase::Streaming);
                return self.write(Op::Checkpoint(unkept), world);
            }
        }
        let last = world.is_last_step(self.session, self.worker, &self.history);
        let due = |stream: &mut Stream| {
            let is_due = stream.frames.front().is_some_and(|(at, _)| *at <= now);
            if is_due { stream.frames.pop_front() } else { None }
        };
        match turn.stream.as_mut().and_then(due) {
            None => {
                self.phase = Phase::Streaming;
                self.due_frame(world)
            }
            Some((_, Frame::Event(event))) => {
                let heard = turn.said.take(event, &mut self.mint);
                if let (Heard::Text(..) | Heard::Reasoning(..), Some(plan)) = (&heard, &turn.plan) {
                    world.show(&plan.started.attempt);
                }
                match heard {
                    Heard::Text(..) => {
                        turn.checkpoint_at.get_or_insert(now + CHECKPOINT_EVERY);
                    }
                    // The last allowed step's calls never run: their intents come with the reply.
                    Heard::Call if !last => {
                        turn.intend_at.get_or_insert(now + INTENT_DELAY);
                    }
                    Heard::Call | Heard::Reasoning(..) | Heard::Nothing => {}
                }
                self.phase = Phase::Streaming;
                self.due_frame(world)
            }
            Some((_, Frame::Whole)) => {
                // Behind most replies nothing waits that would be told of the context.
                self.write(Op::Replied(Observation::unseen()), world)
            }
            Some((_, Frame::Broken(reason))) => self.broken(reason, world),
        }
    }

    fn due_frame(&self, world: &World) -> Flow {
        let Some(turn) = &self.turn else { return Flow::Poll(world.now) };
        let frame = turn.stream.as_ref().and_then(|stream| stream.frames.front());
        self.due(world, [turn.intend_at, turn.checkpoint_at, frame.map(|(at, _)| *at)])
    }

    fn broken(&mut self, reason: ErrorReason, world: &mut World) -> Flow {
        let random = world.rng.draw();
        let failed = self.history.failures() + 1;
        let delay = world.facts.settings.retry.next_delay(failed, &reason, random);
        let delay = delay.map(milliseconds);
        let error = SessionError { code: reason.code().into(), message: reason.user_message() };
        let Some(turn) = &mut self.turn else { unreachable!("a stream has a turn") };
        let visible = turn.said.is_visible() && !world.is(ShellMutant::ReplayAfterOutput);
        match (visible, delay) {
            (_, None) => self.wait(0, Then::Fail(error), world),
            (true, Some(delay)) => self.write(Op::Cut(error, delay), world),
            (false, Some(delay)) => {
                turn.intend_at = None;
                let usage = turn.said.forget_attempt();
                self.write(Op::Retry(usage, error, delay), world)
            }
        }
    }

    fn wait(&mut self, pause: i64, then: Then, world: &World) -> Flow {
        let pause = (pause > 0).then_some(world.now + pause);
        self.phase = Phase::Bodies { pause, then };
        Flow::Poll(world.now)
    }

    fn bodies(&mut self, pause: Option<i64>, then: Then, world: &mut World) -> Flow {
        if self.is_interrupted(world) {
            return self.interrupt(world);
        }
        if self.run_bodies(world) {
            self.phase = Phase::Bodies { pause, then };
            return Flow::Poll(world.now);
        }
        let waits = self.turn.as_ref().is_some_and(|turn| !turn.bodies.is_empty());
        let pause = pause.filter(|at| *at > world.now);
        if waits || pause.is_some() {
            let results = self.due_results(world);
            let phase = Phase::Bodies { pause, then };
            if results {
                self.resume = Some(phase);
                return self.write(Op::Results, world);
            }
            self.phase = phase;
            return self.due(world, [pause, None, None]);
        }
        match then {
            Then::Settle(outcome) => {
                let observed = world.observe(self.session, self.worker, &self.history);
                self.write(Op::Settled(outcome, observed), world)
            }
            Then::Fail(error) => self.write(Op::Failed(error), world),
            Then::Stream => {
                self.phase = Phase::Streaming;
                Flow::Poll(world.now)
            }
        }
    }

    fn interrupt(&mut self, world: &mut World) -> Flow {
        if let Some(turn) = &mut self.turn {
            for body in &mut turn.bodies {
                body.cancelled = true;
                body.ends_at = body.ends_at.min(world.now + world.range(0, 120));
                body.effect_at = body.effect_at.filter(|at| *at <= body.ends_at);
            }
        }
        self.phase = Phase::Stopping { deadline: world.now + STOP_TOOLS };
        Flow::Poll(world.now)
    }

    fn stopping(&mut self, deadline: i64, world: &mut World) -> Flow {
        if self.run_bodies(world) {
            self.phase = Phase::Stopping { deadline };
            return Flow::Poll(world.now);
        }
        let next = self.turn.as_ref().and_then(|turn| {
            turn.bodies.iter().flat_map(|body| [body.effect_at, Some(body.ends_at)]).flatten().min()
        });
        match next {
            Some(next) if world.now < deadline => {
                self.phase = Phase::Stopping { deadline };
                Flow::Poll(next.min(deadline))
            }
            _ => {
                if let Some(turn) = &mut self.turn {
                    turn.bodies.clear();
                }
                self.write(Op::Interrupted, world)
            }
        }
    }
}

fn milliseconds(delay: Duration) -> i64 {
    i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)
}

/// The decision of an operation.
fn decided(
    rules: &Rules<'_>,
    draft: &mut Draft<'_>,
    op: &Op,
    turn: Option<&Turn>,
) -> Verdict<Decided> {
    if let Op::Open(taken, observed) = op {
        return rules.open(draft, *taken, observed).map(Decided::Next);
    }
    let Some(turn) = turn else { unreachable!("only an opening write has no turn") };
    let said = &turn.said;
    let plan = || turn.plan.as_deref().map(|plan| &plan.started);
    match op {
        Op::Open(..) => unreachable!("see above"),
        Op::Replied(observed) => {
            let attempt = &plan().unwrap_or_else(|| unreachable!("a reply has a plan")).attempt;
            rules.replied(draft, attempt, said, observed).map(Decided::Replied)
        }
        Op::Settled(outcome, observed) => {
            rules.settled(draft, said, *outcome, observed).map(Decided::Settled)
        }
        Op::Interrupted => rules.interrupted(draft, said).map(Decided::Next),
        Op::Failed(error) => {
            let attempt = &plan().unwrap_or_else(|| unreachable!("a failure has a plan")).attempt;
            rules.failed(draft, attempt, said, error).map(Decided::Next)
        }
        Op::Cut(error, _) => {
            let attempt = &plan().unwrap_or_else(|| unreachable!("a cut has a plan")).attempt;
            rules.cut(draft, attempt, said, error).map(|()| Decided::Done)
        }
        Op::Retry(usage, error, delay) => {
            let failed = plan().unwrap_or_else(|| unreachable!("a retry has a plan"));
            let wait = Duration::from_millis(delay.unsigned_abs());
            rules.retry(draft, failed, *usage, error, wait).map(Decided::Attempt)
        }
        Op::Intents => rules.intents(draft, said).map(Decided::Intents),
        Op::Results => rules.results(draft, said).map(|()| Decided::Done),
        Op::Checkpoint(unkept) => {
            rules.checkpoint(draft, &said.turn, unkept).map(|()| Decided::Done)
        }
        Op::StartAgain(calls) => {
            rules.start_again(draft, &said.turn, calls).map(|()| Decided::Done)
        }
    }
}
