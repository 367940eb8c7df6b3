//! The executable `opencode-cloud` as a library, so that journeys can drive it too: the client's commands and the
//! roles of a server.
//!
//! ```text
//! cli ─▶ run ──────────┐
//!     ─▶ session_cmd   ├─▶ client ──HTTP──▶ gateway
//!     ─▶ session_change│
//!     ─▶ explain_cmd   │      └▶ LogFollower ─▶ run_state (when is it over?) · render (what is shown?)
//!     ─▶ rebuild_cmd ──┘
//!     ─▶ llm_cmd: one call of a model in neutral JSON, without a service
//!     ─▶ simulated: the simulated model as a process of its own
//! ```
//!
//! Invariant: whatever happens to its connection, a client never prints a text twice and never loses one. The log has
//! no gaps in `seq`, and live text is addressed by (part, byte offset).

mod ask_cmd;
mod attach_cmd;
pub mod cli;
pub mod client;
mod config;
mod credential_cmd;
mod error;
mod explain_cmd;
mod here;
mod key_cmd;
mod limit_cmd;
pub mod llm_cmd;
mod login_cmd;
pub mod models_cmd;
mod open_cmd;
pub mod output;
pub mod profile;
mod project_cmd;
mod prompt_input;
mod provider_cmd;
mod ready_cmd;
mod rebuild_cmd;
pub mod render;
pub mod run;
pub mod run_ask;
mod run_filling;
mod run_session;
pub mod run_state;
mod secret_input;
pub mod serve;
mod session_change;
mod session_cmd;
mod session_files;
mod session_list;
mod session_open;
mod session_pull;
mod sign_in;
mod simulated;
mod sso_cmd;
mod table;
pub mod transfer;
mod usage_cmd;
mod user_cmd;

pub use error::CliError;

/// The hidden subcommand that runs a tool's supervisor. `sandbox::ProcessSandbox` calls it.
pub const TOOL_SUPERVISOR: &str = "tool-supervisor";

/// The hidden subcommand that runs the launcher of cells: what `sandbox::CellOptions` names.
pub const TOOL_LAUNCHER: &str = "tool-launcher";
