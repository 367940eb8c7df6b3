use std::time::Duration;

/// Milliseconds since the Unix epoch, as events and ids carry them.
pub type TimestampMs = i64;

/// The source of time. It is passed in, so that a test or a simulation can set it.
pub trait Clock: Send + Sync + 'static {
    /// Returns wall-clock time. It may jump; used for ids, event times and the date a model sees, never for leases.
    fn now_ms(&self) -> TimestampMs;

    /// Returns the time since some fixed start; it never goes back. Leases and budgets use it.
    fn monotonic(&self) -> Duration;
}

/// The machine's own clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// Returns a clock whose monotonic time starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> TimestampMs {
        #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
