//! Runs what a tenant steers: apart from the machine, from the service and from other tenants, and never longer than its
//! worker. Linux only.
//!
//! ```text
//! worker ──▶ launcher ──fork──▶ keeper, one for each cell ──fork──▶ init, one for each command ──fork──▶ command ─▶ …
//!   │         no secrets        namespaces, root, lock              pid 1 of its own namespace
//!   └── reads one pipe, stdout and stderr in order: Spool (head, tail, file)
//! ```
//!
//! A *cell* is what commands of one session share: network, `/tmp`, home, limits. [`find_tier`] tries what this machine gives:
//! cells by root's rights (A), cells in user namespaces (B), landlock and a filter alone (C), or nothing. In the last two an
//! ordinary supervisor runs each command ([`ProcessSandbox`]).
//!
//! Invariants:
//! - Once [`Sandbox::run`] has returned `Ok`, no process of the command is left: neither one that called `setsid`, nor one that
//!   the command left in the background. The Location's lock is free only then.
//! - A step that fails while a sandbox is made is an error: a command never runs in less than its tier.
//!
//! Absent: the proxy at the end of a cell's way out, which is given ([`Exits`]), and gVisor.

mod cell;
mod checkout;
mod closed;
mod command;
mod control;
mod disk;
mod environment;
mod exit;
mod filter;
mod folders;
mod hidden;
mod init;
mod keeper;
mod kill;
pub mod launcher;
mod limits;
mod live_output;
pub mod lock;
mod memory;
mod outputs;
mod process;
mod removal;
mod rights;
mod root;
mod spool;
pub mod supervisor;
mod sys;
mod tally;
mod text;
mod tier;
mod toolchain;
mod userns;
mod walls;
mod watch;
mod wire;

pub use cell::{CellOptions, CellSandbox};
pub use closed::close_to_other_processes;
pub use command::{
    Bytes, Cell, Command, DiskShare, End, Limit, Network, OUTPUTS, Outcome, OutputFile, Sandbox,
    SandboxError,
};
pub use disk::{Disk, DiskLimits, Room};
pub use environment::Environment;
pub use exit::{EXIT_PORT, Exits, Opening, Reach, Refusals};
pub use hidden::{HiddenFiles, HiddenPaths};
pub use limits::Limits;
pub use live_output::{LiveOutput, OutputEnd};
pub use lock::LocationLock;
pub use process::ProcessSandbox;
pub use removal::{ScratchFolder, empty_folder, remove_tree};
pub use rights::{has_rights_of_launchers, keep_needed_rights, keep_rights_to_files};
pub use spool::Output;
pub use text::TextDecoder;
pub use tier::{FoundTier, Tier, TierOptions, find_tier};
pub use toolchain::Toolchains;
pub use walls::landlock_abi;
