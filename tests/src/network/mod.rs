//! A cluster in network namespaces, one for each role, under partitions, vanished flows, lost folders and full disks.
//!
//! ```text
//! driver, model ── hub (bridge) ──┬── pg   nats
//!                                 ├── p1 p2 p3     placement members
//!                                 ├── w1 w2 w3     workers
//!                                 └── g1 g2        gateways        iptables in each namespace cuts it off
//! ```
//!
//! The verdict checks two promises. Nothing acknowledged is lost, by the oracle over all rows. And while a majority
//! of members, Postgres, a worker and a gateway reach each other, a turn ends at least every five seconds.
//! It needs root, `ip`, `iptables`, Postgres and `nats-server`. It touches no network but its own.

mod lab;
mod load;
mod roles;
mod scenario;

pub use lab::{HUB, Lab};
pub use scenario::{Outcome, SCENARIOS, Scenario, run_all};
