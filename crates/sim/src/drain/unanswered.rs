//! A write that Postgres has not answered, and the way to find out whether it was made (session: patience; store:
//! unanswered).

use domain::{DrainEnd, EventId, IdMint, Seq, SessionEvent, Stamp};

use super::write::Pending;
use super::{Drain, Exit, Flow, Phase};
use crate::fault::Fault;
use crate::mutant::ShellMutant;
use crate::store::{Append, Basis, Written, digest_of};
use crate::world::World;

/// How long a drain asks again (ms).
const PATIENCE: i64 = 30_000;

/// A statement on its way to the database: it may come to nothing, be made at once, or be made when nobody waits for
/// it any more.
#[derive(Clone)]
pub(crate) struct Statement {
    pub(super) session: usize,
    pub(super) drain: u64,
    pub(super) token: i64,
    pub(super) basis: Basis,
    /// The id of the last event that the decision was made on.
    pub(super) known: Option<EventId>,
    pub(super) events: Vec<SessionEvent>,
    pub(super) promoted: i32,
    pub(super) progress: bool,
    pub(super) end: DrainEnd,
    pub(super) mint: IdMint,
    pub(super) now: i64,
}

impl Statement {
    /// Makes it.
    pub(crate) fn arrive(&self, world: &mut World) -> Written {
        let append = Append {
            events: &self.events,
            promoted: self.promoted,
            progress: self.progress,
            end: self.end,
        };
        let mut mint = self.mint.clone();
        let before = world.store.event(self.session, self.basis.first - 1);
        let follows = before.map(|event| &event.id) == self.known.as_ref();
        let written = world.store.write(self.session, self.basis, &append, &mut mint, self.now);
        if let Written::Next(_) = written {
            if !follows && world.may_go_back() {
                world.fail(format!(
                    "I5: drain {} wrote after an event that it never read",
                    self.drain
                ));
            }
            let writer = (self.drain, self.token);
            world.written(self.session, writer, self.basis, self.events.len());
        }
        written
    }

    /// Returns whether one of its tries was made: then our last event's id is at our last number.
    fn is_in_the_log(&self, world: &World) -> bool {
        let (Some(id), _) = self.last_id() else { return false };
        let count = i64::try_from(self.events.len()).unwrap_or(i64::MAX);
        let last = Seq(self.basis.first + count - 1);
        let log = &world.store.sessions[self.session].events;
        log.iter().rev().any(|event| event.seq == last && event.id == id)
    }

    /// Its last event's id, and the highest stamp in it.
    fn last_id(&self) -> (Option<EventId>, Stamp) {
        let mut mint = self.mint.clone();
        let last = self.events.iter().map(|_| EventId::mint(&mut mint)).last();
        (last, mint.last())
    }

    /// The basis of the next write, if this one was made.
    pub(super) fn next(&self) -> Basis {
        let (last, stamp) = self.last_id();
        let moved = matches!(self.end, DrainEnd::Moved | DrainEnd::MovedOpen);
        Basis {
            seen: if moved { self.basis.seen } else { self.basis.claim() },
            first: self.basis.first + i64::try_from(self.events.len()).unwrap_or(i64::MAX),
            starts: None,
            after: last.as_ref().map_or(self.basis.after, digest_of),
            last_id: self.basis.last_id.max(stamp),
            ..self.basis
        }
    }
}

/// A write whose answer the drain waits for.
pub(super) struct Unanswered {
    pending: Pending,
    statement: Statement,
    until: i64,
}

impl Drain {
    /// Postgres does not answer. The statement is lost, made, or made later.
    pub(super) fn stalled(
        &mut self,
        pending: Pending,
        statement: Statement,
        world: &mut World,
    ) -> Flow {
        world.faults.note(Fault::WriteUnanswered);
        match world.rng.below(3) {
            0 => {}
            1 => drop(statement.arrive(world)),
            _ => world.arrives_late(statement.clone()),
        }
        let until = world.now + PATIENCE;
        self.wait_for_answer(Unanswered { pending, statement, until }, world)
    }

    fn wait_for_answer(&mut self, unanswered: Unanswered, world: &mut World) -> Flow {
        self.phase = Phase::Unanswered(Box::new(unanswered));
        Flow::Poll(world.now + world.pause_for_postgres())
    }

    /// Makes the write again as it was. If it is refused, finds out who has moved the head.
    pub(super) fn ask_again(&mut self, unanswered: Unanswered, world: &mut World) -> Flow {
        if world.now > unanswered.until {
            return Flow::Exit(Exit::Failed);
        }
        if !world.is_quiet() && world.rng.chance(40) {
            return self.wait_for_answer(unanswered, world); // it still stands
        }
        let Unanswered { pending, statement, .. } = unanswered;
        let written = match statement.arrive(world) {
            Written::Next(next) => Written::Next(next),
            refused @ (Written::Stale | Written::Fenced | Written::Superseded) => {
                if !world.is(ShellMutant::RefusalIsAnothers) && statement.is_in_the_log(world) {
                    Written::Next(statement.next())
                } else {
                    refused
                }
            }
        };
        self.answered(pending, statement.basis, written, world)
    }
}
