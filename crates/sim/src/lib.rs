//! A deterministic simulation of the cluster: the decisions of `session-rules` over a model of the store, with
//! workers, gateways, placement and a provider that fail as one seed decides.
//!
//! ```text
//! seed ─▶ actions in virtual time ─▶ Rules ─▶ SimStore ─▶ events ─▶ checks after every action
//!            ▲ faults, crash points                                └▶ faults stop: everything must settle
//! ```
//!
//! A history is evidence for four reasons. The rules are those of the service. `crates/store/tests/it/model/` compares
//! the model of the store with Postgres. A run that never met one of the crash points is rejected. And the checks find
//! each [`Mutant`], a known mistake that was put in on purpose.
//!
//! Absent on purpose: I/O, threads within a history, wall clocks.

mod check;
mod drain;
mod fault;
mod mutant;
mod provider;
mod rng;
mod run;
mod store;
mod trace;
mod world;

pub use check::Violation;
pub use fault::{Fault, Faults, NOT_SIMULATED, When};
pub use mutant::{Mutant, ShellMutant, StoreMutant};
pub use rng::Rng;
pub use run::{Report, Story, history, run, unseen};
pub use store::{
    Admission, Append, Basis, Change, Head, Input, InputStatus, Interrupted, Known, Look, Proof,
    SimSession, SimStore, Written,
};
