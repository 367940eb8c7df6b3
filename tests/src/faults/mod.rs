//! Fault runs: a real cluster under load while its parts are killed, stopped and cut off, then the oracle.
//!
//! ```text
//! seed ─▶ plan (pure) ───────────▶ injector ─SIGKILL, SIGSTOP, pg_terminate_backend─▶ cluster
//!      └▶ workload (pure) ─▶ clients, a session each ─admit, retry, drop, interrupt──▶   │
//!                            followers, a session each ◀─logs, now here, now there───────┤
//!                            reborn: sessions deleted and made anew under the same id ───┤
//!                            hostile: deep trees, full disks, huge inboxes, odd counts ──┘
//! faults stop ─▶ everything settles ─▶ oracle + judge ─▶ a verdict, if coverage says that faults took effect
//! ```
//!
//! Invariant: a run in which a kind of fault had no effect (nobody was killed during a turn, no zombie was fenced, …)
//! is rejected as *not exercised*, whatever its verdict.
//! The seed decides all choices, but their timing is the machine's. So a seed narrows a failure down and does not
//! replay it.

mod client;
mod coverage;
mod follower;
mod hostile;
mod injector;
mod judge;
mod persistent;
mod plan;
mod reborn;
mod rolling;
mod run;
mod shared;
pub(crate) mod tool_processes;
mod workload;

pub use coverage::{Coverage, Sight};
pub use plan::{Fault, Step, plan};
pub use rolling::{Rolled, rolling_restarts};
pub use run::{FaultRun, NotExercised, Report};

pub(crate) use judge::PromptFates;
pub(crate) use shared::locked;
