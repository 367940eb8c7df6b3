//! Runs every background task of a process under an owner that can stop it and tells how it ended.
//!
//! `process group ─▶ role group ─▶ child group (a drain) ─▶ tasks`
//!
//! A [`TaskGroup`] is a node in a tree of cancellation: stopping a group stops all below it, and
//! waiting for a group waits for all below it. Each task states by its [`TaskKind`] what an error
//! of it means and what it does when the group is stopped. [`detached`] is for work that must reach
//! its end although nobody waits for it any more.
//!
//! Invariant: this is the only crate of ours that calls `tokio::spawn`.
//! Absent on purpose: restarts (who owns a loop knows what a retry may do) and scheduling.

mod detached;
mod group;
mod kind;
mod outcome;

pub use detached::detached;
pub use group::{ShutdownReport, TaskGroup, TaskHandle};
pub use kind::{OnCancel, OnError, TaskKind};
pub use outcome::{EndedTask, Outcome, TaskFailure};
pub use tokio_util::sync::CancellationToken;
