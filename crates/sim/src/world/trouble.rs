//! Faults, until they stop.

use super::facts::{LOCATIONS, SESSIONS, WORKERS};
use super::{Action, World};
use crate::drain::Statement;
use crate::fault::Fault;

/// The state of a Location's Context Sources.
#[derive(Default)]
pub(super) struct Place {
    pub(super) branch: u64,
    pub(super) unavailable: bool,
    pub(super) missing: bool,
}

impl World {
    /// Returns whether a Location's files can be reached now.
    pub(crate) fn has_files(&self, location: usize) -> bool {
        !self.places[location].missing
    }

    pub(super) fn change_place(&mut self, location: usize) {
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
        // Missing files come back soon, or nothing would ever happen.
        let (low, high) = if self.places[location].missing { (50, 300) } else { (200, 1_500) };
        if self.places[location].missing && self.rng.chance(70) {
            self.places[location].missing = self.rng.chance(50);
        }
        self.after(low, high, Action::Place { location });
    }

    /// Whether Postgres stands still when a drain writes.
    pub(crate) fn postgres_stalls(&mut self) -> bool {
        self.stalls(10)
    }

    /// Whether Postgres stands still, in `percent` of all statements of a kind.
    fn stalls(&mut self, percent: u64) -> bool {
        !self.quiet && self.stalls.as_mut().is_some_and(|stalls| stalls.chance(percent))
    }

    /// How long a statement takes.
    pub(crate) fn latency(&mut self) -> i64 {
        if self.stalls(2) {
            self.faults.note(Fault::AnswerLate);
            return self.range(250, 4_000);
        }
        if self.rng.chance(10) && !self.quiet { self.range(20, 250) } else { self.range(1, 8) }
    }

    /// Whether Postgres does not answer a worker that raises a fence. The statement is lost, made, or made later; the
    /// worker asks again at its next sweep if the Location is still its own.
    pub(super) fn fence_stalls(&mut self, location: usize, token: i64) -> bool {
        if !self.stalls(30) {
            return false;
        }
        self.faults.note(Fault::FenceUnanswered);
        match self.rng.below(3) {
            0 => {}
            1 => {
                self.store.raise_fence(location, token);
            }
            _ => self.after(10, 5_000, Action::FenceArrives { location, token }),
        }
        true
    }

    /// A late statement raises a fence, whether its worker waits for it or not.
    pub(super) fn fence_arrives(&mut self, location: usize, token: i64) {
        if token < self.store.fences[location] {
            self.faults.note(Fault::FenceLate);
        }
        self.store.raise_fence(location, token);
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// How long a drain waits before it asks Postgres again.
    pub(crate) fn pause_for_postgres(&mut self) -> i64 {
        self.range(50, 1_000)
    }

    /// The statement arrives later, whether its drain waits for it or not.
    pub(crate) fn arrives_late(&mut self, statement: Statement) {
        self.after(10, 3_000, Action::Arrives { statement: Box::new(statement) });
    }

    pub(super) fn arrives(&mut self, statement: &Statement) {
        self.faults.note(Fault::WriteLate);
        statement.arrive(self);
    }

    pub(super) fn trouble(&mut self) {
        if self.quiet {
            return;
        }
        self.after(150, if self.deadly { 600 } else { 1_500 }, Action::Trouble);
        let worker = self.rng.index(WORKERS);
        if self.deadly && self.rng.chance(60) {
            // Workers with drains die, again and again.
            let busy = |worker: &usize| !self.workers[*worker].drains.is_empty();
            if let Some(worker) = (0..WORKERS).find(busy) {
                self.faults.note(Fault::Death);
                return self.die(worker);
            }
        }
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
                let location = self.rng.index(LOCATIONS + self.store.sessions.len() - SESSIONS);
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
    pub(super) fn quieten(&mut self) {
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
