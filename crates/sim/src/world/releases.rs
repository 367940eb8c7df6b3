//! Releases: a worker may come back with other tools than those that an open turn was offered.

use std::collections::BTreeMap;

use domain::{CallId, TurnId};
use history::History;
use session_rules::{ChangedTools, ToolFacts};

use super::World;
use crate::fault::Fault;
use crate::rng::Rng;

/// The percentage of restarts that bring the other release.
const CHANCE: u64 = 40;

/// Which tools turns were offered, and which of them are others by now.
#[derive(Default)]
pub(super) struct Releases {
    /// Decides which restarts bring the other release, in the histories in which some do.
    pub(super) rng: Option<Rng>,
    /// The release whose tools each turn was offered.
    offered: BTreeMap<TurnId, usize>,
    /// The tools that are others than those of the open turn that a drain found.
    changed: BTreeMap<u64, ChangedTools>,
}

impl Releases {
    /// Decides at random in histories whose seed leaves 1 or 7 when it is divided by 8. A generator of its own leaves the
    /// other histories as they are.
    pub(super) fn new(seed: u64) -> Self {
        let rng = matches!(seed % 8, 1 | 7).then(|| Rng::new(!seed.rotate_left(16)));
        Self { rng, ..Self::default() }
    }

    pub(super) fn changed(&self, drain: u64) -> Option<&ChangedTools> {
        self.changed.get(&drain)
    }
}

impl World {
    /// A worker that comes back may be another release.
    pub(super) fn release(&mut self, worker: usize) {
        if self.releases.rng.as_mut().is_some_and(|rng| rng.chance(CHANCE)) {
            self.faults.note(Fault::Release);
            let releases = self.facts.releases.len();
            let host = &mut self.workers[worker];
            host.release = (host.release + 1) % releases;
        }
    }

    /// The tools that a worker's drains offer and run.
    pub(super) fn tools_of(&self, worker: usize) -> &ToolFacts {
        &self.facts.releases[self.workers[worker].release]
    }

    /// A drain sends a request with the tools of its worker.
    pub(crate) fn offered(&mut self, worker: usize, turn: &TurnId) {
        self.releases.offered.insert(turn.clone(), self.workers[worker].release);
    }

    /// A drain compares its worker's tools with those that the open turn was offered.
    pub(crate) fn compare_tools(&mut self, drain: u64, worker: usize, history: &History) {
        let Some(open) = history.open_turn() else { return };
        let Some(release) = self.releases.offered.get(&open.turn) else { return };
        let offered = &self.facts.releases[*release].definitions;
        let changed = self.tools_of(worker).since(open.turn.clone(), offered);
        self.releases.changed.insert(drain, changed);
    }

    /// Checks that a worker's tool is the one that the model meant when it called.
    pub(super) fn check_tool(&mut self, worker: usize, turn: &TurnId, call: &CallId, tool: &str) {
        let Some(release) = self.releases.offered.get(turn) else { return };
        let of = |facts: &ToolFacts| facts.definitions.iter().find(|it| it.name == tool).cloned();
        if of(&self.facts.releases[*release]) != of(self.tools_of(worker)) {
            self.fail(format!("I15: {call} meets another tool than it was offered"));
        }
    }
}
