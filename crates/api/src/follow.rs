//! Following a session: what is committed, in order and without a gap, and live text between commits.
//!
//! ```text
//! hints ─┐                      ┌─▶ stream of one client (catches up from Postgres, then joins)
//!  tick ─┴▶ reader of a session ┼─▶ stream of another
//!            (one per gateway)  └─▶ the organisation's feed (stock dialect)
//! ```
//!
//! Invariant: a reader subscribes to hints, then reads Postgres, then trusts hints; with all of them lost
//! the tick finds every commit within a second (I5). A slow client is cut with an explicit `resync`,
//! never skipped ahead.

mod cursor;
mod frame;
mod hub;
mod live;
mod reader;
mod stream;

pub(crate) use cursor::{Cursor, Step};
pub(crate) use frame::data_of;
pub(crate) use hub::Hub;
pub(crate) use stream::{LogStream, sse_response};
