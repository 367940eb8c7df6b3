//! The one projection of events in Rust: which change of messages and of the session an event makes. Pure.
//!
//! ```text
//! event ─▶ SessionState ─┬─ Conversation ─ TurnMessage ─┬─▶ Change ─▶ render ─▶ stock events
//! delta ─▶               └─ the session's row, status   │
//!                                                       └─▶ MessageRow ─▶ view ─▶ the answer of a held request
//! ```
//!
//! Invariant: the messages of a log are those that `store` has in its rows, field for field. [`MessageFold`] collects
//! them, `act/fold_check.rs` compares them with the rows, and `rebuild?check=true` reports each difference. A message
//! keeps its storage type, so every view shows both alike.
//! Absent on purpose: shapes of the wire (`view`, `render`), reads (`follow`, `act`).

mod change;
mod conversation;
mod log;
mod row;
mod session;
mod turn;

pub(crate) use change::{Change, LiveText, Status};
pub(crate) use conversation::Conversation;
pub(crate) use log::MessageFold;
pub(crate) use row::user_row;
pub(crate) use session::SessionState;

#[cfg(test)]
pub(crate) mod tests;
