use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

words! {
    /// The decision of a rule about the calls that it matches.
    pub enum RuleAction {
        /// They may run.
        Allow = "allow",
        /// They may not.
        Deny = "deny",
        /// Somebody is asked. As long as nobody can be, they may not run.
        Ask = "ask",
    }
}

/// A session's rule about tool calls, as its client gave it. Of the rules that match a call the last one decides; a call
/// that none matches may run. A rule about a tool that there is not is kept, since a later build may have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolRule {
    /// The tool, by any of its [`rule_names`]. `*` stands for any text, `?` for one character.
    pub permission: String,
    /// The calls: a path for files, the command for `shell`, otherwise what is looked for. `*` and `?` as above.
    pub pattern: String,
    /// The decision about them.
    pub action: RuleAction,
}

/// The names that rules, settings and prompts of clients have for a tool: its own and those of released tools that do
/// the same. Changing a file is one permission, whichever tool does it.
#[must_use]
pub fn rule_names(tool: &str) -> &[&str] {
    match tool {
        "shell" => &["shell", "bash"],
        "edit" | "write" | "apply_patch" => &["edit", "write", "multiedit", "patch", "apply_patch"],
        "glob" => &["glob", "list"],
        "read" => &["read"],
        "grep" => &["grep"],
        "skill" => &["skill"],
        "todowrite" => &["todowrite"],
        "todoread" => &["todoread"],
        "webfetch" => &["webfetch"],
        "question" => &["question"],
        _ => &[],
    }
}

/// Returns whether a path has a name where secrets usually are, so that leave to read it is saved for this path alone.
#[must_use]
pub fn is_secret_path(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".env") || name.contains(".env.")
}

/// A permission that somebody has given a project for good.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SavedPermission {
    /// The permission's name.
    pub action: String,
    /// The pattern: one of those that an ask offered to save, word for word.
    pub pattern: String,
}
