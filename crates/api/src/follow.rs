//! Streams of a session: its commits in order and without a gap, and live text between commits.
//!
//! ```text
//! hints ─┐                      ┌─▶ stream of one client (catches up from Postgres, then joins)
//!  tick ─┼▶ reader of a session ┼─▶ stream of another, the organisation's feed (stock dialect)
//!   own ─┘   (one per gateway)  └─▶ held requests (events alone)
//! ```
//!
//! Invariant: a reader subscribes to hints, then reads Postgres, then relies on hints. If all hints are lost, the
//! tick still finds every commit within a second (I5). A commit of this gateway needs no read if it is the very next
//! of the log; that is proved under the lock under which events are sent. Any other commit is read. A slow client is
//! cut off with an explicit `resync`; its stream never skips an event.

mod cursor;
mod followed;
mod frame;
mod hub;
mod live;
mod org;
mod reader;
mod schema;
mod stream;

pub(crate) use cursor::{Cursor, Step};
pub(crate) use followed::Want;
pub(crate) use frame::data_of;
pub(crate) use hub::Hub;
pub(crate) use org::{Feeds, HoldGuard, StockFrame};
pub(crate) use schema::{EventSchema, FrameSchema};
pub(crate) use stream::{LogStream, sse_response};
