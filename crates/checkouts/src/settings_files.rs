//! Reads the settings files of a Location: `opencode.json(c)` and `.opencode/` in each directory from the top of its
//! project down to it, so that the nearest come last and win. Agents and commands may be in folders below: `git/save`.

use std::io;
use std::path::Path;

use sandbox::HiddenPaths;
use settings::{MAX_FILE_BYTES, ProjectSettings, SettingsFile};
use tools::{FoundSkill, FoundText, LocationTexts};

/// The most directories that are searched, from the Location's upwards.
const MAX_LEVELS: usize = 32;
/// The most names in a folder. A folder with more is ignored.
const MAX_NAMES: usize = 1_000;
/// The deepest folder below one of Markdown files.
const MAX_DEPTH: usize = 8;
/// The most folders below those of Markdown files.
const MAX_FOLDERS: usize = 100;
/// The most files that settings name as `{file:…}`, and the most bytes of one.
const MAX_NAMED: usize = 200;
const MAX_NAMED_BYTES: usize = 64 * 1024;
/// The most files that count.
const MAX_FILES: usize = 400;
/// The most bytes of all files that count.
const MAX_BYTES: usize = 1024 * 1024;
/// The longest path of a file that counts, in bytes.
const MAX_PATH: usize = 512;

/// Why a text does not count that would be read wrongly.
const NOT_UTF8: &str = "it is not UTF-8: save it as that";

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
    let mut found =
        Found { texts, files: Vec::new(), bytes: 0, folders: 0, named: 0, unread: Vec::new() };
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
            found.add_folder(&folder.join(name), 0);
        }
    }
    let files = std::mem::take(&mut found.files);
    let mut settings =
        ProjectSettings::parse_with(&files, &mut |path: &Path| found.read_named(path));
    for (path, why) in &found.unread {
        settings.add_unread(path, why);
    }
    Ok(settings)
}

/// Adds a remark on each skill that cannot be used: no model is told of it, so people are.
pub fn add_skill_remarks(settings: &mut ProjectSettings, skills: &[FoundSkill]) {
    for skill in skills {
        let Err(why) = &skill.description else { continue };
        let path = skill.file.to_str().filter(|path| path.len() <= MAX_PATH);
        let Some(path) = path else { continue };
        settings.add_remark(path, skill.line, &format!("the skill cannot be used: {why}"));
    }
}

struct Found {
    texts: LocationTexts,
    files: Vec<SettingsFile>,
    bytes: usize,
    /// The folders below those of Markdown files so far.
    folders: usize,
    /// The files so far that settings name.
    named: usize,
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

    /// Reads the Markdown files of a folder, and of those below it. `depth` is 0 for one that is not below another.
    fn add_folder(&mut self, folder: &Path, depth: usize) {
        for name in self.names(folder) {
            let path = folder.join(&name);
            if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
                self.add(&path);
            } else if !self.texts.may_be_folder(&path) {
                // Notes and scripts beside them.
            } else if depth == MAX_DEPTH {
                self.leave(&path, format!("it is more than {MAX_DEPTH} folders deep"));
            } else if self.folders == MAX_FOLDERS {
                let why = format!("a project has at most {MAX_FOLDERS} folders of them");
                self.leave(&path, why);
            } else {
                self.folders += 1;
                self.add_folder(&path, depth + 1);
            }
        }
    }

    /// Reads a file that a settings file names. `Err` is a sentence that says why there is no text.
    fn read_named(&mut self, path: &Path) -> Result<String, String> {
        if self.named == MAX_NAMED {
            return Err(format!("the settings files of a project name at most {MAX_NAMED} files"));
        }
        self.named += 1;
        let Some(found) = self.texts.must_read(path, MAX_NAMED_BYTES)? else {
            return Err("there is no such file in the project".to_owned());
        };
        let FoundText { text, more, is_mended } = found;
        if more {
            return Err(format!("it has more than {} KiB", MAX_NAMED_BYTES / 1024));
        }
        if is_mended {
            return Err(NOT_UTF8.to_owned());
        }
        if text.trim().is_empty() {
            return Err("it is empty".to_owned());
        }
        self.check_room()?;
        self.bytes += text.len();
        Ok(text)
    }

    /// Returns an error if the texts so far are as many bytes as there may be.
    fn check_room(&self) -> Result<(), String> {
        if self.bytes < MAX_BYTES {
            return Ok(());
        }
        let most = MAX_BYTES / 1024;
        Err(format!("the settings files of a project have at most {most} KiB"))
    }

    /// Takes a text in, if there is room for it.
    fn keep(&mut self, path: &Path, found: FoundText) -> Result<(), String> {
        let FoundText { text, more, is_mended } = found;
        if self.files.len() == MAX_FILES {
            return Err(format!("a project has at most {MAX_FILES} settings files"));
        }
        self.check_room()?;
        let path = path.to_str().filter(|path| path.len() <= MAX_PATH);
        let path = path.ok_or_else(|| format!("its path has more than {MAX_PATH} bytes"))?;
        if is_mended {
            return Err(NOT_UTF8.to_owned());
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
    use tools::SkillPlaces;

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

    // Next report 33: those in folders below were not there, and their rules were lost.
    #[test]
    fn agents_and_commands_are_in_folders_below() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let agent = "---\nmode: all\npermission:\n  bash: deny\n---\nLook.";
        write(root, ".opencode/agent/team/look.md", agent);
        write(root, ".opencode/command/git/all/save.md", "Save.");
        write(root, ".opencode/command/git/script.sh", "no command");
        symlink("git", root.join(".opencode/command/linked")).unwrap();
        let found = project_settings(root, root, &HiddenPaths::default()).unwrap();
        let settings = effective(&OrganisationSettings::default(), &found);
        assert!(settings.agent("team/look").is_some(), "{settings:?}");
        let names: Vec<_> = settings.commands.keys().map(String::as_str).collect();
        assert_eq!(names, ["git/all/save", "init", "linked/all/save"]);
        assert_eq!(settings.diagnostics, []);
        let source = ".opencode/agent/team/look.md:4".to_owned();
        assert_eq!(rules(root, root), [(source, RuleAction::Deny)]);
    }

    #[test]
    fn folders_below_have_bounds_and_stay_in_the_project() {
        let outside = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let deep = format!(".opencode/agent/{}", "d/".repeat(MAX_DEPTH));
        write(root, &format!("{deep}last.md"), "Look.");
        assert_eq!(faults(root), [""; 0]);
        write(root, &format!("{deep}d/beyond.md"), "Look.");
        symlink(outside.path(), root.join(".opencode/agent/away")).unwrap();
        assert_eq!(faults(root), [".opencode/agent/away".to_owned(), format!("{deep}d")]);
        for n in 0..=MAX_FOLDERS {
            fs::create_dir_all(root.join(format!(".opencode/commands/{n:03}"))).unwrap();
        }
        let faults = faults(root);
        assert!(faults.iter().any(|fault| fault.starts_with(".opencode/commands/")), "{faults:?}");
    }

    // Next report 31: the instructions were the letters `{file:…}`, and nobody was told.
    #[test]
    fn a_file_that_settings_name_is_read_in_the_project() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "secret.txt", "SECRET");
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, "prompts/look.txt", "Look well.");
        write(root, "prompts/empty.txt", " ");
        write(root, "prompts/long.txt", &"x".repeat(MAX_NAMED_BYTES + 1));
        write(root, "hidden/key.txt", "SECRET");
        fs::write(root.join("prompts/latin.txt"), b"gr\xfcn").unwrap();
        symlink(outside.path().join("secret.txt"), root.join("prompts/away.txt")).unwrap();
        let away = outside.path().join("secret.txt").display().to_string();
        let up = format!("../../{away}");
        let wrong = [
            ("missing", "../prompts/missing.txt"),
            ("empty", "../prompts/empty.txt"),
            ("long", "../prompts/long.txt"),
            ("latin", "../prompts/latin.txt"),
            ("away", "../prompts/away.txt"),
            ("folder", "../prompts"),
            ("hidden", "../hidden/key.txt"),
            ("absolute", away.as_str()),
            ("up", up.as_str()),
        ];
        let agent = |(name, file): &(&str, &str)| {
            format!("\"{name}\": {{\"prompt\": \"{{file:{file}}}\"}}")
        };
        let agents: Vec<_> =
            wrong.iter().chain(&[("look", "../prompts/look.txt")]).map(agent).collect();
        let text = format!("{{\"agent\": {{\n{}}}}}", agents.join(",\n"));
        write(root, ".opencode/opencode.json", &text);
        let hidden = HiddenPaths::new([root.join("hidden")]);
        let found = project_settings(root, root, &hidden).unwrap();
        assert!(!found.to_json().unwrap().contains("SECRET"), "{found:?}");
        let settings = effective(&OrganisationSettings::default(), &found);
        let look = settings.agent("look").map(|agent| agent.instructions.as_str());
        assert_eq!(look, Some("Look well."));
        for (n, (name, _)) in wrong.iter().enumerate() {
            assert_eq!(settings.agent(name), None, "{name}");
            let why = settings.why_no_agent(name).unwrap();
            assert!(why.contains(&format!(".opencode/opencode.json:{}", n + 2)), "{name}: {why}");
        }
        assert_eq!(settings.permissions.faults().len(), wrong.len());
    }

    // Next report 35: the skill was told to nobody.
    #[test]
    fn a_skill_that_cannot_be_used_is_told_to_people() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, ".claude/skills/broken/SKILL.md", "---\nname: x\ndescription: [\n---\n");
        write(root, ".opencode/skills/fine/SKILL.md", "---\ndescription: Fine.\n---\n");
        let hidden = HiddenPaths::default();
        let skills = SkillPlaces { root, top: root, shown: root, hidden: &hidden }.find().unwrap();
        let mut found = project_settings(root, root, &hidden).unwrap();
        add_skill_remarks(&mut found, &skills);
        let settings = effective(&OrganisationSettings::default(), &found);
        let [told] = settings.notices.try_into().unwrap();
        assert!(told.starts_with(".claude/skills/broken/SKILL.md:"), "{told}");
        assert!(told.contains("the skill cannot be used: "), "{told}");
        assert_eq!(settings.permissions.faults(), [], "a skill has no rules");
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
