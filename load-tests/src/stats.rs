//! Percentiles of durations.

use std::time::Duration;

/// Durations of one kind, sorted on demand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the nearest-rank percentile in milliseconds; NaN without samples.
    pub(crate) fn ms(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(rank).map_or(f64::NAN, |sample| sample.as_secs_f64() * 1000.0)
    }
}

/// Returns the median of a few values; the lower middle of an even number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_seen() {
        let mut samples = Samples::default();
        for ms in [4, 1, 3, 2] {
            samples.push(Duration::from_millis(ms));
        }
        assert_eq!([1, 50, 75, 99, 100].map(|p| samples.ms(p)), [1.0, 2.0, 3.0, 4.0, 4.0]);
        assert!(Samples::default().ms(50).is_nan());
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
