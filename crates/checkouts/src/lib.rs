//! Tells people what the files of a directory on this machine say: its branch, its changes, the names in it, its skills and
//! its settings.
//!
//! ```text
//! a directory ─▶ Checkouts ─┬─ plain files, bounded, through no link ─▶ branch, names, skills, settings
//!                           └─ git in a cell, with a `.git` of its own ─▶ changes of the working tree
//! ```
//!
//! Nothing in a directory is trusted, and nothing of it runs: a repository's configuration, hooks and filters are not read.
//! Hidden paths are left out, whoever asks.
//!
//! Absent: who may ask, which directories are an organisation's, and the cell in which git runs.

mod changes;
mod checkout;
mod names;
mod repository;
mod settings_files;

pub use changes::{ChangeKind, WorkingChange};
pub use checkout::{CheckoutBranch, Checkouts, LookError, ShownSkill};
pub use names::{EntryKinds, FoundName, NameSearch};
pub use repository::read_repository;
pub use settings_files::{add_skill_remarks, project_settings};
