//! The stream of a turn, or of a Compaction.

use domain::SessionError;
use llm_protocol::{ErrorReason, LlmEvent};
use session_rules::{Heard, Observation};

use super::decide::Op;
use super::files::Wanted;
use super::title::provider_error;
use super::{Drain, Flow, Phase, Then, Turn, milliseconds};
use crate::mutant::ShellMutant;
use crate::provider::{Frame, Purpose, Stream};
use crate::world::World;

const INTENT_DELAY: i64 = 30;
const CHECKPOINT_EVERY: i64 = 120;
const CHECKPOINT_BYTES: usize = 64;

impl Drain {
    pub(super) fn stream(&mut self, world: &mut World) -> Flow {
        if self.is_interrupted(world) {
            return self.interrupt(world);
        }
        self.title.advance(world.now);
        self.advance_files(world);
        let last = self.rules(world).is_last_step(&self.history);
        let whose = self.whose();
        let Some(turn) = &mut self.turn else { unreachable!("a stream has a turn") };
        if turn.stream.is_none() {
            let Some(plan) = &turn.plan else { unreachable!("a stream has a plan") };
            let purpose =
                if turn.beside { Purpose::Summary } else { Purpose::Turn { calls: !last } };
            world.offered(self.worker, &plan.started.turn);
            turn.stream = Some(world.request(whose, &plan.started, &plan.body, purpose));
            self.phase = Phase::Streaming;
            return self.due_frame(world);
        }
        if self.run_bodies(world) {
            return self.enter(Phase::Streaming, world);
        }
        if let Some(op) = self.due_write(world) {
            self.resume = Some(Phase::Streaming);
            return self.write(op, world);
        }
        let now = world.now;
        let Some(turn) = &mut self.turn else { unreachable!("a stream has a turn") };
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
                self.take(event, last, world);
                self.phase = Phase::Streaming;
                self.due_frame(world)
            }
            Some((_, Frame::Whole)) if turn.beside => {
                let observed = self.observe(world);
                self.write(Op::Summarised(observed), world)
            }
            Some((_, Frame::Whole)) if self.waits_for_capture(world) => {
                self.enter(Phase::Files(Wanted::Write(Op::Replied(Observation::unseen()))), world)
            }
            Some((_, Frame::Whole)) => {
                // After most replies no input waits, so no update of the context is due.
                self.write(Op::Replied(Observation::unseen()), world)
            }
            Some((_, Frame::Broken(reason))) => self.broken(&reason, world),
        }
    }

    /// Returns the write that is due while the stream goes on.
    fn due_write(&mut self, world: &World) -> Option<Op> {
        let now = world.now;
        let intends = self.turn.as_ref().and_then(|turn| turn.intend_at);
        let waits = intends.is_some_and(|at| at <= now) && self.waits_for_capture(world);
        let turn = self.turn.as_mut().filter(|turn| !turn.beside)?;
        if !waits && turn.intend_at.is_some_and(|at| at <= now) {
            turn.intend_at = None;
            return Some(Op::Intents);
        }
        if turn.commit_at.is_some_and(|at| at <= now) {
            return Some(Op::Results);
        }
        let kept = turn.said.reply.unkept() < CHECKPOINT_BYTES;
        if kept && turn.checkpoint_at.is_none_or(|at| at > now) {
            return None;
        }
        turn.checkpoint_at = None;
        let unkept = turn.said.reply.take_unkept();
        (!unkept.is_empty()).then_some(Op::Checkpoint(unkept))
    }

    /// Takes in one event of the stream. `last`: it is the last step that is allowed.
    fn take(&mut self, event: LlmEvent, last: bool, world: &mut World) {
        let Some(turn) = &mut self.turn else { return };
        let heard = turn.said.take(event, &mut self.mint);
        if turn.beside {
            return;
        }
        if let (Heard::Text(..) | Heard::Reasoning(..), Some(plan)) = (&heard, &turn.plan) {
            world.show(&plan.started.attempt);
        }
        match heard {
            Heard::Text(..) => {
                turn.checkpoint_at.get_or_insert(world.now + CHECKPOINT_EVERY);
            }
            // The last allowed step's calls never run: their intents come with the reply.
            Heard::Call if !last => {
                turn.intend_at.get_or_insert(world.now + INTENT_DELAY);
                self.before_changes(world);
            }
            Heard::Call | Heard::Reasoning(..) | Heard::Nothing => {}
        }
    }

    fn due_frame(&self, world: &World) -> Flow {
        let Some(turn) = &self.turn else { return Flow::Poll(world.now) };
        let frame = turn.stream.as_ref().and_then(|stream| stream.frames.front());
        // Intents that wait for a capture are due when it is.
        let waits = turn.intend_at.is_some_and(|at| at <= world.now) && self.files.is_running();
        let intends = turn.intend_at.filter(|_| !waits);
        self.due(world, [intends, turn.checkpoint_at, frame.map(|(at, _)| *at)])
    }

    fn broken(&mut self, reason: &ErrorReason, world: &mut World) -> Flow {
        let random = world.rng.draw();
        let counts = !world.is(ShellMutant::RetriesUnbounded);
        let failed = if counts { self.history.failures() + 1 } else { 1 };
        let delay = world.facts.settings.retry.next_delay(failed, reason, random);
        let delay = delay.map(milliseconds);
        let error = provider_error(reason);
        let Some(turn) = &self.turn else { unreachable!("a stream has a turn") };
        if turn.beside {
            return match delay {
                // Nobody needs a part of a summary: it is requested again.
                Some(_) => self.failed_unseen(error, delay, world),
                None => {
                    let observed = self.observe(world);
                    self.write(Op::CompactionFailed(error, observed), world)
                }
            };
        }
        let visible = turn.said.is_visible() && !world.is(ShellMutant::ReplayAfterOutput);
        match (visible, delay) {
            (false, _) if *reason == ErrorReason::ContextOverflow => {
                let observed = self.observe(world);
                self.write(Op::Overflowed(error, delay, observed), world)
            }
            (false, _) => self.failed_unseen(error, delay, world),
            (true, None) => self.wait(0, Then::Fail(error), world),
            (true, Some(delay)) => self.write(Op::Cut(error, delay), world),
        }
    }

    /// A request failed before anybody saw a part of its answer.
    pub(super) fn failed_unseen(
        &mut self,
        error: SessionError,
        delay: Option<i64>,
        world: &mut World,
    ) -> Flow {
        let Some(delay) = delay else { return self.wait(0, Then::Fail(error), world) };
        let usage = self.turn.as_mut().and_then(Turn::forget_attempt);
        self.write(Op::Retry(usage, error, delay), world)
    }
}

impl Turn {
    /// Forgets an attempt without visible output. Returns its usage.
    fn forget_attempt(&mut self) -> Option<llm_protocol::Usage> {
        self.intend_at = None;
        self.said.forget_attempt()
    }
}
