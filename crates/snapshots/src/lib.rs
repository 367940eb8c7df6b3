//! Snapshots of a Location's files: content-addressed trees in object storage, and operations on them.
//!
//! ```text
//! files ─stat index→ changed ─SHA-256→ blobs, trees ─zstd→ one pack ─▶ o/<org>/snapshot/<location>-<token>-…
//!   ▲                                                                      │
//!   └──────── restore: beside, then rename ◀── diff of two trees ◀─────────┘
//! ```
//!
//! A tree's id is the hash of everything in it, so equal ids mean equal files, and content that two trees
//! share is stored once. A pack is stored before anything names it, so the holder of a [`Captured`] can write
//! its row. A row's packs hold every object of its tree.
//!
//! Invariant: an object counts as stored only once its pack's row is committed ([`Shadow::committed`]). Until
//! then every further Capture's pack has it too.
//! Invariant: a file is restored whole or not at all, and [`Unsaved::Keep`] never removes or replaces content
//! that is in no pack.
//! Invariant: nothing outside the Location's directory is read or written, whatever symlinks exist.
//!
//! Absent: rows, events, when to capture, collecting packs that no row names. Ignored files, special files,
//! owners, times and extended attributes are in no snapshot; see the README.

mod captured;
mod change;
mod compare;
mod contents;
mod directory;
mod error;
mod give;
mod index;
mod keep_in_pack;
mod large;
mod limits;
mod object;
mod objects;
mod pack;
mod place;
mod restore;
mod rules;
mod scan;
mod shadow;
mod steps;
mod touched;
mod travel;

pub use captured::{Captured, PackRef};
pub use change::{ChangeStatus, FileChange, FileChanges, diff, file_at};
pub use error::SnapshotError;
pub use give::give;
pub use limits::{LARGE_FILES, SnapshotLimits};
pub use object::TreeId;
pub use objects::BLOB_KIND;
pub use restore::{Restored, Unsaved};
pub use rules::{IgnoreFiles, IgnoreRules};
pub use sandbox::HiddenPaths;
pub use scan::{GIVEN_PACK, Skipped, Why};
pub use shadow::{Shadow, ShadowOptions};
pub use touched::Touched;
pub use travel::{Intake, IntakeError, Object, ObjectKind, ObjectWalk};

#[cfg(test)]
mod tests;
