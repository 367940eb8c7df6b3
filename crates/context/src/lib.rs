//! System Context: what a model is told about where it works, and how it is told of changes.
//!
//! ```text
//! sources ─observe→ SystemContext ─initialize→ Baseline System Context + Context Snapshot
//!                                 └reconcile with the snapshot→ unchanged | updated
//! ```
//!
//! Invariant: pure. The same observations give the same bytes, in the order in which they were combined.
//! Absent on purpose: I/O (the `session` crate observes), the rules of Context Epochs (it applies them).

mod algebra;
mod date;
mod environment;

pub use algebra::{
    Blocked, Combined, ContextSnapshot, DuplicateKey, Initialized, Observation, Observed,
    Reconciled, SourceState, SystemContext,
};
pub use date::{DATE_KEY, date};
pub use environment::{ENVIRONMENT_KEY, EnvironmentFacts, environment};
