use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use domain::RecordedEvent;

use crate::check::Violation;
use crate::fault::Faults;
use crate::mutant::Mutant;
use crate::world::World;

/// The fewest steps and faults of a history that counts.
pub(crate) const MIN_STEPS: u64 = 200;
/// See [`MIN_STEPS`].
pub(crate) const MIN_FAULTS: u64 = 3;

/// One history, from its seed to its end.
#[derive(Debug, Clone)]
pub struct Story {
    /// The seed, which decides everything.
    pub seed: u64,
    /// Actions.
    pub steps: u64,
    /// Events that were written.
    pub events: u64,
    /// A hash of the history. The same seed gives the same hash.
    pub hash: u64,
    /// The faults that it met.
    pub faults: Faults,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// The log of each session.
    pub logs: Vec<Vec<RecordedEvent>>,
}

/// Many histories.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Histories of at least 200 steps and 3 faults.
    pub histories: u64,
    /// Others: they are run and checked, and not counted.
    pub short: u64,
    /// Steps of those that count.
    pub steps: u64,
    /// Events that were written.
    pub events: u64,
    /// The faults that they met, and the sites where workers died.
    pub faults: Faults,
    /// How long it took.
    pub elapsed: Duration,
    /// Seeds whose histories broke an invariant.
    pub violations: Vec<(u64, Violation)>,
}

/// Runs the history of `seed`, with a mistake put in or without.
#[must_use]
pub fn history(seed: u64, mutant: Option<Mutant>) -> Story {
    session_rules::put_in(match mutant {
        Some(Mutant::Rules(mutant)) => Some(mutant),
        Some(Mutant::Store(_) | Mutant::Shell(_)) | None => None,
    });
    let ended = catch_unwind(AssertUnwindSafe(|| World::new(seed, mutant).run()));
    session_rules::put_in(None);
    match ended {
        Ok(end) => Story {
            seed,
            steps: end.steps,
            events: end.events,
            hash: end.hash,
            faults: end.faults,
            violation: end.violation,
            logs: end.logs,
        },
        // An assertion of the code under test, or of the simulation.
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            let violation = Some(format!("it panicked: {}", text.unwrap_or_default()));
            let faults = Faults::default();
            let logs = Vec::new();
            Story { seed, steps: 0, events: 0, hash: 0, faults, violation, logs }
        }
    }
}

/// Runs histories from seed `first` on in `threads` threads, as long as `until` returns true.
#[must_use]
pub fn run(first: u64, threads: u64, until: impl Fn(u64, Duration) -> bool + Sync) -> Report {
    let began = Instant::now();
    let one = |thread: u64| {
        let mut report = Report::default();
        let mut seed = first + thread;
        while until(seed - first, began.elapsed()) && report.violations.len() < 5 {
            report.add(history(seed, None));
            seed += threads;
        }
        report
    };
    let mut whole = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        let mut whole = Report::default();
        for thread in running {
            whole.join(thread.join().expect("a history's panic is caught"));
        }
        whole
    });
    whole.elapsed = began.elapsed();
    whole
}

/// Runs `seeds` histories with a mistake, and returns those of `violations` that none of them showed. A history shows a
/// violation whose text contains the given one.
#[must_use]
pub fn unseen<'t>(mutant: Mutant, violations: &[&'t str], seeds: u64) -> Vec<&'t str> {
    let mut unseen = violations.to_vec();
    for seed in 1..=seeds {
        if unseen.is_empty() {
            break;
        }
        let violation = history(seed, Some(mutant)).violation.unwrap_or_default();
        unseen.retain(|text| !violation.contains(text));
    }
    unseen
}

impl Report {
    fn add(&mut self, story: Story) {
        if let Some(violation) = story.violation {
            self.violations.push((story.seed, violation));
            return;
        }
        if story.steps < MIN_STEPS || story.faults.count() < MIN_FAULTS {
            self.short += 1;
            return;
        }
        self.histories += 1;
        self.steps += story.steps;
        self.events += story.events;
        self.faults.add(&story.faults);
    }

    fn join(&mut self, other: Self) {
        self.histories += other.histories;
        self.short += other.short;
        self.steps += other.steps;
        self.events += other.events;
        self.faults.add(&other.faults);
        self.violations.extend(other.violations);
    }

    /// Histories in an hour, at this speed.
    #[must_use]
    pub fn per_hour(&self) -> u64 {
        let milliseconds = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        self.histories.saturating_mul(3_600_000) / milliseconds
    }
}
