//! Sessions whose drains fail one after the other, and how long each is left alone.
//!
//! ```text
//! fails ─▶ a pause, doubled with each failure ─▶ … ─▶ the eighth in a row, after about two minutes: given up
//! ```
//!
//! A pause ends early for somebody who asks: a wake's hint is a user's. Where Postgres answers nobody, a failure is not
//! the session's: it makes a pause and does not count.

use std::collections::HashMap;
use std::time::Duration;

use domain::SessionRef;

/// Failures in a row, after which a session is given up.
const MOST: u32 = 8;
/// The pause after the first failure; doubled with each, up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// After this long without a failure the next one counts as the first.
const FORGET: Duration = Duration::from_secs(600);

/// The consequence of a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Strike {
    /// The session is left alone for this long.
    Pause(Duration),
    /// It has failed this often in a row: it is to be given up.
    Out(u32),
}

#[derive(Default)]
pub(crate) struct Strikes(HashMap<SessionRef, Struck>);

struct Struck {
    /// Failures in a row that count.
    counted: u32,
    /// All of them.
    failures: u32,
    last: Duration,
    /// Until when (monotonic) nothing starts by itself.
    until: Duration,
}

impl Strikes {
    /// A drain of the session has failed at `now` (monotonic). `counts`: the failure is the session's own.
    pub(crate) fn note(&mut self, session: &SessionRef, now: Duration, counts: bool) -> Strike {
        self.0.retain(|_, struck| struck.last + FORGET >= now);
        let none = Struck { counted: 0, failures: 0, last: now, until: now };
        let struck = self.0.entry(session.clone()).or_insert(none);
        struck.last = now;
        struck.failures = struck.failures.saturating_add(1);
        struck.counted += u32::from(counts);
        let doubled = 1 << struck.failures.saturating_sub(1).min(8);
        let pause = (SHORTEST * doubled).min(LONGEST);
        struck.until = now + pause;
        if struck.counted < MOST {
            return Strike::Pause(pause);
        }
        // If it cannot be given up, that is tried again after the next failure.
        let counted = struck.counted;
        struck.counted = MOST - 1;
        Strike::Out(counted)
    }

    /// A drain of the session did what it was to do, or the session was given up.
    pub(crate) fn clear(&mut self, session: &SessionRef) {
        self.0.remove(session);
    }

    /// Whether the session is left alone.
    pub(crate) fn rests(&self, session: &SessionRef, now: Duration) -> bool {
        self.0.get(session).is_some_and(|struck| now < struck.until)
    }

    /// The sessions that are left alone.
    pub(crate) fn resting(&self, now: Duration) -> impl Iterator<Item = &SessionRef> {
        self.0.iter().filter(move |(_, struck)| now < struck.until).map(|(session, _)| session)
    }
}

#[cfg(test)]
mod tests {
    use domain::OrgId;

    use super::*;

    fn session(id: &str) -> SessionRef {
        SessionRef {
            org: OrgId::FIRST,
            location: "loc_a".parse().expect("an id"),
            session: id.parse().expect("an id"),
        }
    }

    // Finding store 6: a session that always failed was tried again each second, for ever.
    #[test]
    fn pauses_grow_until_a_session_is_given_up() {
        let (mut strikes, one) = (Strikes::default(), session("ses_a"));
        let (mut now, mut pauses) = (Duration::from_secs(1_000), Vec::new());
        while let Strike::Pause(pause) = strikes.note(&one, now, true) {
            assert!(strikes.rests(&one, now) && !strikes.rests(&one, now + pause));
            assert!(!strikes.rests(&session("ses_b"), now), "others go on");
            pauses.push(pause.as_secs());
            now += pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(strikes.note(&one, now, true), Strike::Out(MOST), "it could not be given up");
        strikes.clear(&one);
        assert!(!strikes.rests(&one, now));
        assert_eq!(strikes.note(&one, now, true), Strike::Pause(SHORTEST));
    }

    #[test]
    fn what_is_not_its_own_makes_a_pause_and_no_end() {
        let (mut strikes, one) = (Strikes::default(), session("ses_a"));
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            let Strike::Pause(pause) = strikes.note(&one, now, false) else {
                panic!("given up though the database was away")
            };
            now += pause;
        }
        let later = now + FORGET * 2;
        strikes.note(&one, now, true);
        assert_eq!(strikes.note(&one, later, true), Strike::Pause(SHORTEST), "long ago");
        assert_eq!(strikes.resting(later).collect::<Vec<_>>(), [&one]);
    }
}
