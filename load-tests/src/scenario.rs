//! The measurements, one module for each subcommand.

pub(crate) mod admit;
pub(crate) mod buffers;
pub(crate) mod bytes;
pub(crate) mod commits;
pub(crate) mod compare;
pub(crate) mod context_commits;
pub(crate) mod decode;
pub(crate) mod fairness;
pub(crate) mod history;
pub(crate) mod idle;
pub(crate) mod lists;
pub(crate) mod live;
pub(crate) mod neighbours;
pub(crate) mod rate;
pub(crate) mod repositories;
pub(crate) mod sleepers;
pub(crate) mod snapshot;
pub(crate) mod snapshot_turns;
pub(crate) mod start;
pub(crate) mod streams;
pub(crate) mod takeover;
pub(crate) mod telemetry;
pub(crate) mod turns;
pub(crate) mod usage;
