//! The pure rules of placement: `(state, index, batch) → state, effects`. No I/O, no clock, no randomness, so
//! that every member reaches the same state and a test can replay any history.
//!
//! ```text
//! Register ─▶ worker ─Assign─▶ lease(token = generation, index) ─Release | Retire─▶ nobody's
//! ```
//!
//! Invariant I10: a Location and token have at most one owner, and the tokens of a Location only grow.
//! Absent on purpose: deciding who is alive. The leader watches that and reports it with [`Command::Retire`].

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
