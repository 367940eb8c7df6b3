//! A store that fails again and again is asked rarely, so that nothing waits for it.
//!
//! ```text
//! closed ── 20 failures within 10 s ─▶ open: refuses at once, but for one request a second ── one succeeds ─▶ closed
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Failures within [`WINDOW`] that open the circuit.
const FAILURES: usize = 20;
const WINDOW: Duration = Duration::from_secs(10);
/// How often an open circuit lets a request through.
const TRIAL: Duration = Duration::from_secs(1);

/// The state. Pure: the time is passed in.
#[derive(Debug, Default)]
pub(crate) struct Circuit {
    failures: VecDeque<Instant>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    last_trial: Instant,
}

impl Circuit {
    /// Asks whether a request may be made. If not, returns how long the circuit has been open.
    pub(crate) fn ask(&mut self, now: Instant) -> Result<(), Duration> {
        match &mut self.open {
            None => Ok(()),
            Some(open) if now >= open.last_trial + TRIAL => {
                open.last_trial = now;
                Ok(())
            }
            Some(open) => Err(now.saturating_duration_since(open.since)),
        }
    }

    /// Notes that the store answered, whatever it said.
    pub(crate) fn answered(&mut self) {
        self.failures.clear();
        self.open = None;
    }

    /// Notes that it failed. Returns whether this opened the circuit.
    pub(crate) fn failed(&mut self, now: Instant) -> bool {
        self.failures.push_back(now);
        while self.failures.front().is_some_and(|first| *first + WINDOW < now) {
            self.failures.pop_front();
        }
        let opens = self.open.is_none() && self.failures.len() >= FAILURES;
        if opens {
            self.open = Some(Open { since: now, last_trial: now });
        }
        opens
    }

    /// Returns whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circuit_opens_tries_once_a_second_and_closes() {
        let (mut circuit, start) = (Circuit::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for nth in 0..FAILURES as u64 - 1 {
            assert!(!circuit.failed(at(nth)));
        }
        assert!(circuit.ask(at(50)).is_ok() && circuit.failed(at(50)) && circuit.is_open());
        assert_eq!(circuit.ask(at(60)), Err(Duration::from_millis(10)));
        assert!(circuit.ask(at(1_060)).is_ok(), "a trial");
        assert!(circuit.ask(at(1_070)).is_err(), "one trial a second");
        assert!(!circuit.failed(at(1_080)), "it is open already");
        assert!(circuit.ask(at(2_100)).is_ok());
        circuit.answered();
        assert!(circuit.ask(at(2_101)).is_ok() && !circuit.is_open());
    }

    #[test]
    fn failures_far_apart_open_nothing() {
        let (mut circuit, start) = (Circuit::default(), Instant::now());
        for nth in 0..200 {
            assert!(!circuit.failed(start + Duration::from_millis(600 * nth)));
        }
    }
}
