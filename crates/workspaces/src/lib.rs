//! How a workspace is filled from a repository, and how its work goes out: addresses, plans, and git's command lines.
//!
//! ```text
//! Address ─▶ resolve(refs) ─▶ Pinned ─▶ wanted(refs, known) ─▶ pack ─▶ skeleton(.git) ─▶ measure ─▶ check out
//!                                                                        └─ after a takeover: restore ─▶ missing files
//! ```
//!
//! Nothing here has an effect. It runs nothing: a worker runs [`Git`] in a cell, because git obeys what a repository's files and
//! configuration say (filters, hooks, monitors), whatever is forbidden on its command line.

mod address;
mod bounds;
mod command;
mod listing;
mod out;
mod pinned;
mod seal;
mod skeleton;

pub use address::{Address, AddressError, Wanted};
pub use bounds::{FillBounds, Measured, TooLarge};
pub use command::{
    ChangesAsked, Git, check_out, check_out_changes, check_out_missing, index_known_pack,
    index_pack, index_upload, measure, show_changes, take_upload,
};
pub use git_wire::{Oid, RefName};
pub use listing::{ListingError, parse_refs, write_refs};
pub use out::{Out, OutFound, bundle, patch};
pub use pinned::{MAX_HAVES, Pinned, ResolveError, resolve, wanted};
pub use seal::belongs;
pub use skeleton::{Skeleton, skeleton};
