//! Bounds on snapshots and on lists of changes.

use std::time::Duration;

/// Bounds of one Location's snapshots. A file beyond its bound is left out and named; a whole beyond its
/// bound is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// The largest file in a snapshot, in bytes.
    pub file_bytes: u64,
    /// The largest file below a `.git`, in bytes. A `.git` with a larger one is left out entirely, because
    /// half of it is useless.
    pub git_file_bytes: u64,
    /// The most files, links and directories of a Location.
    pub entries: usize,
    /// The most levels of directories. Deeper files are left out.
    pub depth: usize,
    /// The most bytes of content, before compression, that one Capture may add.
    pub capture_bytes: u64,
    /// The most listed changes; the rest are counted.
    pub changes: usize,
    /// The largest patch, in bytes. A larger one is left out, but its lines are counted.
    pub patch_bytes: usize,
    /// The largest file that is compared line by line, in bytes.
    pub compared_bytes: u64,
    /// The longest time for all patches of one list. After that, files are listed without patches.
    pub patch_time: Duration,
    /// Whether a tree with a `.git` keeps the names of the files that are too large for it, in [`LARGE_FILES`]. Then a
    /// restore is able to tell a file that was deleted from one that was left out.
    pub lists_large: bool,
}

/// The file with the names of the files that a tree left out because they are too large: each with a NUL
/// byte behind it. It is in trees and in restored directories, and no capture reads it.
pub const LARGE_FILES: &str = ".git/oc-large-files";

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
            lists_large: false,
        }
    }
}
