//! A decision on its way to the store, and the next step after it.

use domain::{Claim, EventId, Seq, SessionIncarnation, TurnOutcome};
use history::{History, Mark};
use session_rules::{Answered, Compacted, Draft, Drafted, Next, Replied, Rules, Site, Verdict};

use super::decide::{Decided, Op, decided};
use super::unanswered::Statement;
use super::{Drain, Exit, Flow, Phase, Then, Turn};
use crate::fault::{Fault, When};
use crate::mutant::ShellMutant;
use crate::provider::Purpose;
use crate::store::{Basis, Known, Look, Proof, Written};
use crate::world::World;

/// A decision that is on its way to the store.
pub(super) struct Pending {
    op: Op,
    basis: Basis,
    /// The id of the last event that the decision was made on.
    known: Option<EventId>,
    mark: Mark,
    drafted: Drafted,
    decided: Decided,
    end: domain::DrainEnd,
    site: Site,
}

impl Drain {
    pub(super) fn look(&mut self, locked: bool, world: &mut World) -> Flow {
        let head = world.store.sessions[self.session].head;
        let incarnation = SessionIncarnation(head.incarnation);
        let is_anothers = self.history.incarnation() != incarnation;
        let is_longer = self.history.seq().0 >= head.next_seq;
        if is_anothers && (is_longer || !world.is(ShellMutant::CacheWithoutIncarnation)) {
            // The cache has the log of a deleted session with this id.
            self.history = History::new();
        }
        match world.store.look(self.session, self.at, self.token, self.known()) {
            Look::Superseded => Flow::Exit(Exit::Superseded),
            Look::Idle => Flow::Exit(Exit::Idle),
            Look::Ready(basis, taken, events) => {
                if events.first().is_some_and(|first| first.seq <= self.history.seq()) {
                    return Flow::Exit(Exit::WentBack); // the database came back without some commits
                }
                world.begins_with(self.session, self.id, &self.history);
                self.history.belong_to(incarnation);
                self.history.extend(events.iter());
                self.read_lacking_texts(world);
                self.history.give_up_hidden();
                self.interrupts_before =
                    Rules::interrupts_before(&self.history, taken, Seq(basis.interrupt_seq));
                let observed = match self.observed.take() {
                    Some(observed) => observed,
                    None => self.observe(world),
                };
                self.observed = Some(observed.clone());
                world.compare_tools(self.id, self.worker, &self.history);
                self.decide(Op::Open(taken, observed), basis, locked, world)
            }
        }
    }

    /// Decides on the known log if nothing has been read or written since, else under the head's lock.
    pub(super) fn write(&mut self, op: Op, world: &mut World) -> Flow {
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

    pub(super) fn decide_locked(&mut self, op: Op, world: &mut World) -> Flow {
        let claim = self.claim.unwrap_or(0);
        let (basis, events) = match world.store.prove(self.session, self.at, claim, self.known()) {
            Proof::Held(basis, events) => (basis, events),
            Proof::Fenced => return Flow::Exit(Exit::Fenced),
            Proof::WentBack => return Flow::Exit(Exit::WentBack),
        };
        self.history.extend(events.iter());
        self.read_lacking_texts(world);
        self.decide(op, basis, true, world)
    }

    /// Folds the log again if a Revert may show texts that the fold has given up.
    fn read_lacking_texts(&mut self, world: &World) {
        if !self.history.lacks_texts() || world.is(ShellMutant::RevertWithoutTexts) {
            return;
        }
        let known = usize::try_from(self.history.seq().0).unwrap_or(0);
        let mut whole = History::new();
        whole.belong_to(self.history.incarnation());
        whole.extend(world.store.sessions[self.session].events.iter().take(known));
        self.history = whole;
    }

    fn decide(&mut self, op: Op, basis: Basis, locked: bool, world: &mut World) -> Flow {
        let now = world.clock(self.worker);
        self.mint.raise(basis.last_id);
        let mark = self.history.mark();
        let known = self.last_known();
        if matches!(op, Op::Open(..)) {
            self.has_files = world.has_files(self.at);
        }
        let rules = self.rules(world);
        let mint = domain::IdMint::seeded(self.mint.last(), now, self.seed);
        let captured = self.captured().cloned().filter(|_| !matches!(op, Op::Open(..)));
        let mut draft = Draft::new(&mut self.history, mint, now);
        if let Some(captured) = captured {
            draft.push(captured);
        }
        if let Some(title) = self.title.done() {
            rules.title_ended(&mut draft, title);
        }
        let verdict = decided(&rules, &mut draft, &op, self.turn.as_ref());
        let drafted = draft.finish();
        match verdict {
            Verdict::Leave(decided) => {
                self.history.back_to(mark);
                self.basis = Some(basis);
                self.after(op, decided, world)
            }
            Verdict::Write(_, end, _) if end != domain::DrainEnd::Keep && self.owes(&op) => {
                self.history.back_to(mark);
                self.basis = Some(basis);
                self.capture_before(op, world)
            }
            Verdict::Write(decided, end, site) => {
                let pending = Pending { op, basis, known, mark, drafted, decided, end, site };
                if locked {
                    return self.commit(pending, world);
                }
                self.phase = Phase::Writing(Box::new(pending));
                Flow::Poll(world.now + world.latency())
            }
        }
    }

    pub(super) fn commit(&mut self, pending: Pending, world: &mut World) -> Flow {
        let Pending { basis, drafted, decided, end, site, .. } = &pending;
        let (basis, site) = (*basis, *site);
        let crash = world.crash(site);
        if crash == Some(When::Before) {
            return Flow::Died;
        }
        if world.is(ShellMutant::RequestBeforeCommit)
            && let Decided::Next(Next::Turn(plan)) = decided
        {
            let purpose = Purpose::Turn { calls: true };
            world.request(self.whose(), &plan.started, &plan.body, purpose);
        }
        let head = world.store.sessions[self.session].head;
        if basis.claim() < head.claim && basis.starts.is_none() {
            world.faults.note(Fault::ZombieWrite);
        }
        let statement = Statement {
            session: self.session,
            drain: self.id,
            token: self.token,
            basis,
            known: pending.known.clone(),
            events: drafted.events.clone(),
            promoted: drafted.promoted,
            progress: drafted.progress,
            end: *end,
            mint: drafted.mint.clone(),
            now: world.clock(self.worker),
        };
        if crash.is_none() && world.postgres_stalls() {
            return self.stalled(pending, statement, world);
        }
        let written = statement.arrive(world);
        world.trace.add(site.name());
        match crash {
            Some(When::After) => return Flow::Died,
            Some(When::AnswerLost) => {
                if world.is(ShellMutant::LostAnswerWrittenAgain)
                    && let Proof::Held(basis, _) =
                        world.store.prove(self.session, self.at, basis.claim(), Known::NOTHING)
                {
                    let mut mint = statement.mint.clone();
                    mint.raise(statement.next().last_id);
                    Statement { basis, mint, ..statement }.arrive(world);
                }
                return Flow::Exit(Exit::Failed);
            }
            Some(When::Before) | None => {}
        }
        self.answered(pending, basis, written, world)
    }

    /// Continues after the answer to a write.
    pub(super) fn answered(
        &mut self,
        pending: Pending,
        basis: Basis,
        written: Written,
        world: &mut World,
    ) -> Flow {
        let Pending { op, mark, decided, drafted, .. } = pending;
        match written {
            Written::Next(next) => {
                if !drafted.events.is_empty() {
                    let last = world.store.event(self.session, next.first - 1);
                    let last = last.map(|event| event.id.clone());
                    self.history.written_by(Claim(basis.claim()), last);
                }
                self.mint.raise(next.last_id);
                self.read_lacking_texts(world);
                self.history.give_up_hidden();
                self.claim = Some(basis.claim());
                self.basis = Some(next);
                self.files.done = None;
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

    /// Whether a write that ends the drain waits for the files.
    fn owes(&self, op: &Op) -> bool {
        let settles =
            matches!(op, Op::Settled(..) | Op::Answered(_) | Op::Interrupted | Op::Failed(_));
        let touched = self.turn.as_ref().is_some_and(|turn| turn.touched);
        self.files.is_running() || (settles && touched)
    }

    fn after(&mut self, op: Op, decided: Decided, world: &mut World) -> Flow {
        if self.history.titling().is_none() {
            self.title.forget();
        }
        match (op, decided) {
            (Op::Open(..), Decided::Next(next)) => {
                if !matches!(next, Next::Recover(_) | Next::End(_) | Next::Moved(_)) {
                    self.capture_what_is_left(world);
                }
                self.follow(next, world)
            }
            (Op::Settled(..), Decided::Settled(Some(next))) => {
                self.capture_after(world);
                self.follow(next, world)
            }
            (_, Decided::Next(next) | Decided::Settled(Some(next))) => self.follow(next, world),
            (_, Decided::Settled(None) | Decided::Replied(Replied::Interrupted)) => {
                self.interrupt(world)
            }
            (_, Decided::Replied(Replied::LookFirst)) => {
                let observed = self.observe(world);
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
            (_, Decided::Answered(Answered::Interrupted)) => self.interrupt(world),
            (_, Decided::Answered(Answered::Wait(next))) => self.follow(next, world),
            (Op::Answered(outcome), Decided::Answered(Answered::Settle)) => {
                let observed = self.observe(world);
                self.write(Op::Settled(outcome, observed), world)
            }
            (Op::Answered(outcome), Decided::Answered(Answered::Start(intents))) => {
                self.results_written();
                self.start(intents, world);
                self.wait(0, Then::Settle(outcome), world)
            }
            (_, Decided::Leave(intents)) => {
                self.results_written();
                self.start(intents, world);
                self.resume(world)
            }
            (_, Decided::Overflowed(Some(next))) => self.follow(next, world),
            (Op::Overflowed(error, delay, _), Decided::Overflowed(None)) => {
                self.failed_unseen(error, delay, world)
            }
            (_, Decided::Compacted(Compacted::Again(plan))) => {
                self.turn = Some(Turn::beside(plan));
                self.enter(Phase::Streaming, world)
            }
            (_, Decided::Compacted(Compacted::Interrupted)) => self.interrupt(world),
            (_, Decided::Compacted(Compacted::Crossed(next))) => self.follow(next, world),
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
                        plan.started = *next;
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
                self.results_written();
                self.resume(world)
            }
            (Op::StartAgain(calls), _) => {
                self.start(calls.into_iter().map(|(intent, _)| intent).collect(), world);
                self.resume(world)
            }
            (
                _,
                Decided::Done
                | Decided::Answered(_)
                | Decided::Attempt(_)
                | Decided::Overflowed(None),
            ) => self.resume(world),
        }
    }

    fn results_written(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.commit_at = None;
            turn.said.done.clear();
        }
    }

    fn resume(&mut self, world: &World) -> Flow {
        let phase = self.resume.take().unwrap_or(Phase::Streaming);
        self.enter(phase, world)
    }

    fn follow(&mut self, next: Next, world: &mut World) -> Flow {
        match next {
            Next::End(closed) => Flow::Exit(Exit::Closed(closed)),
            Next::Turn(mut plan) => {
                self.begun += 1;
                if let Some(title) = plan.title.take() {
                    self.start_title(*title, world);
                }
                self.turn = Some(Turn::planned(plan));
                self.enter(Phase::Streaming, world)
            }
            Next::Compact(plan) => {
                self.begun += 1;
                self.turn = Some(Turn::beside(plan));
                self.enter(Phase::Streaming, world)
            }
            Next::Inbox => {
                let observed = self.observe(world);
                self.write(Op::Rest(observed), world)
            }
            Next::Recover(recovery) => self.recover(*recovery, world),
            Next::Title => self.wait_for_title(world),
            Next::Files(plan) => self.revert_files(plan, world),
            Next::Move(plan) => self.move_on(plan, world),
            Next::Moved(_) => Flow::Exit(Exit::Moved),
        }
    }
}
