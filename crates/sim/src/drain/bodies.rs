//! Calls that run, and the ways to wait for them or stop them.

use domain::{CallId, ToolClass, ToolIntent, ToolOutcomeKind, ToolState};
use session_rules::{Recovery, settled_as, unclear};

use super::decide::Op;
use super::{Body, Drain, Flow, Phase, Then, Turn};
use crate::fault::Fault;
use crate::mutant::ShellMutant;
use crate::world::World;

pub(super) const RESULT_DELAY: i64 = 100;
const STOP_TOOLS: i64 = 80;

impl Drain {
    pub(super) fn recover(&mut self, recovery: Recovery, world: &mut World) -> Flow {
        let Recovery { said, run, probe, outcome } = recovery;
        let id = said.turn.clone();
        self.turn = Some(Turn { touched: true, ..Turn::of(said, None) });
        self.start(run, world);
        let mut again = Vec::new();
        let now = world.clock(self.worker);
        for (intent, body) in probe {
            let call = intent.call.clone();
            let had_effect = world.had_effect(self.at, self.worker, &id, &intent);
            let found = match (had_effect, world.rng.chance(10)) {
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
            return self.enter(settle, world);
        }
        self.resume = Some(settle);
        self.write(Op::StartAgain(again), world)
    }

    pub(super) fn start_intended(&mut self, world: &mut World) {
        let Some(turn) = &mut self.turn else { return };
        turn.intend_at = None;
        let mut intents = std::mem::take(&mut turn.said.unintended);
        let open = self.history.open_turn();
        intents.retain(|intent| {
            let call = open.and_then(|open| open.call(&intent.call));
            call.is_none_or(|call| call.state == ToolState::Started)
        });
        if !world.is(ShellMutant::BodyBeforeIntent) {
            self.start(intents, world);
        }
    }

    /// Whether calls of the open turn wait for answers, or for the write that follows them.
    fn has_asked(&self) -> bool {
        let open = self.history.open_turn();
        open.is_some_and(|open| open.calls.iter().any(|(_, call)| call.state == ToolState::Asked))
    }

    pub(super) fn start(&mut self, intents: Vec<ToolIntent>, world: &mut World) {
        for intent in intents {
            if !world.holds(self.at, self.token) {
                // Another worker took the Location's lock while Postgres did not answer: nothing can start.
                let (now, why) = (world.clock(self.worker), "the workspace is not available");
                if let Some(turn) = &mut self.turn {
                    let (id, call) = (turn.said.turn.clone(), intent.call);
                    let gone = settled_as(id, call, ToolOutcomeKind::Failed, why, now);
                    turn.finished(gone, world.now);
                }
                continue;
            }
            if let Some(turn) = &mut self.turn {
                turn.touched |= world.class(&intent.tool) != ToolClass::Pure;
                let (whose, id) = ((self.session, self.history.incarnation()), &turn.said.turn);
                world.body_started(whose, self.worker, id, &intent);
            }
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

    /// Advances the bodies to the present. True if one of them has had its effect or its end.
    pub(super) fn run_bodies(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let whose = self.whose();
        let Some(turn) = &mut self.turn else { return false };
        let mut some = false;
        for body in turn.bodies.iter_mut().filter(|body| body.effect_at.is_some_and(|at| at <= now))
        {
            body.effect_at = None;
            some = true;
            if !body.fails {
                let changes = world.class(&body.intent.tool) != ToolClass::Pure;
                turn.touched |= changes;
                world.effect(whose, self.at, &body.intent.call, changes);
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
            let output = if world.rng.chance(4) {
                world.faults.note(Fault::LargeResult);
                format!("done{}", " x".repeat(3_000))
            } else {
                "done".to_owned()
            };
            let done = settled_as(turn.said.turn.clone(), call, outcome, &output, body.started);
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
    pub(super) fn due(&self, world: &World, more: [Option<i64>; 3]) -> Flow {
        let Some(turn) = &self.turn else { return Flow::Poll(world.now) };
        let bodies = turn.bodies.iter().flat_map(|body| [body.effect_at, Some(body.ends_at)]);
        let next = bodies
            .chain([turn.commit_at, self.title.next(), self.files.next()])
            .chain(more)
            .flatten()
            .min();
        // Without anything due, only the worker's sweep or a hint goes on.
        Flow::Poll(next.unwrap_or(world.now + 250).max(world.now))
    }

    pub(super) fn wait(&mut self, pause: i64, then: Then, world: &World) -> Flow {
        let pause = (pause > 0).then_some(world.now + pause);
        self.enter(Phase::Bodies { pause, then }, world)
    }

    pub(super) fn bodies(&mut self, pause: Option<i64>, then: Then, world: &mut World) -> Flow {
        if self.is_interrupted(world) {
            return self.interrupt(world);
        }
        self.title.advance(world.now);
        self.advance_files(world);
        if self.run_bodies(world) {
            return self.enter(Phase::Bodies { pause, then }, world);
        }
        let waits = self.turn.as_ref().is_some_and(|turn| !turn.bodies.is_empty());
        let pause = pause.filter(|at| *at > world.now);
        if waits || pause.is_some() {
            let results = self.due_results(world);
            let phase = Phase::Bodies { pause, then };
            let head = world.store.sessions[self.session].head;
            if self.has_asked() && head.next_seq > self.history.seq().0 + 1 {
                self.resume = Some(phase);
                return self.write(Op::Leave, world);
            }
            if results {
                self.resume = Some(phase);
                return self.write(Op::Results, world);
            }
            self.phase = phase;
            return self.due(world, [pause, None, None]);
        }
        match then {
            Then::Settle(outcome) if self.has_asked() => self.write(Op::Answered(outcome), world),
            Then::Settle(outcome) => {
                let observed = self.observe(world);
                self.write(Op::Settled(outcome, observed), world)
            }
            Then::Fail(error) => self.write(Op::Failed(error), world),
            Then::Stream => self.enter(Phase::Streaming, world),
        }
    }

    pub(super) fn interrupt(&mut self, world: &mut World) -> Flow {
        if self.turn.as_ref().is_some_and(|turn| turn.beside) {
            return self.write(Op::CompactionCancelled, world);
        }
        if let Some(turn) = &mut self.turn {
            for body in &mut turn.bodies {
                body.cancelled = true;
                body.ends_at = body.ends_at.min(world.now + world.range(0, 120));
                body.effect_at = body.effect_at.filter(|at| *at <= body.ends_at);
            }
        }
        self.enter(Phase::Stopping { deadline: world.now + STOP_TOOLS }, world)
    }

    pub(super) fn stopping(&mut self, deadline: i64, world: &mut World) -> Flow {
        if self.run_bodies(world) {
            return self.enter(Phase::Stopping { deadline }, world);
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
