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
//! cut off with an explicit `resync`; its stream never skips an event. Queues are bounded by bytes, and a large event
//! waits in them as its number (docs/decisions/0097).

mod budget;
mod cursor;
mod followed;
mod frame;
mod hub;
mod live;
mod org;
mod page;
mod queue;
mod reader;
mod schema;
mod stream;

#[cfg(test)]
pub(crate) use budget::{QueueBudget, QueueLimits};
pub(crate) use cursor::{Cursor, Step};
pub(crate) use followed::Want;
pub(crate) use frame::data_of;
pub(crate) use hub::Hub;
#[cfg(test)]
pub(crate) use org::FrameSource;
pub(crate) use org::{Feeds, HoldGuard, StockFrame};
#[cfg(test)]
pub(crate) use queue::QueueSender;
pub(crate) use queue::{NoItem, QueueReader};
pub(crate) use schema::{EventSchema, FrameSchema};
pub(crate) use stream::{LogStream, sse_response};
