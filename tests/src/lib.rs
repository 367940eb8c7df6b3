//! Drives the real service from outside, as processes: for the journeys in `tests/it`, and for fault runs.
//!
//! ```text
//! World ─┬─ simulated model (in this process, scripted by the test) ◀─HTTP─┐
//!        ├─ Up       `opencode-cloud up`          ─┐                       │
//!        ├─ Cluster  `opencode-cloud dev-cluster` ─┴─ Process (guarded) ───┘
//!        └─ a temporary folder: data, workspaces, logs
//! Api ─HTTP, SSE─▶ the service          Cli ─▶ client subcommands          oracle ─▶ I1–I11 hold
//! ```
//!
//! Invariant: no process outlives its test. A [`Process`] dies with its owner, however that ends, and a [`World`]
//! ends every process that still names its folder. Every wait has a deadline.
//! Absent on purpose: the service's own client library. Journeys read plain JSON, like other people's scripts.

mod api;
mod cli;
mod cluster;
mod executable;
pub mod faults;
pub mod network;
mod oracle;
mod orphans;
mod past;
mod postgres;
mod process;
mod settle;
mod sql;
mod sse;
mod standby;
mod up;
mod went_back;
mod world;

pub use api::{Answer, Api, message_id};
pub use cli::{Cli, Ended, Running};
pub use cluster::{Cluster, Member};
pub use executable::{executable, repository};
pub use oracle::{Verdict, oracle, oracle_of};
pub use orphans::{Found, ancestors, processes_naming};
pub use past::Past;
pub use postgres::{PostgresServer, init_postgres};
pub use process::Process;
pub use settle::{events_of, eventually, within};
pub use sql::{another_organisation, superuser_url};
pub use sse::{Follow, Frame};
pub use standby::{Commits, StandbyPair};
pub use up::Up;
pub use went_back::{LossyDatabase, WentBack, WentBackRun};
pub use world::{KEY, World};
