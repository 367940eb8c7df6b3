//! Reads the settings files of a Location: `opencode.json(c)` and `.opencode/` in each directory from the top of its
//! project down to it, so that the nearest come last and win.

use std::io;
use std::path::Path;

use sandbox::HiddenPaths;
use settings::{MAX_FILE_BYTES, ProjectSettings, SettingsFile};
use tools::{FoundText, LocationTexts};

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

/// Returns the project's settings. `root` is the Location's directory; nothing outside of `top` is opened. What is there and
/// cannot be read is in them as a mistake, so that it loosens nothing. Blocking.
///
/// # Errors
/// The project cannot be opened.
pub fn project_settings(
    root: &Path,
    top: &Path,
    hidden: &HiddenPaths,
) -> io::Result<ProjectSettings> {
    let texts = LocationTexts::open(top, hidden)?;
    let below = root.strip_prefix(top).unwrap_or(Path::new(""));
    let mut directories: Vec<&Path> = below.ancestors().take(MAX_LEVELS).collect();
    directories.reverse();
    let mut found = Found { texts, files: Vec::new(), bytes: 0, unread: Vec::new() };
    for directory in directories {
        for name in CONFIGS {
            found.add(&directory.join(name));
        }
        let folder = directory.join(FOLDER);
        let names = found.names(&folder);
        for name in CONFIGS.into_iter().filter(|name| names.iter().any(|there| there == name)) {
            found.add(&folder.join(name));
        }
        for name in FOLDERS.into_iter().filter(|name| names.iter().any(|there| there == name)) {
            let folder = folder.join(name);
            for file in found.names(&folder) {
                if Path::new(&file).extension().is_some_and(|extension| extension == "md") {
                    found.add(&folder.join(file));
                }
            }
        }
    }
    let mut settings = ProjectSettings::parse(&found.files);
    for (path, why) in &found.unread {
        settings.add_unread(path, why);
    }
    Ok(settings)
}

struct Found {
    texts: LocationTexts,
    files: Vec<SettingsFile>,
    bytes: usize,
    /// The files that are there and cannot be read, with the reason.
    unread: Vec<(String, String)>,
}

impl Found {
    /// Reads a file, if it is there.
    fn add(&mut self, path: &Path) {
        let read = match self.texts.must_read(path, MAX_FILE_BYTES) {
            Ok(None) => return,
            Ok(Some(found)) => self.keep(path, found),
            Err(why) => Err(why),
        };
        if let Err(why) = read {
            self.leave(path, why);
        }
    }

    /// Takes a text in, if there is room for it.
    fn keep(&mut self, path: &Path, found: FoundText) -> Result<(), String> {
        let FoundText { text, more, is_mended } = found;
        if self.files.len() == MAX_FILES {
            return Err(format!("a project has at most {MAX_FILES} settings files"));
        }
        if self.bytes >= MAX_BYTES {
            let most = MAX_BYTES / 1024;
            return Err(format!("the settings files of a project have at most {most} KiB"));
        }
        let path = path.to_str().filter(|path| path.len() <= MAX_PATH);
        let path = path.ok_or_else(|| format!("its path has more than {MAX_PATH} bytes"))?;
        if is_mended {
            return Err("it is not UTF-8: save it as that".to_owned());
        }
        self.bytes += text.len();
        self.files.push(SettingsFile { path: path.to_owned(), text, more });
        Ok(())
    }

    /// Returns the names in a folder.
    fn names(&mut self, folder: &Path) -> Vec<String> {
        self.texts.must_list(folder, MAX_NAMES).unwrap_or_else(|why| {
            self.leave(folder, why);
            Vec::new()
        })
    }

    fn leave(&mut self, path: &Path, why: String) {
        if self.unread.len() < MAX_FILES {
            self.unread.push((path.display().to_string(), why));
        }
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
        let project = project_settings(root, top, &HiddenPaths::default()).unwrap();
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
        let found = project_settings(&root, &top, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &found);
        assert!(settings.agents.contains_key("review") && settings.commands.contains_key("go"));
        assert_eq!(settings.diagnostics, []);
    }

    /// The places of the mistakes of a project's files.
    fn faults(root: &Path) -> Vec<String> {
        let found = project_settings(root, root, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &found);
        settings.permissions.faults().iter().map(|fault| fault.source.clone()).collect()
    }

    #[test]
    fn what_is_there_and_cannot_be_read_is_a_mistake() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "opencode.json", r#"{"permission": "deny"}"#);
        write(outside.path(), "agents/away.md", "Away.");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(faults(root), [""; 0], "nothing is no mistake");
        symlink(outside.path().join("opencode.json"), root.join("opencode.json")).unwrap();
        symlink("/dev/zero", root.join("opencode.jsonc")).unwrap();
        fs::create_dir_all(root.join(".opencode/agent/folder.md")).unwrap();
        symlink(outside.path().join("agents"), root.join(".opencode/agents")).unwrap();
        symlink("nothing", root.join(".opencode/agent/dangling.md")).unwrap();
        fs::write(root.join(".opencode/agent/latin.md"), b"---\nmode: all\n---\ngr\xfcn").unwrap();
        fs::write(root.join(".opencode/command"), "no folder").unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join(".opencode/opencode.json"), mode).unwrap();
        let expected = [
            "opencode.json",
            "opencode.jsonc",
            ".opencode/opencode.json",
            ".opencode/agent/dangling.md",
            ".opencode/agent/folder.md",
            ".opencode/agent/latin.md",
            ".opencode/agents",
            ".opencode/command",
        ];
        assert_eq!(faults(root), expected);
        let found = project_settings(root, root, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &found);
        for name in ["dangling", "folder", "latin"] {
            assert_eq!(settings.agent(name), None);
            assert!(settings.why_no_agent(name).unwrap().contains(&format!("{name}.md")), "{name}");
        }
        assert!(!settings.agents.contains_key("away"));
    }

    #[test]
    fn a_folder_that_leads_outside_is_a_mistake() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        symlink(outside.path(), folder.path().join(".opencode")).unwrap();
        assert_eq!(faults(folder.path()), [".opencode"]);
    }

    #[test]
    fn files_have_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::File::create(root.join("opencode.json")).unwrap().set_len(1 << 40).unwrap();
        let found = project_settings(root, root, &HiddenPaths::default()).unwrap();
        assert!(found.diagnostics[0].message.contains("256 KiB"), "{found:?}");
        for n in 0..MAX_FILES + 20 {
            write(root, &format!(".opencode/command/c{n:03}.md"), "Go.");
        }
        let settings = effective(
            &OrganisationSettings::default(),
            &project_settings(root, root, &HiddenPaths::default()).unwrap(),
        );
        assert!(settings.commands.len() <= MAX_FILES, "{}", settings.commands.len());
        assert!(settings.permissions.faults().len() > 1, "those beyond the bound are told");
        for n in 0..MAX_NAMES {
            write(root, &format!(".opencode/command/x{n}.md"), "Go.");
        }
        let settings = effective(
            &OrganisationSettings::default(),
            &project_settings(root, root, &HiddenPaths::default()).unwrap(),
        );
        assert_eq!(settings.commands.keys().collect::<Vec<_>>(), ["init"]);
        assert!(faults(root).contains(&".opencode/command".to_owned()));
    }
}
