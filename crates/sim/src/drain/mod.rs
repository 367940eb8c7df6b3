//! A Session Drain's shell without its I/O: the same decisions as in `session`, each await of it one step.
//!
//! ```text
//! write       a decision on its way to the store, and the next step after it   (session: drain, log)
//! unanswered  a write without an answer: perhaps it was made                   (session: patience)
//! decide      the rule that decides on each operation
//! turn        the stream of a turn, or of a Compaction                         (session: turn, compaction)
//! bodies      calls that run, and the ways to wait for them or stop them       (session: ending, recover)
//! title       the title that is made beside a turn                             (session: title)
//! files       captures, and writes that wait for them                          (session: files)
//! ```

mod bodies;
mod decide;
mod files;
mod title;
mod turn;
mod unanswered;
mod write;

use std::time::Duration;

use domain::{
    EventId, IdMint, Seq, SessionError, SessionIncarnation, Stamp, ToolIntent, ToolSettled,
    TurnOutcome,
};
use history::History;
use session_rules::{Closed, Observation, Rules, Said, TurnPlan};

use self::decide::Op;
use self::files::{FileSlot, Wanted};
use self::title::TitleSlot;
pub(crate) use self::unanswered::Statement;
use self::unanswered::Unanswered;
use self::write::Pending;
use crate::provider::Stream;
use crate::store::{Basis, Head, Known};
use crate::world::World;

/// How a drain ended for its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Idle,
    Closed(Closed),
    Moved,
    Fenced,
    Superseded,
    /// The log is not the one that it knew.
    WentBack,
    Failed,
}

/// The outcome of a step.
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

/// The open turn, or the Compaction.
struct Turn {
    plan: Option<Box<TurnPlan>>,
    said: Said,
    stream: Option<Stream>,
    /// A Compaction: nobody sees its answer, and no call runs.
    beside: bool,
    /// Its calls may have changed files since the last capture.
    touched: bool,
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
            beside: false,
            touched: false,
            bodies: Vec::new(),
            intend_at: None,
            checkpoint_at: None,
            commit_at: None,
        }
    }

    fn planned(plan: Box<TurnPlan>) -> Self {
        let said = Said::new(plan.turn.clone(), plan.message.clone());
        Self::of(said, Some(plan))
    }

    /// A request beside the conversation.
    fn beside(plan: Box<TurnPlan>) -> Self {
        Self { beside: true, ..Self::planned(plan) }
    }

    fn finished(&mut self, done: ToolSettled, now: i64) {
        self.said.done.push(done);
        self.commit_at.get_or_insert(now + bodies::RESULT_DELAY);
    }
}

enum Phase {
    Look {
        locked: bool,
    },
    Writing(Box<Pending>),
    /// Postgres does not answer.
    Unanswered(Box<Unanswered>),
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
    /// Nothing is left to do but a title.
    Title {
        deadline: i64,
    },
    /// Files are captured or put back first.
    Files(Wanted),
    /// A write that ends the drain waits for a capture of its turn's changes.
    Ending(Op),
    /// Between two phases.
    Moving,
}

/// The next thing to do when the bodies have ended.
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
    /// The Location that its worker holds.
    pub(crate) at: usize,
    pub(crate) next_poll: i64,
    /// The worker's sweep has seen a higher claim.
    pub(crate) fenced: bool,
    /// The newest interrupt of which a hint or a sweep has told it.
    hinted: Seq,
    token: i64,
    claim: Option<i64>,
    pub(crate) history: History,
    mint: IdMint,
    seed: u64,
    basis: Option<Basis>,
    observed: Option<Observation>,
    interrupts_before: Seq,
    /// Turns and Compactions that it has begun.
    begun: u32,
    phase: Phase,
    resume: Option<Phase>,
    turn: Option<Turn>,
    title: TitleSlot,
    files: FileSlot,
    /// Whether the files were there when it began. It stays so: a real drain keeps what its take-over gave it.
    has_files: bool,
}

impl Drain {
    pub(crate) fn new(
        id: u64,
        worker: usize,
        session: usize,
        (at, token): (usize, i64),
        history: History,
        now: i64,
    ) -> Self {
        let seed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            id,
            worker,
            session,
            at,
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
            begun: 0,
            phase: Phase::Look { locked: false },
            resume: None,
            turn: None,
            title: TitleSlot::default(),
            files: FileSlot::default(),
            has_files: true,
        }
    }

    /// The claim that it holds; `None` before it has one.
    pub(crate) fn claim(&self) -> Option<i64> {
        self.claim
    }

    /// Returns whether it holds a claim in this session.
    pub(crate) fn is_of(&self, head: &Head) -> bool {
        self.claim.is_some() && self.history.incarnation().0 == head.incarnation
    }

    /// A hint or a sweep tells it of the session's newest interrupt. Whether that is its own.
    pub(crate) fn hears_of(&mut self, interrupt: Seq) -> bool {
        self.hinted = self.hinted.max(interrupt);
        interrupt > self.interrupts_before
    }

    /// The id of the last event that it knows.
    fn last_known(&self) -> Option<EventId> {
        self.history.last_event().cloned()
    }

    /// The log that it knows.
    fn known(&self) -> Known<'_> {
        Known { seq: self.history.seq(), id: self.history.last_event() }
    }

    /// The drain's session, and which of the sessions with that id.
    fn whose(&self) -> (usize, SessionIncarnation) {
        (self.session, self.history.incarnation())
    }

    /// The Location's new holder has ended its tools.
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
            Phase::Unanswered(unanswered) => self.ask_again(*unanswered, world),
            Phase::Locked(op) => self.decide_locked(op, world),
            Phase::Streaming => self.stream(world),
            Phase::Bodies { pause, then } => self.bodies(pause, then, world),
            Phase::Stopping { deadline } => self.stopping(deadline, world),
            Phase::Title { deadline } => self.await_title(deadline, world),
            Phase::Files(wanted) => self.files(wanted, world),
            Phase::Ending(op) => self.capture_before(op, world),
            Phase::Moving => unreachable!("a step leaves a phase behind"),
        }
    }

    fn rules<'w>(&self, world: &'w World) -> Rules<'w> {
        let rules = world.rules(
            self.session,
            self.worker,
            self.at,
            self.interrupts_before,
            self.begun > 0,
            self.id,
        );
        if self.has_files { rules } else { Rules { workspace: world.no_files(), ..rules } }
    }

    fn observe(&self, world: &mut World) -> Observation {
        world.observe(self.at, self.worker, &self.history)
    }

    fn is_interrupted(&self, world: &World) -> bool {
        self.hinted > self.interrupts_before || self.rules(world).is_interrupted(&self.history)
    }

    /// Goes on with `phase` at once.
    fn enter(&mut self, phase: Phase, world: &World) -> Flow {
        self.phase = phase;
        Flow::Poll(world.now)
    }
}

fn milliseconds(delay: Duration) -> i64 {
    i64::try_from(delay.as_millis()).unwrap_or(i64::MAX)
}
