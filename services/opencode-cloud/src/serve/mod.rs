//! The server side of the executable: `up`, `serve`, `dev-cluster`, and each role as a process of its own.
//!
//! ```text
//! up ─▶ Postgres (ours) ─▶ provision, migrate ─▶ placement · worker · gateway in one process
//! dev-cluster ─▶ Postgres, NATS ─▶ 3 × placement, 2 × gateway, 3 × worker: the same roles as processes
//! ```
//!
//! Invariant: both assemble a role with the same code. Only this module reads flags of servers.

pub mod args;
mod blobs;
mod bootstrap;
mod catalog;
pub mod cluster;
pub mod credentials_cmd;
mod disk;
pub mod doctor_cmd;
mod egress;
mod error;
mod gateway_role;
mod greeting;
mod hidden;
pub mod kubernetes;
pub mod level_cmd;
mod metrics;
pub mod migrate;
mod model;
mod network;
pub mod owner_link_cmd;
mod period;
pub mod placement_cmd;
mod placement_role;
mod price;
mod reports;
pub(crate) mod rights;
pub mod roles;
pub mod secrets;
pub mod secrets_cmd;
pub mod tls;
mod tool_policy;
mod traces;
pub mod up;
mod worker_role;

pub use error::ServeError;
