use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Diagnostic, Remarks, Severity, add};
use crate::named_text::ReadText;
use crate::permissions::Layer;
use crate::read::{config, markdown_agent, markdown_command};
use crate::sheet::Sheet;

/// The most bytes of one file that count.
pub const MAX_FILE_BYTES: usize = 256 * 1024;

/// The most permission rules of a project, in all of its files.
const MAX_RULES: usize = 2_000;

/// The folder of settings in a directory.
const FOLDER: &str = ".opencode/";

/// A settings file of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsFile {
    /// Its path from the top of the project, with `/`.
    pub path: String,
    /// Its text, or the beginning of it.
    pub text: String,
    /// Whether the file is longer than the text. Such a file does not count.
    pub more: bool,
}

/// The settings of an organisation: its text, read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OrganisationSettings {
    pub(crate) sheet: Sheet,
    /// Remarks on the text.
    pub diagnostics: Vec<Diagnostic>,
}

/// The settings in the files of a project: only the entries that count, so that no secret of a file is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectSettings {
    pub(crate) sheet: Sheet,
    /// Remarks on the files.
    pub diagnostics: Vec<Diagnostic>,
    /// The agents whose files cannot be read, with file, line and reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unreadable: BTreeMap<String, String>,
}

/// The kind of a settings file, by its path.
enum FileKind<'p> {
    Config,
    Agent(&'p str),
    Command(&'p str),
}

impl OrganisationSettings {
    /// Reads an organisation's text: JSON with comments, like an `opencode.json`, and `projects_may_allow`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut remarks = Remarks::new("");
        let mut read = |_: &Path| -> Result<String, String> {
            Err("there are no files with an organisation's settings".to_owned())
        };
        let sheet = config(text, Layer::Organisation, &mut read, &mut remarks).unwrap_or_default();
        Self { sheet, diagnostics: remarks.into_all() }
    }

    /// Returns whether an entry of the text is wrong.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl ProjectSettings {
    /// Reads a project's files, which name no others. A later file wins over an earlier one; other files than settings are
    /// passed over.
    #[must_use]
    pub fn parse(files: &[SettingsFile]) -> Self {
        let mut read = |_: &Path| -> Result<String, String> {
            Err("nothing but settings files is here".to_owned())
        };
        Self::parse_with(files, &mut read)
    }

    /// Does the same as [`Self::parse`], where `read` reads the files that settings name as `{file:…}`.
    #[must_use]
    pub fn parse_with(files: &[SettingsFile], read: &mut ReadText<'_>) -> Self {
        let mut settings = Self::default();
        for file in files {
            let Some(kind) = FileKind::of(&file.path) else { continue };
            let mut remarks = Remarks::new(&file.path);
            let sheet = if file.more || file.text.len() > MAX_FILE_BYTES {
                let most = MAX_FILE_BYTES / 1024;
                remarks.error(0, format!("the file has more than {most} KiB and does not count"));
                None
            } else {
                match kind {
                    FileKind::Config => config(&file.text, Layer::Project, read, &mut remarks),
                    FileKind::Agent(name) => markdown_agent(name, &file.text, read, &mut remarks),
                    FileKind::Command(name) => {
                        markdown_command(name, &file.text, read, &mut remarks)
                    }
                }
            };
            match sheet {
                Some(sheet) if settings.sheet.count_rules() + sheet.count_rules() > MAX_RULES => {
                    remarks.error(
                        0,
                        format!("a project has at most {MAX_RULES} permission rules: the file does not count"),
                    );
                    settings.lose_agent(&kind, &remarks);
                }
                Some(mut sheet) => {
                    for (name, change) in &mut sheet.agents {
                        let lost = change.lost.take().map(|why| (name.clone(), why));
                        settings.unreadable.extend(lost);
                    }
                    settings.sheet.merge(sheet);
                }
                None => settings.lose_agent(&kind, &remarks),
            }
            for diagnostic in remarks.into_all() {
                add(&mut settings.diagnostics, diagnostic);
            }
        }
        settings
    }

    /// Adds a file, or a folder of files, that is there and cannot be read. `why` is a sentence.
    pub fn add_unread(&mut self, path: &str, why: &str) {
        let mut remarks = Remarks::new(path);
        remarks.error(0, format!("nothing of it counts: {why}"));
        if let Some(kind) = FileKind::of(path) {
            self.lose_agent(&kind, &remarks);
        }
        for diagnostic in remarks.into_all() {
            add(&mut self.diagnostics, diagnostic);
        }
    }

    /// Adds a remark that the project's sessions tell, on a file that is none of settings. `why` is a sentence.
    pub fn add_remark(&mut self, path: &str, line: u32, why: &str) {
        let mut remarks = Remarks::new(path);
        remarks.idle(line, why);
        for diagnostic in remarks.into_all() {
            add(&mut self.diagnostics, diagnostic);
        }
    }

    /// Remembers the agent of a file that cannot be read.
    fn lose_agent(&mut self, kind: &FileKind<'_>, remarks: &Remarks<'_>) {
        if let (FileKind::Agent(name), Some(error)) = (kind, remarks.first_error()) {
            self.unreadable.insert((*name).to_owned(), error.message_with_place());
        }
    }

    /// Returns the settings as bytes for the store: canonical, so that equal settings are equal bytes.
    ///
    /// # Errors
    /// Never for settings that were read; the error is `serde_json`'s.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads what [`to_json`](Self::to_json) wrote, in this build or another.
    ///
    /// # Errors
    /// It is not what this build can read.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl<'p> FileKind<'p> {
    fn of(path: &'p str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or(path);
        if name == "opencode.json" || name == "opencode.jsonc" {
            return Some(Self::Config);
        }
        let path = path.strip_suffix(".md")?;
        // A file in a folder below has that folder in its name: `git/save`.
        path.match_indices(FOLDER).find_map(|(at, _)| {
            let is_whole = at == 0 || path[..at].ends_with('/');
            let (kind, name) = path[at + FOLDER.len()..].split_once('/')?;
            match kind {
                "agent" | "agents" if is_whole => Some(Self::Agent(name)),
                "command" | "commands" if is_whole => Some(Self::Command(name)),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> SettingsFile {
        SettingsFile { path: path.into(), text: text.into(), more: false }
    }

    #[test]
    fn secrets_of_a_file_are_not_in_the_settings() {
        let text = r#"{"provider": {"x": {"options": {"apiKey": "hush"}}}, "mcp": {"y": {"environment": {"K": "hush"}}},
            "permission": {"bash": "ask"}}"#;
        let settings = ProjectSettings::parse(&[file("opencode.json", text)]);
        let json = settings.to_json().expect("JSON");
        assert!(!json.contains("hush") && json.contains("bash"), "{json}");
        assert_eq!(ProjectSettings::from_json(&json).expect("its own"), settings);
        assert!(settings.diagnostics.iter().all(|remark| remark.severity == Severity::Note));
    }

    #[test]
    fn files_are_known_by_their_places() {
        let agent = "---\ndescription: Looks\nmode: subagent\n---\nLook.";
        let command = "---\nagent: look\n---\nGo $1";
        let settings = ProjectSettings::parse(&[
            file(".opencode/agent/look.md", agent),
            file("a/.opencode/commands/go.md", command),
            file(".opencode/agents/team/look.md", agent),
            file("a/.opencode/command/git/all/save.md", command),
            file("agent/not.md", agent),
            file("a.opencode/agent/not.md", agent),
            file(".opencode/not.md", agent),
            file(".opencode/skills/x/SKILL.md", agent),
        ]);
        assert_eq!(settings.sheet.agents.keys().collect::<Vec<_>>(), ["look", "team/look"]);
        assert_eq!(settings.sheet.commands.keys().collect::<Vec<_>>(), ["git/all/save", "go"]);
        assert_eq!(settings.sheet.commands["go"].agent.as_deref(), Some("look"));
        assert_eq!(settings.diagnostics, []);
    }

    // Next report 31: the instructions were the letters `{file:…}`, and nobody was told.
    #[test]
    fn an_agent_has_the_text_of_the_file_it_names() {
        let text = "{\"agent\": {\n\"look\": {\"prompt\": \"{file:./look.txt}\"},\n\"lost\": {\"prompt\": \"{file:no.txt}\"}},
            \"command\": {\"go\": {\"template\": \"{file:./look.txt} Go.\"},\n\"gone\": {\"template\": \"{file:no.txt}\"}}}";
        let files = [file("a/opencode.json", text)];
        let mut read = |path: &Path| match path.to_str() {
            Some("a/./look.txt") => Ok("Look.\n".to_owned()),
            Some(_) | None => Err("there is no such file".to_owned()),
        };
        let settings = ProjectSettings::parse_with(&files, &mut read);
        assert_eq!(settings.sheet.agents["look"].instructions.as_deref(), Some("Look."));
        assert_eq!(settings.sheet.commands.keys().collect::<Vec<_>>(), ["go"]);
        assert_eq!(settings.sheet.commands["go"].template, "Look. Go.");
        let why = "a/opencode.json:3: `{file:no.txt}` cannot be put in: there is no such file";
        assert_eq!(settings.unreadable["lost"], why);
        let errors: Vec<_> = settings.diagnostics.iter().map(Diagnostic::place).collect();
        assert_eq!(errors, ["a/opencode.json:3", "a/opencode.json:5"]);
        let stored = settings.to_json().expect("JSON");
        assert_eq!(ProjectSettings::from_json(&stored).expect("its own"), settings);
        assert!(OrganisationSettings::parse(text).has_errors(), "it has no files");
    }

    #[test]
    fn a_file_that_is_too_long_does_not_count() {
        let long =
            SettingsFile { more: true, ..file("opencode.json", r#"{"permission": "deny"}"#) };
        let settings = ProjectSettings::parse(&[
            long,
            file(".opencode/opencode.jsonc", "{\"titles\": false}"),
        ]);
        assert!(settings.sheet.rules.is_empty());
        assert_eq!(settings.sheet.bounds.titles, Some(false));
        assert!(settings.diagnostics[0].message.contains("256 KiB"), "{settings:?}");
    }

    #[test]
    fn a_project_has_so_many_rules() {
        let rules: Vec<_> = (0..900).map(|n| format!("\"tool{n}\": \"ask\"")).collect();
        let text =
            format!("{{\"agent\": {{\"build\": {{\"permission\": {{{}}}}}}}}}", rules.join(","));
        let files =
            ["opencode.json", "a/opencode.json", "a/b/opencode.json"].map(|path| file(path, &text));
        let settings = ProjectSettings::parse(&files);
        assert_eq!(settings.sheet.count_rules(), 1_800);
        assert_eq!(settings.diagnostics[0].path, "a/b/opencode.json");
    }

    #[test]
    fn a_row_of_a_newer_build_is_read() {
        let newer =
            r#"{"sheet": {"newer": 1, "default_agent": "x"}, "diagnostics": [], "more": {}}"#;
        let settings = ProjectSettings::from_json(newer).expect("readable");
        assert_eq!(settings.sheet.default_agent.as_deref(), Some("x"));
    }
}
