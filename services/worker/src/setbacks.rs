//! Locations whose lock or files were unavailable, and the pauses before the next try.
//!
//! ```text
//! unavailable ─▶ given back ─▶ leased again, here or elsewhere ─▶ tried again after a pause ─▶ … ─▶ told after a
//! minute, or ten where only object storage is away
//! ```

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use domain::LocationRef;

/// How long a Location may be unavailable before anything durable is written about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    told_after: Duration,
    longest_pause: Duration,
    /// After this long without a failure, the next one counts as the first. Longer than a pause and a try.
    forgotten_after: Duration,
}

impl Patience {
    /// For its lock and its directory. The lock of a host that was cut off, a restarting NFS server or a process that
    /// hangs in the kernel usually ends within this time.
    pub(crate) const FILES: Self = Self {
        told_after: Duration::from_secs(60),
        longest_pause: Duration::from_secs(8),
        forgotten_after: Duration::from_secs(60),
    };
    /// For object storage. It comes back by itself, nothing is lost meanwhile, and no worker can do better.
    pub(crate) const STORAGE: Self = Self {
        told_after: Duration::from_secs(600),
        longest_pause: Duration::from_secs(30),
        forgotten_after: Duration::from_secs(240),
    };
}

/// The pause before the second try. It doubles with each try, up to the longest.
const SHORTEST: Duration = Duration::from_secs(1);

/// The part of a pause that is left out at most. It differs between Locations that failed together, so that they are not
/// tried together again.
const SPREAD: f64 = 0.25;

#[derive(Default)]
pub(crate) struct Setbacks(HashMap<LocationRef, Setback>);

struct Setback {
    /// The (monotonic) time of the first of these failures.
    since: Duration,
    last: Duration,
    failures: u32,
    /// Whether the sessions have been told.
    told: bool,
    patience: Patience,
}

/// The meaning of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The Location has been unavailable for so long that its sessions must be told.
    pub(crate) told: bool,
    /// The trouble begins, or its sessions must be told for the first time: any other failure is a repetition.
    pub(crate) is_news: bool,
}

impl Setbacks {
    /// Notes a failure.
    pub(crate) fn note(&mut self, at: &LocationRef, now: Duration, patience: Patience) -> Noted {
        self.0.retain(|_, setback| setback.last + setback.patience.forgotten_after >= now);
        let first = Setback { since: now, last: now, failures: 0, told: false, patience };
        let setback = self.0.entry(at.clone()).or_insert(first);
        setback.last = now;
        setback.failures = setback.failures.saturating_add(1);
        setback.patience = patience;
        let told = setback.since + patience.told_after <= now;
        let is_news = setback.failures == 1 || (told && !setback.told);
        setback.told |= told;
        Noted { told, is_news }
    }

    /// Returns the pause before the next try: none once the sessions have been told, because their users wait.
    pub(crate) fn pause(&self, at: &LocationRef, now: Duration) -> Duration {
        match self.0.get(at) {
            Some(setback)
                if now < setback.since + setback.patience.told_after
                    && now <= setback.last + setback.patience.forgotten_after =>
            {
                let doubled = 1 << setback.failures.saturating_sub(1).min(8);
                let pause = (SHORTEST * doubled).min(setback.patience.longest_pause);
                pause - pause.mul_f64(part(at, setback.failures) * SPREAD)
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Notes that the Location was taken over. Returns whether that had failed before.
    pub(crate) fn clear(&mut self, at: &LocationRef) -> bool {
        self.0.remove(at).is_some()
    }
}

/// Returns a number from 0 to 1 for a Location's try.
fn part(at: &LocationRef, failures: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (at, failures).hash(&mut hasher);
    f64::from((hasher.finish() >> 32) as u32) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use domain::OrgId;

    use super::*;

    fn location(id: &str) -> LocationRef {
        LocationRef { org: OrgId::FIRST, location: id.parse().expect("an id") }
    }

    // Finding store 5: a short lock hold parked all acknowledged work, and retries could not heal it.
    #[test]
    fn a_location_is_tried_for_a_while_before_anyone_is_told() {
        for (patience, expected) in [(Patience::FILES, 8..=16), (Patience::STORAGE, 20..=30)] {
            let Patience { told_after, longest_pause, forgotten_after } = patience;
            let (mut setbacks, at) = (Setbacks::default(), location("loc_a"));
            let (mut now, mut tries) = (Duration::from_secs(1_000), 0);
            let begun = now;
            while !setbacks.note(&at, now, patience).told {
                let pause = setbacks.pause(&at, now);
                assert!((SHORTEST.mul_f64(0.75)..=longest_pause).contains(&pause), "{pause:?}");
                now += pause;
                tries += 1;
            }
            let took = now - begun;
            assert!(took >= told_after && took <= told_after + longest_pause, "{took:?}");
            assert!(expected.contains(&tries), "{tries} tries");
            assert_eq!(setbacks.pause(&at, now), Duration::ZERO, "its users wait for an answer");
            assert_eq!(setbacks.pause(&location("loc_b"), now), Duration::ZERO);
            assert!(setbacks.clear(&at) && !setbacks.clear(&at));
            assert!(!setbacks.note(&at, now, patience).told, "it was there in between");
            let later = now + forgotten_after + told_after;
            assert!(!setbacks.note(&at, later, patience).told, "an old failure does not count");
        }
    }

    // An unreachable repository gave 30 lines a minute in the terminal of `up`.
    #[test]
    fn only_the_begin_and_the_end_of_patience_are_news() {
        let (mut setbacks, at) = (Setbacks::default(), location("loc_a"));
        let mut news = Vec::new();
        for second in (0..=120).step_by(4) {
            let now = Duration::from_secs(1_000 + second);
            if setbacks.note(&at, now, Patience::FILES).is_news {
                news.push(second);
            }
        }
        assert_eq!(news, [0, 60]);
    }

    // Attack 1 of production: those that failed together came back together.
    #[test]
    fn locations_that_failed_together_are_tried_apart() {
        let mut setbacks = Setbacks::default();
        let mut pauses = Vec::new();
        for nth in 0..1_000 {
            let at = location(&format!("loc_{nth}"));
            for _ in 0..8 {
                setbacks.note(&at, Duration::ZERO, Patience::STORAGE);
            }
            pauses.push(setbacks.pause(&at, Duration::ZERO));
        }
        let mut seconds = [0; 31];
        for pause in pauses {
            seconds[pause.as_secs() as usize] += 1;
        }
        // From 22.5 s to 30 s.
        assert!(seconds[23..30].iter().all(|tries| (90..180).contains(tries)), "{seconds:?}");
    }
}
