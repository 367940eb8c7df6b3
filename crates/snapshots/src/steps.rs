//! Steps of an operation, between which a test can simulate a crash.

use crate::error::SnapshotError;

/// Counts steps. Does nothing outside tests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps {
    #[cfg(test)]
    pub(crate) left: Option<std::sync::Arc<std::sync::atomic::AtomicI64>>,
}

impl Steps {
    /// Marks a point between two effects on files, blobs or the index.
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "only tests end here")
    )]
    pub(crate) fn pass(&self) -> Result<(), SnapshotError> {
        #[cfg(test)]
        if let Some(left) = &self.left
            && left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) <= 0
        {
            return Err(SnapshotError::Crash);
        }
        Ok(())
    }
}
