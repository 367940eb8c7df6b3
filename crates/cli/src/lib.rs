//! The commands of a person: what they ask of the service, and how they show it.
//!
//! ```text
//! cli ─▶ run ──────────┐
//!     ─▶ session_cmd   ├─▶ client ──HTTP──▶ gateway
//!     ─▶ session_change│
//!     ─▶ explain_cmd   │      └▶ LogFollower ─▶ run_state (when is it over?) · render (what is shown?)
//!     ─▶ rebuild_cmd ──┘
//!     ─▶ llm_cmd: one call of a model in neutral JSON, without a service
//! ```
//!
//! Invariant: whatever happens to its connection, a command never prints a text twice and never loses one. The log has
//! no gaps in `seq`, and live text is addressed by (part, byte offset).
//! Absent on purpose: servers, SQL, and flags of servers. The executable puts them beside these commands.

mod ask_cmd;
mod attach_cmd;
mod cli;
mod credential_cmd;
mod error;
mod explain_cmd;
pub mod help;
mod here;
mod key_cmd;
mod limit_cmd;
pub mod llm_cmd;
mod login_cmd;
pub mod models_cmd;
mod open_cmd;
pub mod output;
mod permission_cmd;
mod program;
mod project_cmd;
mod prompt_input;
mod provider_cmd;
mod ready_cmd;
mod rebuild_cmd;
mod recovery_cmd;
pub mod render;
pub mod run;
pub mod run_ask;
mod run_end;
mod run_filling;
mod run_session;
pub mod run_state;
mod run_view;
mod secret_input;
mod session_change;
mod session_cmd;
mod session_files;
mod session_list;
mod session_name;
mod session_open;
mod session_pull;
mod sign_in;
mod sso_cmd;
mod table;
pub mod transfer;
mod unreached;
mod usage_cmd;
mod user_cmd;
mod wrap;

pub use cli::{Command, execute};
pub use error::CliError;
pub use program::program;
pub use run_session::wide_directory_warning;
