//! The metrics of a process: one catalogue, counted in memory and written as text when somebody asks.
//!
//! ```text
//! metrics().turn(…) ─▶ atomics ─▶ exposition(): OpenMetrics text ─▶ /metrics of the role
//! ```
//!
//! Invariant: no label has a value that a tenant can choose, and none names an organisation, a person, a session, a path
//! or a message. Names of models' providers and tools are bounded: 64 each, further ones count as `other`.
//!
//! Absent: listeners, and everything durable. A restarted process counts from zero.

mod catalogue;
mod kind;
mod names;
mod process;

pub use catalogue::{Metrics, exposition, metrics, table};
pub use kind::{Count, Holding, Level, Times};

/// The content type of [`exposition`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
