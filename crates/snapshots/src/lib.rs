//! Snapshots of a Location's files: content-addressed trees in object storage, and what is made of them.
//!
//! ```text
//! files ─stat index→ changed ─SHA-256→ blobs, trees ─zstd→ one pack ─▶ o/<org>/snapshot/<location>-<token>-…
//!   ▲                                                                      │
//!   └──────── restore: beside, then rename ◀── diff of two trees ◀─────────┘
//! ```
//!
//! A tree's id is the hash of all that it holds, so equal ids are equal files, and what two trees share is stored
//! once. A pack is stored before anything names it: who has a [`Captured`] can write its row, and a row's
//! packs hold every object of its tree.
//!
//! Invariant: an object counts as kept only once its pack's row is committed ([`Shadow::committed`]); until then
//! every further capture packs it again.
//! Invariant: a file is restored whole or not at all, and [`Unsaved::Keep`] never removes or replaces what no pack has.
//! Invariant: nothing outside the Location's directory is read or written, whatever symlinks there are.
//!
//! Absent: rows, events, when to capture, collecting packs that no row names. Ignored files, special files, owners,
//! times and extended attributes are in no snapshot; see the README.

mod change;
mod compare;
mod contents;
mod directory;
mod error;
mod index;
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

pub use change::{ChangeStatus, FileChange, FileChanges, diff};
pub use error::SnapshotError;
pub use limits::SnapshotLimits;
pub use object::TreeId;
pub use objects::BLOB_KIND;
pub use restore::{Restored, Unsaved};
pub use rules::{IgnoreFiles, IgnoreRules};
pub use scan::{Skipped, Why};
pub use shadow::{Captured, PackRef, Shadow, ShadowOptions};
pub use touched::Touched;

#[cfg(test)]
mod tests;
