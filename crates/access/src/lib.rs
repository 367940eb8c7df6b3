//! The words of access, and the one decision over them: who may do what.
//!
//! ```text
//! standing (actor, role, scopes) + need ─decide─▶ yes, or which of them is missing
//! standing + deed + whose key ─decide_key─▶ yes, or why not
//! ```
//!
//! Invariants: a higher role may all that a lower one may; a key may never more than its owner; a service account is
//! never an owner. [`POLICY`] is the only place that says which role a need wants, and `docs/security.md` prints it.
//! Absent on purpose: I/O, time, which route has which need (`api`), how an actor is proved (`auth`, `store`).

mod actor;
mod decide;
mod key_deed;
mod need;
mod role;
mod scope;

pub use actor::{Actor, ActorError};
pub use decide::{Decision, Missing, POLICY, Standing, decide, policy_table};
pub use key_deed::{KeyDecision, KeyDeed, decide_key};
pub use need::Need;
pub use role::{OrgRole, UnknownRole};
pub use scope::{Bundle, Scopes, UnknownScope};
