use domain::words;
use serde::{Deserialize, Serialize};

/// The most diagnostics that are kept of one set of settings.
const MAX_DIAGNOSTICS: usize = 100;
/// The most characters of a text that a message repeats.
const MAX_SHOWN: usize = 80;

words! {
    /// How much a diagnostic says.
    pub enum Severity {
        /// The entry is wrong and does not count.
        Error = "error",
        /// The entry is understood, and does not do everything that its author may expect.
        Note = "note",
    }
}

/// A remark about an entry of a settings text, for its author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How much it says.
    pub severity: Severity,
    /// The file, from the top of the project; empty for the organisation's text.
    pub path: String,
    /// The line in the file, from 1, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// One sentence, in words for people.
    pub message: String,
    /// Whether a project's sessions tell it to their users. Errors are always told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_told: bool,
}

impl Diagnostic {
    /// Returns the place of the entry: `opencode.json:12`.
    #[must_use]
    pub fn place(&self) -> String {
        self.line.map_or_else(|| self.path.clone(), |line| format!("{}:{line}", self.path))
    }

    /// Returns the message behind its place.
    pub(crate) fn message_with_place(&self) -> String {
        format!("{}: {}", self.place(), self.message)
    }
}

/// Collects the diagnostics of one file.
#[derive(Debug)]
pub(crate) struct Remarks<'a> {
    path: &'a str,
    all: Vec<Diagnostic>,
}

impl<'a> Remarks<'a> {
    pub(crate) fn new(path: &'a str) -> Self {
        Self { path, all: Vec::new() }
    }

    pub(crate) fn path(&self) -> &'a str {
        self.path
    }

    pub(crate) fn error(&mut self, line: u32, message: impl Into<String>) {
        self.push(Severity::Error, line, message.into(), true);
    }

    /// Says that an entry is wrong, and returns that with its place.
    pub(crate) fn tell_error(&mut self, line: u32, message: String) -> String {
        let (path, line) = (self.path.to_owned(), Some(line).filter(|line| *line > 0));
        let error = Diagnostic { severity: Severity::Error, path, line, message, is_told: true };
        let told = error.message_with_place();
        add(&mut self.all, error);
        told
    }

    /// Says that an entry is wrong which takes nothing from the other ones: an unknown setting, say. An organisation's text
    /// is refused for it, and a project's sessions tell it.
    pub(crate) fn stray(&mut self, line: u32, message: impl Into<String>) {
        let severity = if self.path.is_empty() { Severity::Error } else { Severity::Note };
        self.push(severity, line, message.into(), true);
    }

    /// Says that an entry has no effect on which its author may rely.
    pub(crate) fn idle(&mut self, line: u32, message: impl Into<String>) {
        self.push(Severity::Note, line, message.into(), true);
    }

    pub(crate) fn note(&mut self, line: u32, message: impl Into<String>) {
        self.push(Severity::Note, line, message.into(), false);
    }

    fn push(&mut self, severity: Severity, line: u32, message: String, is_told: bool) {
        let (path, line) = (self.path.to_owned(), Some(line).filter(|line| *line > 0));
        add(&mut self.all, Diagnostic { severity, path, line, message, is_told });
    }

    /// Returns the first error so far.
    pub(crate) fn first_error(&self) -> Option<&Diagnostic> {
        self.all.iter().find(|diagnostic| diagnostic.severity == Severity::Error)
    }

    pub(crate) fn into_all(self) -> Vec<Diagnostic> {
        self.all
    }
}

/// Adds a diagnostic, up to a bound. An error takes the place of a note: what follows from it must not depend on how many
/// notes there are.
pub(crate) fn add(all: &mut Vec<Diagnostic>, diagnostic: Diagnostic) {
    if all.len() < MAX_DIAGNOSTICS {
        all.push(diagnostic);
    } else if diagnostic.severity == Severity::Error
        && let Some(note) = all.iter().rposition(|known| known.severity == Severity::Note)
    {
        all[note] = diagnostic;
    }
}

/// Returns the beginning of a text of a file, for a message.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        shown.push('…');
    }
    shown
}
