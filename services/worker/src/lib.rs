//! The worker role: holds leases on Locations and runs the Session Drains of their sessions.
//!
//! ```text
//! heartbeat thread ──leases──▶ ┐
//! hints (wake, interrupt, …) ─▶ executor ──▶ drains (at most `slots`; more wait, fairly by organisation)
//! sweep, every second ────────▶ ┘  raises the fence of a new lease before anything starts there
//! ```
//!
//! Invariant: nothing starts at a Location before its fence is raised to our token (I10). The sweep finds everything
//! that a hint can bring, only later; no hint is believed. Absent on purpose: the work of a drain, which is
//! `session`.

mod cache;
mod collect;
mod deletions;
mod disk;
mod errands;
mod executor;
mod fair;
mod fill;
mod heartbeat;
mod location;
mod options;
mod setbacks;
mod start;
mod strikes;
mod sweep;
mod told;
mod usage;
mod words;

pub use disk::WorkspaceDisk;
pub use fill::Fills;
pub use options::{WorkerOptions, WorkerParts};
pub use start::{RunningWorker, WorkerReadiness, start};
