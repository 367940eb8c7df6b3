//! The settings of a Location: agents, commands, permission rules and bounds, from the organisation and from the
//! project's files.
//!
//! ```text
//! organisation's text ──▶ OrganisationSettings ─┐
//!                                               ├─ effective() ─▶ Effective: agents, commands, permissions, bounds
//! opencode.json(c) ─┐                           │
//! .opencode/*/*.md ─┴───▶ ProjectSettings ──────┘
//! ```
//!
//! Workers and gateways call the same function, so that both have the same agents and rules.
//!
//! Invariant: a project never widens. No text of a project allows a call that the organisation or the built-in rules deny
//! or ask about, unless the organisation lists the action in `projects_may_allow`; and then it only turns *ask* into
//! *allow*. Nothing in a text makes a whole project fail: each mistake is a [`Diagnostic`]. A mistake of a project never
//! loosens either: while there is one, calls ask ([`Permissions::faults`]), and an agent whose file cannot be read is refused.
//! Absent on purpose: I/O (callers read the files, and those that `{file:…}` names), clocks, the evaluation of a rule's
//! pattern over a call (`session-rules`), providers and addresses, which never count from a project.

mod agent;
mod builtin;
mod command;
mod diagnostic;
mod document;
mod effective;
mod front;
mod merge;
mod named_text;
mod permissions;
mod read;
mod rules;
mod sheet;
mod tree;
mod value;

pub use agent::{AgentDefinition, AgentMode};
pub use command::{CommandDefinition, ExpansionTooLong};
pub use diagnostic::{Diagnostic, Severity};
pub use document::{MAX_FILE_BYTES, OrganisationSettings, ProjectSettings, SettingsFile};
pub use effective::{Bounds, Effective, effective, text_hash};
pub use named_text::ReadText;
pub use permissions::{Fault, Judgement, Layer, LayeredRule, Permissions};
