//! Following a session: what is committed, in order and without a gap, and live text between commits.
//!
//! ```text
//! hints ─┐                      ┌─▶ stream of one client (catches up from Postgres, then joins)
//!  tick ─┼▶ reader of a session ┼─▶ stream of another, the organisation's feed (stock dialect)
//!   own ─┘   (one per gateway)  └─▶ held requests (events alone)
//! ```
//!
//! Invariant: a reader subscribes to hints, then reads Postgres, then trusts hints; with all of them lost
//! the tick finds every commit within a second (I5). What this gateway has committed itself needs no read
//! when it is the very next of the log, proved under the lock under which events are sent; else it is read
//! like any other. A slow client is cut with an explicit `resync`,
//! never skipped ahead.

mod cursor;
mod followed;
mod frame;
mod hub;
mod live;
mod org;
mod reader;
mod stream;

pub(crate) use cursor::{Cursor, Step};
pub(crate) use followed::Want;
pub(crate) use frame::data_of;
pub(crate) use hub::Hub;
pub(crate) use org::{Feeds, HoldGuard, StockFrame};
pub(crate) use stream::{LogStream, sse_response};
