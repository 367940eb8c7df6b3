//! The schedule of retries. Pure: the caller counts, sleeps and draws the random number.

use std::time::Duration;

use crate::ErrorReason;

/// An exponential back-off with jitter that respects the wait a provider asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The wait after the first failure; it doubles with each one.
    pub base: Duration,
    /// Retries after the first attempt.
    pub max_retries: u32,
    /// Of these, the retries of requests that the provider may have worked on and charged for: it fell
    /// silent, or its answer broke off. Each may cost as much again.
    pub max_paid_retries: u32,
    /// The longest wait that a provider can demand. Nobody is kept waiting for longer ones: they end the retries.
    pub max_retry_after: Duration,
}

impl Default for Schedule {
    /// 2, 4, 8 and 16 s (± 20 %), two of them paid. A provider can demand 15 minutes.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(2),
            max_retries: 4,
            max_paid_retries: 2,
            max_retry_after: Duration::from_mins(15),
        }
    }
}

impl Schedule {
    /// Returns the wait after `failed` attempts (1 after the first), the last of which failed for `reason`.
    /// `None` if a retry would not help or none is left, or if the provider asks for more than `max_retry_after`.
    /// `rand` is any random number; it moves the wait by up to 20 % either way. The wait is never shorter than the
    /// provider asks for.
    #[must_use]
    pub fn next_delay(&self, failed: u32, reason: &ErrorReason, rand: u64) -> Option<Duration> {
        if !reason.is_retryable() {
            return None;
        }
        self.wait(failed, reason.retry_after_ms().map(Duration::from_millis), rand)
    }

    /// Returns whether another retry is allowed after `failed` requests that may have been charged, including
    /// the last.
    #[must_use]
    pub fn allows_paid(&self, failed: u32) -> bool {
        failed <= self.max_paid_retries
    }

    /// Returns the wait whatever the last failure was. `asked` is the wait that the provider asks for.
    #[must_use]
    pub fn wait(&self, failed: u32, asked: Option<Duration>, rand: u64) -> Option<Duration> {
        let failed = failed.max(1);
        if failed > self.max_retries {
            return None;
        }
        let doubled = self.base.saturating_mul(2u32.saturating_pow(failed - 1));
        let asked = asked.unwrap_or_default();
        (asked <= self.max_retry_after).then(|| jittered(doubled, rand).max(asked))
    }
}

/// Returns between 80 % and 120 % of `wait`.
fn jittered(wait: Duration, rand: u64) -> Duration {
    const STEPS: u32 = 1000;
    let step = u32::try_from(rand % (u64::from(STEPS) + 1)).unwrap_or(STEPS);
    let swing = wait / 5 * 2; // from the bottom to the top of the range
    (wait - wait / 5).saturating_add(swing / STEPS * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Delivery;

    const LOST: ErrorReason = ErrorReason::Transport { delivery: Delivery::Ambiguous };

    fn limited(ms: u64) -> ErrorReason {
        ErrorReason::RateLimit { retry_after_ms: Some(ms) }
    }

    #[test]
    fn waits_double_and_end_after_four() {
        let schedule = Schedule::default();
        let middle = 500; // of the range of the jitter
        let waits: Vec<_> =
            (1..=6).map(|failed| schedule.next_delay(failed, &LOST, middle)).collect();
        let seconds = |s| Some(Duration::from_secs(s));
        assert_eq!(waits, [seconds(2), seconds(4), seconds(8), seconds(16), None, None]);
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        let schedule = Schedule::default();
        let waits: Vec<_> =
            (0..=2000).filter_map(|rand| schedule.next_delay(1, &LOST, rand)).collect();
        assert_eq!(waits.iter().min(), Some(&Duration::from_millis(1600)));
        assert_eq!(waits.iter().max(), Some(&Duration::from_millis(2400)));
        assert!(schedule.next_delay(4, &LOST, u64::MAX).is_some());
    }

    #[test]
    fn the_provider_can_ask_for_more_but_not_for_hours() {
        let schedule = Schedule::default();
        let wait = |ms| schedule.next_delay(1, &limited(ms), 500);
        assert_eq!(wait(0), Some(Duration::from_secs(2)));
        assert_eq!(wait(60_000), Some(Duration::from_mins(1)));
        assert_eq!(wait(900_000), Some(Duration::from_mins(15)));
        assert_eq!(wait(86_400_000), None);
    }

    #[test]
    fn what_cannot_succeed_is_not_tried_again() {
        let schedule = Schedule::default();
        assert_eq!(schedule.next_delay(1, &ErrorReason::Authentication, 0), None);
        assert_eq!(schedule.next_delay(1, &ErrorReason::ContextOverflow, 0), None);
        let none = Schedule { max_retries: 0, ..schedule };
        assert_eq!(none.next_delay(1, &LOST, 0), None);
    }

    #[test]
    fn a_schedule_without_a_base_only_waits_as_asked() {
        let schedule = Schedule { base: Duration::ZERO, ..Schedule::default() };
        assert_eq!(schedule.next_delay(3, &LOST, 7), Some(Duration::ZERO));
        assert_eq!(schedule.next_delay(3, &limited(20), 7), Some(Duration::from_millis(20)));
    }
}
