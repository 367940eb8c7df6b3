//! The executable `opencode-cloud` as a library: it wires the commands of a person and the roles of a server.
//!
//! ```text
//! command_line ─▶ cli: the commands of a person, over `client`
//!              ─▶ serve: the roles of a server, each alone or all in one process
//!              ─▶ simulated: the simulated model as a process of its own
//! ```

pub mod command_line;
mod config;
mod error;
pub mod serve;
mod simulated;

pub use error::Failure;

/// The hidden subcommand that runs a tool's supervisor. `sandbox::ProcessSandbox` calls it.
pub const TOOL_SUPERVISOR: &str = "tool-supervisor";

/// The hidden subcommand that runs the launcher of cells: what `sandbox::CellOptions` names.
pub const TOOL_LAUNCHER: &str = "tool-launcher";
