//! Locations whose lock or files were unavailable, and the pauses before the next try.
//!
//! ```text
//! unavailable ─▶ given back ─▶ leased again, here or elsewhere ─▶ tried again after a pause ─▶ … ─▶ told after a
//! minute
//! ```

use std::collections::HashMap;
use std::time::Duration;

use domain::LocationRef;

/// How long a Location may be unavailable before anything durable is written about it. The lock of a host that was
/// cut off, a restarting NFS server or a process that hangs in the kernel usually ends within this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before the second try. It doubles with each try, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(8);
/// After this long without a failure, the next one counts as the first.
const FORGET: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Setbacks(HashMap<LocationRef, Setback>);

struct Setback {
    /// The (monotonic) time of the first of these failures.
    since: Duration,
    last: Duration,
    failures: u32,
}

impl Setbacks {
    /// Notes a failure. Returns whether the Location has been unavailable for so long that its sessions must be told.
    pub(crate) fn note(&mut self, at: &LocationRef, now: Duration) -> bool {
        self.0.retain(|_, setback| setback.last + FORGET >= now);
        let first = Setback { since: now, last: now, failures: 0 };
        let setback = self.0.entry(at.clone()).or_insert(first);
        setback.last = now;
        setback.failures = setback.failures.saturating_add(1);
        setback.since + PATIENCE <= now
    }

    /// Returns the pause before the next try: none once the sessions have been told, because their users wait.
    pub(crate) fn pause(&self, at: &LocationRef, now: Duration) -> Duration {
        match self.0.get(at) {
            Some(setback) if now < setback.since + PATIENCE && now <= setback.last + FORGET => {
                let doubled = 1 << setback.failures.saturating_sub(1).min(8);
                (SHORTEST * doubled).min(LONGEST)
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Notes that the Location was taken over.
    pub(crate) fn clear(&mut self, at: &LocationRef) {
        self.0.remove(at);
    }
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
    fn a_location_is_tried_for_a_minute_before_anyone_is_told() {
        let (mut setbacks, at) = (Setbacks::default(), location("loc_a"));
        let (mut now, mut tries) = (Duration::from_secs(1_000), 0);
        let begun = now;
        while !setbacks.note(&at, now) {
            let pause = setbacks.pause(&at, now);
            assert!((SHORTEST..=LONGEST).contains(&pause), "{pause:?}");
            now += pause;
            tries += 1;
        }
        assert!(now - begun >= PATIENCE && now - begun <= PATIENCE + LONGEST, "{:?}", now - begun);
        assert!((8..=16).contains(&tries), "{tries} tries");
        assert_eq!(setbacks.pause(&at, now), Duration::ZERO, "its users wait for an answer");
        assert_eq!(setbacks.pause(&location("loc_b"), now), Duration::ZERO);
        setbacks.clear(&at);
        assert!(!setbacks.note(&at, now), "it was there in between");
        assert!(!setbacks.note(&at, now + FORGET + PATIENCE), "an old failure does not count");
    }
}
