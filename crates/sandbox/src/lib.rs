//! Runs one tool process so that it can never outlive its worker. Linux only.
//!
//! ```text
//! worker ──socket──▶ supervisor (setsid, subreaper) ──▶ command (own group) ──▶ …descendants
//!   ▲  reads one pipe, stdout and stderr in order          │  all re-parented to the supervisor
//!   └──────────────── Spool: head, tail, file ◀────────────┘
//! ```
//!
//! The supervisor is our own executable, run again with a hidden subcommand ([`supervisor::main`]). It waits
//! for the first of: the command's end, its deadline, and the end of the socket to the worker, which the kernel
//! closes when the worker is cancelled, dropped or killed in any way. Then it kills every descendant with
//! SIGKILL, reports and exits. (A parent-death signal would fire when a *thread* of the worker ends, so it is of
//! no use from a pool of threads.)
//!
//! Invariant: once [`Sandbox::run`] has returned `Ok`, no process of the command is left: neither one that called
//! `setsid`, nor one that the command left in the background.
//!
//! Absent: isolation. A command runs with the worker's user, files and network, and could kill its own supervisor
//! or the worker. The tier with namespaces, landlock and limits is another [`Sandbox`].

mod closed;
mod command;
mod control;
mod environment;
mod kill;
pub mod lock;
mod process;
mod spool;
pub mod supervisor;
mod text;

pub use closed::close_to_other_processes;
pub use command::{Command, End, Outcome, Sandbox, SandboxError};
pub use environment::Environment;
pub use lock::LocationLock;
pub use process::ProcessSandbox;
pub use spool::Output;
pub use text::TextDecoder;
