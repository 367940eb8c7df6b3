//! The rules of placement, pure: `(state, index, batch) → state, effects`. No I/O, no clock, no
//! randomness, so that every member comes to the same state and a test can replay any history.
//!
//! ```text
//! Register ─▶ worker ─Assign─▶ lease(token = generation, index) ─Release | Retire─▶ nobody's
//! ```
//!
//! Invariant I10: at most one owner per Location and token, and the tokens of a Location only grow.
//! Absent on purpose: who is alive. That is for the leader to watch; here it is only
//! told, with [`Command::Retire`].

mod choose;
mod command;
mod image;
mod state;
#[cfg(test)]
mod tests;

pub use choose::{Load, choose};
pub use command::{Batch, Command, Commands, Effect, MAX_COMMANDS, VERSION};
pub use image::ImageError;
pub use state::{ApplyError, MAX_ENDED, MAX_RETIRED, Standing, State};
