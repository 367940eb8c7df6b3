use std::time::Duration;

use rand::RngExt;

/// The timing of retries.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The pause before the first retry; each further one doubles it.
    pub first_delay: Duration,
    /// The longest pause.
    pub max_delay: Duration,
    /// How long we try without progress.
    pub patience: Duration,
    /// How long a stream may be silent before it counts as dead. The service pings every 15 s.
    pub silence: Duration,
    /// How long the answer to an ordinary call may take.
    pub answer: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            patience: Duration::from_secs(120),
            silence: Duration::from_secs(45),
            answer: Duration::from_secs(60),
        }
    }
}

impl Pace {
    /// Returns the pause after the `failures`-th failure in a row, counted from 1: exponential, bounded, with jitter
    /// so that the clients of a restarted gateway do not all return at once.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self.first_delay.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.max_delay).mul_f64(rand::rng().random_range(0.5..1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_stay_bounded() {
        let pace = Pace::default();
        assert!(pace.delay(1) <= pace.first_delay);
        assert!(pace.delay(4) >= pace.first_delay * 4);
        for failures in 0..100 {
            assert!(pace.delay(failures) <= pace.max_delay);
        }
    }
}
