//! Instruction files: `AGENTS.md` and the like, as two Context Sources.
//!
//! The ambient instructions (the organisation's, then the project's, from the farthest directory to the
//! Location's own) are one value. A change to any file sends the complete set again, which supersedes the
//! previous one. Instructions in directories below the Location are found as the model works there; each new
//! file is sent by itself. The snapshot stores digests instead of texts, because every later update carries a
//! whole snapshot.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The key of the ambient instructions.
pub const INSTRUCTIONS_KEY: SourceKey = SourceKey::fixed("core/instructions");
/// The key of the instructions in directories below the Location.
pub const NESTED_KEY: SourceKey = SourceKey::fixed("core/nested-instructions");

/// The most bytes of one instruction file that the model receives.
pub const MAX_FILE_BYTES: usize = 64 * 1024;
/// The most bytes of all files of each of the two sources.
pub const MAX_TOTAL_BYTES: usize = 256 * 1024;
/// The most files of each of the two sources.
pub const MAX_FILES: usize = 32;

/// One instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionFile {
    /// The file's path, as shown to the model; the same on every worker.
    origin: String,
    /// The file's text.
    text: String,
}

/// The snapshot's record of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToldFile {
    origin: String,
    sha256: String,
}

impl InstructionFile {
    /// Makes a file from its text, which was read up to [`MAX_FILE_BYTES`]; `more` if the file is longer.
    /// `None` if the text is blank.
    #[must_use]
    pub fn new(origin: &str, text: &str, more: bool) -> Option<Self> {
        let kept = &text[..text.floor_char_boundary(MAX_FILE_BYTES)];
        let more = more || kept.len() < text.len();
        // Postgres text cannot contain NUL.
        let mut text = kept.trim_end().replace('\0', "\u{FFFD}");
        if text.trim_start().is_empty() {
            return None;
        }
        if more {
            text.push_str(&format!("\n(cut here: only the first {MAX_FILE_BYTES} bytes are told)"));
        }
        Some(Self { origin: one_line(origin), text })
    }

    fn told(&self) -> ToldFile {
        let sha256 = hex::encode(Sha256::digest(self.text.as_bytes()));
        ToldFile { origin: self.origin.clone(), sha256 }
    }
}

/// Returns a path on one line, even if its directories have odd names.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

fn list<'f>(files: impl IntoIterator<Item = &'f InstructionFile>) -> String {
    let one = |file: &InstructionFile| format!("Instructions from: {}\n{}", file.origin, file.text);
    files.into_iter().map(one).collect::<Vec<_>>().join("\n\n")
}

/// Bounds the total size. Files that come last in `priority` are left out first.
fn bounded(
    mut files: Vec<InstructionFile>,
    priority: impl Iterator<Item = usize>,
) -> Vec<InstructionFile> {
    let mut left = MAX_TOTAL_BYTES;
    for index in priority {
        let text = &mut files[index].text;
        if text.len() > left {
            *text = format!("(left out: only {MAX_TOTAL_BYTES} bytes of instructions are told)");
        } else {
            left -= text.len();
        }
    }
    files
}

#[derive(Debug, Clone)]
struct Ambient(Vec<InstructionFile>);

impl ContextSource for Ambient {
    type Told = Vec<ToldFile>;

    fn told(&self) -> Vec<ToldFile> {
        self.0.iter().map(InstructionFile::told).collect()
    }

    fn baseline(&self) -> String {
        format!("Instructions for this workspace:\n\n{}", list(&self.0))
    }

    fn update(&self, _told: &Vec<ToldFile>) -> String {
        format!(
            "The instructions for this workspace are now the following; they replace all earlier ones:\n\n{}",
            list(&self.0)
        )
    }

    fn removal(&self) -> Option<String> {
        Some("The instructions for this workspace given before no longer apply.".into())
    }
}

/// Returns the ambient instructions: the organisation's, then the project's, the nearest last. Absent if
/// there are none.
#[must_use]
pub fn instructions(
    organisation: Option<InstructionFile>,
    project: Vec<InstructionFile>,
) -> SystemContext {
    let first = usize::from(organisation.is_some());
    let far = project.len().saturating_sub(MAX_FILES - first);
    let files: Vec<_> = organisation.into_iter().chain(project.into_iter().skip(far)).collect();
    let priority = (0..first).chain((first..files.len()).rev());
    let files = bounded(files, priority);
    let loaded = if files.is_empty() { Loaded::Absent } else { Loaded::Value(Ambient(files)) };
    SystemContext::make(INSTRUCTIONS_KEY, loaded)
}

/// Returns the ambient instructions as unavailable.
#[must_use]
pub fn instructions_unavailable(why: String) -> SystemContext {
    SystemContext::make::<Ambient>(INSTRUCTIONS_KEY, Loaded::Unavailable(why))
}

#[derive(Debug, Clone)]
struct Nested(Vec<InstructionFile>);

impl ContextSource for Nested {
    type Told = Vec<ToldFile>;

    fn told(&self) -> Vec<ToldFile> {
        self.0.iter().map(InstructionFile::told).collect()
    }

    fn baseline(&self) -> String {
        format!(
            "Instructions for parts of this workspace, each for its directory and all below:\n\n{}",
            list(&self.0)
        )
    }

    fn update(&self, told: &Vec<ToldFile>) -> String {
        let gone = told.iter().filter(|told| !self.0.iter().any(|file| file.origin == told.origin));
        let mut texts: Vec<String> = gone
            .map(|told| format!("The instructions from {} no longer apply.", told.origin))
            .collect();
        let new: Vec<_> = self.0.iter().filter(|file| !told.contains(&file.told())).collect();
        if !new.is_empty() {
            texts.push(format!(
                "More instructions for parts of this workspace, each for its directory and all below; one \
                 replaces what was told from the same place:\n\n{}",
                list(new)
            ));
        }
        if texts.is_empty() {
            // Only the order of the files has changed.
            texts.push(self.baseline());
        }
        texts.join("\n\n")
    }

    fn removal(&self) -> Option<String> {
        Some("The instructions for parts of this workspace given before no longer apply.".into())
    }
}

/// Returns the instructions of directories below the Location, in the order in which they were found. Absent
/// if there are none.
#[must_use]
pub fn nested_instructions(mut files: Vec<InstructionFile>) -> SystemContext {
    files.truncate(MAX_FILES);
    let count = files.len();
    let files = bounded(files, 0..count);
    let loaded = if files.is_empty() { Loaded::Absent } else { Loaded::Value(Nested(files)) };
    SystemContext::make(NESTED_KEY, loaded)
}

/// Returns the instructions of directories below the Location as unavailable.
#[must_use]
pub fn nested_unavailable(why: String) -> SystemContext {
    SystemContext::make::<Nested>(NESTED_KEY, Loaded::Unavailable(why))
}

#[cfg(test)]
mod tests;
