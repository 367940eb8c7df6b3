//! The tools that a model can call in one Location, and the bounds on their results.
//!
//! ```text
//! ToolCall ─parse→ Tool::run ─▶ ToolOutcome ─settle→ Settlement: bounded text, structured result, managed path
//!   raw text │        │ files: openat2 beneath the Location           └─ complete text ─▶ blobs
//!            │        └ shell: sandbox
//!            └ bad JSON, unknown tool, wrong type: a failed call; the model gets the reason
//! ```
//!
//! Invariant: no path from a model opens anything outside its Location, whatever symlinks exist and even if
//! someone moves them meanwhile. The only exception is a Managed Tool Output File, by its name.
//! Invariant: a settlement's text is within its [`Limits`], and nothing larger is ever passed on.
//!
//! Absent: permissions, the store, and the use of a settlement. Only its sandbox bounds `shell`.

mod alike;
mod apply_patch;
mod arguments;
pub mod bound;
mod call;
mod edit;
mod encoding;
mod files;
mod git_files;
mod glob;
mod grep;
mod line_ends;
mod lines;
mod names;
mod needs;
mod outputs;
mod question;
mod read;
mod replace;
mod set;
mod settle;
mod shell;
mod skill;
mod skills;
mod spelling;
mod suggest;
mod terminal;
mod texts;
mod todo;
mod walk;
mod webfetch;
mod write;

pub use bound::Limits;
pub use call::{
    Probe, ReadRules, Stopped, Text, ToolCall, ToolContext, ToolDefinition, ToolOutcome,
};
pub use needs::needs;
pub use outputs::{BLOB_KIND, MANAGED_PREFIX, ManagedOutputs, OrgOutputs, Unlisted};
pub use set::{Tool, ToolSet};
pub use settle::{Settlement, settle};
pub use skill::SkillScope;
pub use skills::{FoundSkill, SkillPlaces, project_top};
pub use terminal::as_terminal_shows;
pub use texts::{FoundText, LocationTexts};
pub use todo::TaskList;
