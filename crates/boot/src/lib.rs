//! The start-up parts of a role: data folder, child servers, log, and shutdown signals.
//!
//! ```text
//! DataDir ─lock─▶ Postgres::start ─▶ guard (sh) ─exec─▶ postgres     telemetry::init
//!                 Nats::start     ─▶ guard (sh) ─exec─▶ nats-server  signals::watch ─▶ "stop"
//! ```
//!
//! Invariant: a child server never outlives its data folder's owner for long. A [`GuardedChild`] has a
//! watcher that reads a pipe from us. However our process dies, the pipe closes and the watcher stops the
//! child. Any server that still survives is found by its pid file at the next start.
//! Invariant: we start our own Postgres in our own folder, and never touch one that the user runs.
//!
//! Absent on purpose: SQL (the store crate migrates), flags and settings (the executable has them).

mod data_dir;
mod disk;
mod error;
mod guarded;
mod log_file;
mod log_line;
mod nats;
mod ports;
mod postgres;
mod programs;
pub mod signals;
mod supervise;
pub mod telemetry;
mod user;

pub use data_dir::{DataDir, default_data_dir};
pub use disk::ensure_free_space;
pub use error::BootError;
pub use guarded::{GuardedChild, GuardedCommand, StopSignal};
pub use nats::{Nats, NatsOptions, NatsRole};
pub use ports::{free_port, listen};
pub use postgres::{
    Connection, DATABASE, Durability, Launched, Postgres, PostgresOptions, SUPERUSER,
};
