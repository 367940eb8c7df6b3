//! Bounds on what a snapshot holds and tells.

use std::time::Duration;

/// Bounds of one Location's snapshots. What is beyond a file's bound is left out and named; what is beyond the
/// whole's is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Largest file, in bytes; a larger one is in no snapshot.
    pub file_bytes: u64,
    /// Largest file below a `.git` that is kept, in bytes; with a larger one that `.git` is left out as a whole,
    /// since half of it is worth nothing.
    pub git_file_bytes: u64,
    /// Files, links and directories of a Location.
    pub entries: usize,
    /// Levels of directories; what is deeper is left out.
    pub depth: usize,
    /// Bytes of content, before compression, that one capture may add.
    pub capture_bytes: u64,
    /// Changes that are listed; the rest is counted.
    pub changes: usize,
    /// Largest patch, in bytes; a larger one is left out, its lines are counted.
    pub patch_bytes: usize,
    /// Largest file that is compared line by line, in bytes.
    pub compared_bytes: u64,
    /// How long all patches of one list may take; then the rest is listed without.
    pub patch_time: Duration,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            file_bytes: 16 * 1024 * 1024,
            git_file_bytes: 64 * 1024 * 1024,
            entries: 200_000,
            depth: 128,
            capture_bytes: 4 * 1024 * 1024 * 1024,
            changes: 1_000,
            patch_bytes: 16 * 1024,
            compared_bytes: 512 * 1024,
            patch_time: Duration::from_secs(1),
        }
    }
}
