//! Session rules: the decisions of a Session Drain, as pure functions over its history.
//!
//! ```text
//! History ──┐
//! Rules ────┼─▶ decide(&mut Draft) ─▶ Verdict::Write(what comes next, how the drain goes on, Site)
//! facts ────┘        │                        └▶ the shell writes the draft's events, or decides again
//!                    └ pushes events, folded as they are pushed
//! ```
//!
//! A decision may be made twice: a write that comes too late changes nothing, and the decision is made again on the
//! newer log. So a decision reads [`Rules`], the [`Draft`] and earlier observations, and nothing else. Each write
//! names its [`Site`]; the list of sites is the list of crash points.
//!
//! Invariants: everything that influences the model is an event before it is in a request; no call's body runs before
//! its intent is written as *started* (I8); a settled turn has no open call.
//! Absent on purpose: I/O, time, randomness, tasks. The `session` crate is the shell that has them. The `sim` crate
//! is another shell, which decides when each of them fails.

/// Returns whether to make a deliberate mistake. Always false without the feature `mutants`.
#[cfg(feature = "mutants")]
macro_rules! mutated {
    ($mutant:ident) => {
        crate::mutants::is(crate::mutants::Mutant::$mutant)
    };
}
#[cfg(not(feature = "mutants"))]
macro_rules! mutated {
    ($mutant:ident) => {
        false
    };
}

mod agents;
mod asks;
mod begin;
mod boundary;
mod compact;
mod controls;
mod draft;
mod effective;
mod ending;
mod estimate;
mod files;
mod fork;
mod inbox;
mod leave_out;
mod limits;
mod models;
#[cfg(feature = "mutants")]
mod mutants;
mod observed;
mod open;
mod permission;
mod recover;
mod reply;
mod revert;
mod rules;
mod said;
mod scope;
mod settle;
mod site;
mod spending;
mod tail;
mod texts;
mod title;
mod tools;

pub use agents::{Agent, Agents};
pub use asks::Answered;
pub use boundary::{Closed, Next, TurnPlan};
pub use compact::Compacted;
pub use controls::MovePlan;
pub use draft::{Draft, Drafted, Verdict};
pub use ending::Replied;
pub use fork::{Forked, fork};
pub use inbox::PromotionBounds;
pub use models::{FixedModels, ModelFacts, ModelSource, Models, ResolvedModel};
#[cfg(feature = "mutants")]
pub use mutants::{Mutant, put_in};
pub use observed::Observation;
pub use permission::ReadScope;
pub use recover::{Recovery, unclear};
pub use reply::{Reply, storable};
pub use revert::{FilesPlan, PutBack, RestoredFiles};
pub use rules::{CompactionSettings, RuleSettings, Rules, WorkspaceState};
pub use said::{Heard, Said};
pub use settle::settled_as;
pub use site::Site;
pub use spending::SpendingStop;
pub use title::Titled;
pub use tools::{ChangedTools, ReadNeeds, ToolFacts};
