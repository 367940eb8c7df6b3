use crate::rule_names;

/// One thing that a call asks leave for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// The action, by the name that rules have for it: `edit`, `read`, `shell`, `glob`, `grep`, `skill`, `webfetch`,
    /// `todowrite` or `external_directory`, or the name of a tool of which nothing else is known.
    pub action: String,
    /// The texts that patterns are compared with, each once: see [`Need::things`].
    pub resources: Vec<String>,
    /// The patterns that leave for good would save. Empty if it may not be saved.
    pub save: Vec<String>,
    /// Something in it was not taken apart: the resource is a whole script, or one of the commands runs what it is told only
    /// when it runs (`$x`, `bash -c "$x"`, `curl … | sh`). A rule that denies counts as usual. To allow it, only `*` and the very text
    /// count, because `git *` says nothing about what else is in it; and that no pattern of a rule that denies matches does not
    /// mean that its command is not in it.
    pub is_opaque: bool,
    /// More texts of commands that may be in it: a program without its folder, words behind a program that may start them, and
    /// commands with [`UNKNOWN_TEXT`] or [`UNKNOWN_CHAR`] in the places that are known only when they run. Only rules that deny or
    /// ask are about them: they never allow anything.
    pub guises: Vec<String>,
}

/// Stands for any text, also none, in a [guise](Need::guises).
pub const UNKNOWN_TEXT: char = '\u{E000}';
/// Stands for one character that is no dash, in a [guise](Need::guises).
pub const UNKNOWN_CHAR: char = '\u{E001}';

impl Need {
    /// Returns the names of each thing that leave is needed for. A rule is about a thing if its pattern matches any of the
    /// thing's names, and all things must be allowed. The resources of `shell` are commands, of which each is a thing; other
    /// resources are the names of one: a path as it was given, from the directory, and in full.
    pub fn things(&self) -> impl Iterator<Item = &[String]> {
        let size = if self.action == "shell" { 1 } else { self.resources.len().max(1) };
        self.resources.chunks(size)
    }

    /// Returns the need of a call of which nothing but its tool is known: only rules about all calls of the tool match it.
    #[must_use]
    pub fn whole(tool: &str) -> Self {
        let action = rule_names(tool).first().copied().unwrap_or(tool).to_owned();
        Self {
            action,
            resources: Vec::new(),
            save: vec!["*".to_owned()],
            is_opaque: false,
            guises: Vec::new(),
        }
    }
}
