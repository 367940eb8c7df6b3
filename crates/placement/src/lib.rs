//! Assigns each Location to one worker at a time, survives the loss of a minority of its members, and never
//! gives the same token twice.
//!
//! ```text
//! worker ──heartbeat──▶ leader ──Retire, Assign──▶ Raft log ──▶ rules::State on every member
//! gateway ──place─────▶   │ └──Assigned, Wake──▶ Signals
//! store ──ready work──▶ sweep
//! ```
//!
//! [`rules`] is pure. [`PlacementNode`] hosts it in openraft with a durable log; a process starts that.
//! Workers and gateways use `placement-api` and never link this crate.
//!
//! Invariants: tokens of a Location only grow, across leaders, restarts and generations (I10). Heartbeats are
//! not log entries. A new leader waits one suspicion period before it declares any worker dead. Silence of
//! placement stops no running work.
//! Absent on purpose: sessions (placement knows Locations), SQL ([`ReadyWork`] is the store's), and any trust
//! in a lease's time: the fence in each write keeps two workers apart.

mod fnv;
mod host;
pub mod rules;

pub use host::{
    DiskError, LocalPlacement, MemberReadiness, NodeError, Options, PlacementNode, ReadyWork,
    ReadyWorkError, SWEEP_LIMIT, Timing,
};
