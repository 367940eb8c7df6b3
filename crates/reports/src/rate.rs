//! The most reports of a minute.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most reports that leave in a minute.
pub const A_MINUTE: u32 = 60;

#[derive(Default)]
pub(crate) struct Rate(Mutex<Minute>);

#[derive(Default)]
struct Minute {
    began: Option<Instant>,
    sent: u32,
    suppressed: u32,
}

impl Rate {
    /// Returns how many reports were suppressed since the last one; `None` if this one is to be.
    pub(crate) fn admit(&self) -> Option<u32> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u32> {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |began| now.saturating_duration_since(began) >= Duration::from_secs(60);
        if minute.began.is_none_or(is_over) {
            (minute.began, minute.sent) = (Some(now), 0);
        }
        if minute.sent == A_MINUTE {
            minute.suppressed = minute.suppressed.saturating_add(1);
            return None;
        }
        minute.sent += 1;
        Some(std::mem::take(&mut minute.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (rate, now) = (Rate::default(), Instant::now());
        let sent = (0..100).filter_map(|_| rate.admit_at(now)).count();
        assert_eq!(sent, 60);
        let later = now + Duration::from_secs(60);
        assert_eq!((rate.admit_at(later), rate.admit_at(later)), (Some(40), Some(0)));
    }
}
