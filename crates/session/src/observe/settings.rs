//! Reads the settings files of a Location: `opencode.json(c)` and `.opencode/` in each directory from the top of its
//! project down to it, so that the nearest come last and win.

use std::io;
use std::path::Path;

use sandbox::HiddenPaths;
use settings::{MAX_FILE_BYTES, ProjectSettings, SettingsFile};
use tools::LocationTexts;

/// The most directories that are searched, from the Location's upwards.
const MAX_LEVELS: usize = 32;
/// The most names in a folder. A folder with more is ignored.
const MAX_NAMES: usize = 1_000;
/// The most files that count.
const MAX_FILES: usize = 400;
/// The most bytes of all files that count.
const MAX_BYTES: usize = 1024 * 1024;
/// The longest path of a file that counts, in bytes.
const MAX_PATH: usize = 512;

const CONFIGS: [&str; 2] = ["opencode.json", "opencode.jsonc"];
const FOLDER: &str = ".opencode";
/// The folders of Markdown files in it.
const FOLDERS: [&str; 4] = ["agent", "agents", "command", "commands"];

/// Returns the project's settings. `root` is the Location's directory; nothing outside of `top` is opened. Blocking.
///
/// # Errors
/// A file exists and cannot be read.
pub(super) fn project(
    root: &Path,
    top: &Path,
    hidden: &HiddenPaths,
) -> io::Result<ProjectSettings> {
    let texts = LocationTexts::open(top, hidden)?;
    let below = root.strip_prefix(top).unwrap_or(Path::new(""));
    let mut directories: Vec<&Path> = below.ancestors().take(MAX_LEVELS).collect();
    directories.reverse();
    let mut found = Found { texts, files: Vec::new(), bytes: 0 };
    for directory in directories {
        for name in CONFIGS {
            found.add(&directory.join(name))?;
        }
        let folder = directory.join(FOLDER);
        let names = found.texts.names(&folder, MAX_NAMES)?;
        for name in CONFIGS.into_iter().filter(|name| names.iter().any(|there| there == name)) {
            found.add(&folder.join(name))?;
        }
        for name in FOLDERS.into_iter().filter(|name| names.iter().any(|there| there == name)) {
            let folder = folder.join(name);
            for file in found.texts.names(&folder, MAX_NAMES)? {
                if Path::new(&file).extension().is_some_and(|extension| extension == "md") {
                    found.add(&folder.join(file))?;
                }
            }
        }
    }
    Ok(ProjectSettings::parse(&found.files))
}

struct Found {
    texts: LocationTexts,
    files: Vec<SettingsFile>,
    bytes: usize,
}

impl Found {
    /// Reads a file, if it is there and there is room for it.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        if self.files.len() == MAX_FILES || self.bytes >= MAX_BYTES {
            return Ok(());
        }
        let Some(path_text) = path.to_str().filter(|path| path.len() <= MAX_PATH) else {
            return Ok(());
        };
        if let Some(found) = self.texts.read(path, MAX_FILE_BYTES)? {
            self.bytes += found.text.len();
            let path = path_text.to_owned();
            self.files.push(SettingsFile { path, text: found.text, more: found.more });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use domain::RuleAction;
    use settings::{OrganisationSettings, effective};

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).unwrap();
        fs::write(path, text).unwrap();
    }

    fn rules(root: &Path, top: &Path) -> Vec<(String, RuleAction)> {
        let project = project(root, top, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &project);
        let rules = settings.permissions.iter().filter(|rule| rule.source != "built-in");
        rules.map(|rule| (rule.source.clone(), rule.rule.action)).collect()
    }

    #[test]
    fn files_are_read_from_the_top_down_to_the_location() {
        let folder = tempfile::tempdir().unwrap();
        let (top, root) = (folder.path().join("top"), folder.path().join("top/a"));
        write(folder.path(), "opencode.json", r#"{"permission": "deny"}"#);
        write(&top, "opencode.json", r#"{"permission": {"bash": "ask"}}"#);
        write(&top, ".opencode/agents/review.md", "---\nmode: primary\n---\nReview.");
        write(
            &root,
            ".opencode/opencode.jsonc",
            "{\n// here\n\"permission\": {\"bash\": \"deny\"}}",
        );
        write(&root, ".opencode/command/go.md", "Go.");
        write(&root, ".opencode/command/notes.txt", "no command");
        let expected = [
            ("opencode.json:1".to_owned(), RuleAction::Ask),
            ("a/.opencode/opencode.jsonc:3".to_owned(), RuleAction::Deny),
        ];
        assert_eq!(rules(&root, &top), expected);
        assert_eq!(rules(&top, &top), expected[..1]);
        let found = project(&root, &top, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &found);
        assert!(settings.agents.contains_key("review") && settings.commands.contains_key("go"));
        assert_eq!(settings.diagnostics, []);
    }

    #[test]
    fn a_file_that_leads_outside_or_never_ends_is_not_there() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "opencode.json", r#"{"permission": "deny"}"#);
        write(outside.path(), "agents/away.md", "Away.");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        symlink(outside.path().join("opencode.json"), root.join("opencode.json")).unwrap();
        symlink("/dev/zero", root.join("opencode.jsonc")).unwrap();
        fs::create_dir(root.join(".opencode")).unwrap();
        symlink(outside.path().join("agents"), root.join(".opencode/agents")).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join(".opencode/opencode.json"), mode).unwrap();
        assert_eq!(
            project(root, root, &HiddenPaths::default()).unwrap(),
            ProjectSettings::default()
        );
    }

    #[test]
    fn files_have_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::File::create(root.join("opencode.json")).unwrap().set_len(1 << 40).unwrap();
        let found = project(root, root, &HiddenPaths::default()).unwrap();
        assert!(found.diagnostics[0].message.contains("256 KiB"), "{found:?}");
        for n in 0..MAX_FILES + 20 {
            write(root, &format!(".opencode/command/c{n:03}.md"), "Go.");
        }
        let settings = effective(
            &OrganisationSettings::default(),
            &project(root, root, &HiddenPaths::default()).unwrap(),
        );
        assert!(settings.commands.len() <= MAX_FILES, "{}", settings.commands.len());
        for n in 0..MAX_NAMES {
            write(root, &format!(".opencode/command/x{n}.md"), "Go.");
        }
        let settings = effective(
            &OrganisationSettings::default(),
            &project(root, root, &HiddenPaths::default()).unwrap(),
        );
        assert_eq!(settings.commands.keys().collect::<Vec<_>>(), ["init"]);
    }
}
