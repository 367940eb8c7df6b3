//! The files of a drain's Location: captured after calls that may have changed them, and restored by a Revert.
//!
//! ```text
//! settlement ─▶ capture ─────────────────────▶ row, in the drain's next write
//!    ╰────────▶ next provider call ─▶ reply ─▶ its calls wait for that, if they may change files
//! ```
//!
//! Invariant: a call that may change files starts once the state before it is durable, or nobody waits for that any
//! longer.
//! Invariant: a drain without calls that may change files looks at no files.

mod capture;
mod held;
mod put_back;
mod slot;
mod wait;

pub(crate) use capture::{changes, tree};
pub use held::{Files, FilesCounts, FilesError, FilesOptions, SnapshotSettings};
pub(crate) use slot::FileSlot;
pub(crate) use wait::unless_ends;
