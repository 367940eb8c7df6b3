//! Git's protocol over HTTP, the half that reads: what a client says to `git-upload-pack`, and what it hears.
//!
//! ```text
//! GET  info/refs?service=git-upload-pack ─▶ Advertised     what the server can do
//! POST git-upload-pack   ls_refs()       ─▶ RefList        its branches and tags
//! POST git-upload-pack   fetch()         ─▶ PackReader     one pack with all that is new
//! ```
//!
//! That is version 2. A server of version 0 or 1 answers the first request with its refs ([`OldServer`]), and the second has
//! the pack ([`PackReader::of_old`]).
//!
//! Everything is pure: it reads no clock, opens nothing and runs nothing. Each input comes from a stranger, so each reader
//! has bounds and refuses what it does not know.
//!
//! Absent on purpose: pushes, and repositories with SHA-256 objects.

mod advertised;
mod name;
mod oid;
mod old;
mod pack;
mod packet;
mod refs;
mod request;

pub use advertised::Advertised;
pub use name::{RefName, RefNameError};
pub use oid::{Oid, OidError};
pub use old::OldServer;
pub use pack::{PackEvent, PackReader};
pub use packet::{MAX_PACKET, Packet, Packets, WireError, encode};
pub use refs::{Listed, MAX_REFS, RefList};
pub use request::{AGENT, fetch, ls_refs};
