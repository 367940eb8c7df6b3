//! Runs every background task of a process under an owner that can stop it and reports how it ended.
//!
//! `process group ─▶ role group ─▶ child group (a drain) ─▶ tasks`
//!
//! A [`TaskGroup`] is a node in a cancellation tree: stopping a group stops everything below it, and waiting
//! for a group waits for everything below it. Each task's [`TaskKind`] says what its errors mean and how it
//! reacts to a stop. [`detached`] is for work that must finish even if nobody waits for it any more.
//!
//! Invariant: this is our only crate that calls `tokio::spawn`. Absent on purpose: restarts (the owner of a
//! loop knows what a retry may do) and scheduling.

mod detached;
mod group;
mod kind;
mod outcome;

pub use detached::detached;
pub use group::{ShutdownReport, TaskGroup, TaskHandle};
pub use kind::{OnCancel, OnError, TaskKind};
pub use outcome::{EndedTask, Outcome, TaskFailure};
pub use tokio_util::sync::CancellationToken;
