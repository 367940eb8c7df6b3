//! The kinds of metrics, each with at most two labels.

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The bounds of durations, in seconds: from a statement to a turn of an hour.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1., 2.5, 10., 60., 600.];

/// The values of a metric's labels, in the order of their names. An unused one has no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Labels {
    names: [&'static str; 2],
    values: [&'static str; 2],
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        let pairs = self.names.into_iter().zip(self.values).filter(|(name, _)| !name.is_empty());
        let pairs: Vec<_> = pairs.collect();
        pairs.encode(encoder)
    }
}

fn labels(names: [&'static str; 2], values: [&'static str; 2]) -> Labels {
    Labels { names, values }
}

/// Something that happens.
#[derive(Debug, Clone)]
pub struct Count {
    names: [&'static str; 2],
    family: Family<Labels, Counter>,
}

impl Count {
    pub(crate) fn add(&self, values: [&'static str; 2], by: u64) {
        self.family.get_or_create(&labels(self.names, values)).inc_by(by);
    }
}

/// Something that is now.
#[derive(Debug, Clone)]
pub struct Level {
    names: [&'static str; 2],
    family: Family<Labels, Gauge<i64, AtomicI64>>,
}

impl Level {
    /// Sets the level of a metric without labels.
    pub fn set(&self, value: usize) {
        self.set_of(["", ""], value);
    }

    /// Counts one more until the returned value is dropped.
    #[must_use]
    pub fn held(&self) -> Holding {
        let gauge = self.family.get_or_create(&labels(self.names, ["", ""])).clone();
        gauge.inc();
        Holding(gauge)
    }

    pub(crate) fn set_of(&self, values: [&'static str; 2], value: usize) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.family.get_or_create(&labels(self.names, values)).set(value);
    }
}

/// One of those that a [`Level`] counts.
#[derive(Debug)]
pub struct Holding(Gauge<i64, AtomicI64>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Durations.
#[derive(Debug, Clone)]
pub struct Times {
    names: [&'static str; 2],
    family: Family<Labels, Histogram, Buckets>,
}

#[derive(Debug, Clone)]
pub(crate) struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(SECONDS)
    }
}

impl Times {
    /// Notes a duration of a metric without labels.
    pub fn took(&self, duration: Duration) {
        self.took_of(["", ""], duration);
    }

    pub(crate) fn took_of(&self, values: [&'static str; 2], duration: Duration) {
        let child = self.family.get_or_create(&labels(self.names, values));
        child.observe(duration.as_secs_f64());
    }
}

/// Makes a metric and registers it.
pub(crate) trait Kind: Sized {
    /// The word for people.
    const WORD: &'static str;
    /// The end that exposition adds to the name.
    const END: &'static str;

    fn register(registry: &mut Registry, name: &str, names: [&'static str; 2], help: &str) -> Self;
}

impl Kind for Count {
    const WORD: &'static str = "counter";
    const END: &'static str = "_total";

    fn register(registry: &mut Registry, name: &str, names: [&'static str; 2], help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, family.clone());
        Self { names, family }
    }
}

impl Kind for Level {
    const WORD: &'static str = "gauge";
    const END: &'static str = "";

    fn register(registry: &mut Registry, name: &str, names: [&'static str; 2], help: &str) -> Self {
        let family = Family::default();
        registry.register(name, help, family.clone());
        Self { names, family }
    }
}

impl Kind for Times {
    const WORD: &'static str = "histogram";
    const END: &'static str = "";

    fn register(registry: &mut Registry, name: &str, names: [&'static str; 2], help: &str) -> Self {
        let family = Family::new_with_constructor(Buckets);
        registry.register(name, help, family.clone());
        Self { names, family }
    }
}
