use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::{Hint, Signals, Subscription, Topic};

/// Loses some hints on purpose, to prove that hints are only hints. Journeys run with all of them lost; only
/// latency may change.
///
/// The number of earlier hints alone decides whether a hint is lost, so runs are repeatable.
pub struct Dropping {
    inner: Arc<dyn Signals>,
    /// A hint is lost if its hash is below this.
    threshold: u64,
    published: AtomicU64,
    dropped: AtomicU64,
}

impl Dropping {
    /// Loses `fraction` of the hints published through it: 0 none, 1 all. Values are clamped to that range;
    /// NaN loses none.
    #[must_use]
    pub fn wrap(inner: Arc<dyn Signals>, fraction: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 0..=1, and `as` saturates"
        )]
        let threshold = (fraction.clamp(0.0, 1.0) * (u64::MAX as f64)) as u64;
        Self { inner, threshold, published: AtomicU64::new(0), dropped: AtomicU64::new(0) }
    }

    /// Returns the number of lost hints. A fault test that lost none proves nothing.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn loses(&self, nth: u64) -> bool {
        self.threshold == u64::MAX || spread(nth) < self.threshold
    }
}

/// The finaliser of splitmix64: turns neighbouring inputs into unrelated values.
fn spread(nth: u64) -> u64 {
    let mut mixed = nth.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[async_trait]
impl Signals for Dropping {
    fn publish(&self, topic: &Topic, hint: Hint) {
        let nth = self.published.fetch_add(1, Ordering::Relaxed);
        if self.loses(nth) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.inner.publish(topic, hint);
        }
    }

    async fn subscribe(&self, topic: Topic) -> Subscription {
        self.inner.subscribe(topic).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InProcess;

    fn lost_of_a_thousand(fraction: f64) -> usize {
        let dropping = Dropping::wrap(Arc::new(InProcess::new()), fraction);
        (0..1_000).filter(|nth| dropping.loses(*nth)).count()
    }

    #[test]
    fn the_fraction_decides_how_many_hints_are_lost() {
        assert_eq!(lost_of_a_thousand(0.0), 0);
        assert_eq!(lost_of_a_thousand(1.0), 1_000);
        assert_eq!(lost_of_a_thousand(f64::NAN), 0);
        let half = lost_of_a_thousand(0.5);
        assert!((450..550).contains(&half), "{half}");
    }
}
