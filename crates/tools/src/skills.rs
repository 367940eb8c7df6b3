//! The skills of a Location: directories with a `SKILL.md`, whose front matter describes them. They may be in folders below.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, statat};
use sandbox::HiddenPaths;
use serde::Deserialize;

use crate::texts::LocationTexts;

/// The folders of skills in a directory. If two of them have a skill with the same name, the earlier folder
/// wins. OpenCode's own come first (`skill` is its older name), then those of compatible tools
/// (opencode.ai/docs/skills).
const FOLDERS: [&str; 4] =
    [".opencode/skills", ".opencode/skill", ".claude/skills", ".agents/skills"];
/// The file name of a skill's text.
const SKILL_FILE: &str = "SKILL.md";
/// The same as it is spelled too. The earlier one counts.
const SPELLINGS: [&str; 2] = [SKILL_FILE, "skill.md"];
/// How deep in a folder of skills a skill may be.
const MAX_SKILL_DEPTH: usize = 6;
/// The most names in folders below those of skills that are looked at.
const MAX_NAMES_BELOW: usize = 4_000;
/// The most characters of a skill's name that a model is told.
const MAX_NAME_CHARS: usize = 64;
/// The most names in a folder. A folder with more is ignored.
const MAX_NAMES: usize = 1_000;
/// The most skills of one Location; those in the nearest directories come first.
const MAX_SKILLS: usize = 256;
/// The most directories from a Location's upwards that are searched.
const MAX_LEVELS: usize = 32;
/// The most directories above a Location that are searched for the top of its worktree.
const MAX_DEPTH: usize = 64;
/// The most bytes of a front matter.
const MAX_FRONT_BYTES: usize = 16 * 1024;
/// The most bytes read of a skill's text.
pub(crate) const MAX_TEXT_BYTES: usize = 1024 * 1024;

/// The directories that may have a Location's skills.
#[derive(Debug, Clone, Copy)]
pub struct SkillPlaces<'p> {
    /// The Location's directory.
    pub root: &'p Path,
    /// The topmost directory that counts: `root` or one above it. Nothing outside is ever opened.
    pub top: &'p Path,
    /// The Location's directory as shown to the model.
    pub shown: &'p Path,
    /// The paths that are not read.
    pub hidden: &'p HiddenPaths,
}

/// A skill in the Location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSkill {
    /// The name in its front matter, or else its directory's name.
    pub name: String,
    /// The description. `Err` is the reason why the skill cannot be used.
    pub description: Result<String, String>,
    /// Its directory as shown to the model.
    pub directory: PathBuf,
    /// The path of its file below the top.
    pub file: PathBuf,
    /// The line of its file that says why it cannot be used, from 1.
    pub line: u32,
}

/// The fields of a front matter that count.
#[derive(Default, Deserialize)]
struct Front {
    name: Option<String>,
    description: Option<String>,
}

/// Returns the top of a Location's project: the nearest directory from `root` upwards with a `.git`, or
/// `root` itself. Blocking.
#[must_use]
pub fn project_top(root: &Path) -> &Path {
    let mut above = root.ancestors().take(MAX_DEPTH);
    // Looks only for the name: opens nothing and follows no link.
    let has_git =
        |directory: &&Path| statat(CWD, directory.join(".git"), AtFlags::SYMLINK_NOFOLLOW).is_ok();
    above.find(has_git).unwrap_or(root)
}

impl SkillPlaces<'_> {
    /// Returns all skills by name. Of two with the same name, the nearest wins. Blocking.
    ///
    /// # Errors
    /// An existing skill cannot be read.
    pub fn find(&self) -> io::Result<Vec<FoundSkill>> {
        let texts = LocationTexts::open(self.top, self.hidden)?;
        let below = self.root.strip_prefix(self.top).unwrap_or(Path::new(""));
        let mut found = BTreeMap::new();
        let mut names_below = 0;
        let nearest_first = below.ancestors().zip(self.shown.ancestors()).take(MAX_LEVELS);
        for (directory, shown) in nearest_first {
            for folder in FOLDERS {
                let names = texts.names(&directory.join(folder), MAX_NAMES)?.into_iter();
                let mut waiting: VecDeque<(PathBuf, usize)> =
                    names.map(|name| (Path::new(folder).join(name), 1)).collect();
                while let Some((below, depth)) = waiting.pop_front() {
                    if found.len() == MAX_SKILLS {
                        return Ok(found.into_values().collect());
                    }
                    let place = directory.join(&below);
                    if let Some((file, text)) = read_skill_file(&texts, &place)? {
                        let skill = FoundSkill::of(&text, shown.join(below), file);
                        found.entry(skill.name.clone()).or_insert(skill);
                        continue;
                    }
                    if depth == MAX_SKILL_DEPTH {
                        continue;
                    }
                    let names = texts.names(&place, MAX_NAMES)?;
                    names_below += names.len();
                    if names_below <= MAX_NAMES_BELOW {
                        let names = names.into_iter().filter(|name| !name.starts_with('.'));
                        waiting.extend(names.map(|name| (below.join(name), depth + 1)));
                    }
                }
            }
        }
        Ok(found.into_values().collect())
    }

    /// Returns the text of a skill after its front matter, and whether it is cut. `None` if the file is gone. Blocking.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn text(&self, skill: &FoundSkill) -> io::Result<Option<(String, bool)>> {
        let texts = LocationTexts::open(self.top, self.hidden)?;
        let Some(found) = texts.read(&skill.file, MAX_TEXT_BYTES)? else { return Ok(None) };
        let body = split(&found.text).map_or(found.text.as_str(), |(_, body)| body);
        Ok(Some((body.trim().to_owned(), found.more)))
    }
}

/// Returns a skill's file and the beginning of its text; `None` if the directory at `place` is no skill.
fn read_skill_file(texts: &LocationTexts, place: &Path) -> io::Result<Option<(PathBuf, String)>> {
    for name in SPELLINGS {
        let file = place.join(name);
        if let Some(start) = texts.read(&file, MAX_FRONT_BYTES)? {
            return Ok(Some((file, start.text)));
        }
    }
    Ok(None)
}

impl FoundSkill {
    /// Returns its file as shown to the model.
    #[must_use]
    pub fn shown_file(&self) -> PathBuf {
        self.directory.join(self.file.file_name().unwrap_or(SKILL_FILE.as_ref()))
    }

    fn of(text: &str, directory: PathBuf, file: PathBuf) -> Self {
        let called = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (front, line, fault) = match split(text) {
            Some((front, _)) => read_front(front),
            None => (
                Front::default(),
                1,
                Some(format!(
                    "its {SKILL_FILE} does not begin with a front matter between two lines of ---"
                )),
            ),
        };
        let name = front.name.unwrap_or(called).trim().to_owned();
        let is_name = (1..=MAX_NAME_CHARS).contains(&name.chars().count())
            && !name.chars().any(char::is_control);
        let description = front.description.filter(|text| !text.trim().is_empty());
        let description = match (fault, description) {
            (Some(why), _) => Err(why),
            (None, None) => Err(format!("the front matter of its {SKILL_FILE} has no description")),
            (None, Some(_)) if !is_name => Err(format!(
                "its name is empty, has more than {MAX_NAME_CHARS} characters, or more than one line"
            )),
            (None, Some(description)) => Ok(description),
        };
        Self { name, description, directory, file, line }
    }
}

/// Reads a front matter, with the line of its file that says why it cannot be read, and the reason if it cannot.
fn read_front(text: &str) -> (Front, u32, Option<String>) {
    let error = match serde_saphyr::from_str::<Front>(text) {
        Ok(front) => return (front, 1, None),
        Err(error) => error,
    };
    // Other products read `description: Configure: hooks`, which is no YAML.
    let plain = Front {
        name: read_plain_key(text, "name"),
        description: read_plain_key(text, "description"),
    };
    if plain.description.is_some() {
        return (plain, 1, None);
    }
    let above = error.location().map_or(0, |location| location.line());
    let line = u32::try_from(above).unwrap_or(u32::MAX).saturating_add(1);
    let why = error.to_string();
    let why = why.lines().next().unwrap_or_default();
    let why = format!("the front matter of its {SKILL_FILE} cannot be read: {why}");
    (Front::default(), line, Some(why))
}

/// Reads the text behind the first colon of a key's line, and the indented lines below it. `None` if the key is not there, or its
/// value begins as YAML's lists, maps, anchors and tags do.
fn read_plain_key(front: &str, key: &str) -> Option<String> {
    let mut lines = front.lines();
    let first = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim();
    let is_block = first.starts_with(['>', '|']) && first.len() <= 3;
    let first = if is_block { "" } else { first };
    let below = lines.take_while(|line| line.starts_with([' ', '\t']) || line.trim().is_empty());
    let words: Vec<&str> =
        std::iter::once(first).chain(below).flat_map(str::split_whitespace).collect();
    let text = words.join(" ");
    if text.starts_with(['[', '{', '&', '*', '!', '%', '@', '`']) {
        return None;
    }
    let quoted = ['"', '\''].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    let bare = quoted.unwrap_or(&text);
    (!bare.is_empty()).then(|| bare.to_owned())
}

/// Splits text into front matter and the rest.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches('\u{FEFF}');
    let (first, rest) = text.split_once('\n')?;
    if first.trim_end() != "---" {
        return None;
    }
    let mut end = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == "---" {
            return Some((&rest[..end], &rest[end + line.len()..]));
        }
        end += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn skill(name: &str, description: &str) -> String {
        format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n")
    }

    fn find(root: &Path, top: &Path) -> Vec<(String, String, String)> {
        let shown = Path::new("/home/me/top/a");
        let found =
            SkillPlaces { root, top, shown, hidden: &HiddenPaths::default() }.find().unwrap();
        let one = |skill: FoundSkill| {
            let told = skill.description.unwrap_or_else(|why| format!("unusable: {why}"));
            (skill.name, told, skill.directory.display().to_string())
        };
        found.into_iter().map(one).collect()
    }

    fn owned(all: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        all.iter().map(|(a, b, c)| ((*a).into(), (*b).into(), (*c).into())).collect()
    }

    #[test]
    fn skills_are_found_from_the_location_up_to_the_top_of_its_project_and_the_nearest_counts() {
        let outside = tempfile::tempdir().unwrap();
        let (top, root) = (outside.path().join("top"), outside.path().join("top/a"));
        write(&top, ".git", "gitdir: elsewhere");
        write(outside.path(), ".opencode/skills/not/SKILL.md", &skill("not", "Not ours."));
        write(&top, ".opencode/skills/deploy/SKILL.md", &skill("deploy", "Far."));
        write(&top, ".claude/skills/review/SKILL.md", &skill("review", "Look again."));
        write(&root, ".opencode/skill/deploy/SKILL.md", &skill("deploy", "Near."));
        write(&root, ".agents/skills/odd/SKILL.md", "---\ndescription: >\n  Two\n  lines.\n---\n");
        write(&root, ".opencode/skills/README.md", "No skill.");
        write(&root, ".opencode/skills/empty/notes.md", "No skill.");
        assert_eq!(project_top(&root), top);
        assert_eq!(
            find(&root, &top),
            owned(&[
                ("deploy", "Near.", "/home/me/top/a/.opencode/skill/deploy"),
                ("odd", "Two lines.\n", "/home/me/top/a/.agents/skills/odd"),
                ("review", "Look again.", "/home/me/top/.claude/skills/review"),
            ])
        );
        let own = find(&root, &root);
        assert_eq!(
            own.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(),
            ["deploy", "odd"]
        );
    }

    #[test]
    fn one_that_leads_outside_is_not_there() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "away/SKILL.md", &skill("away", "Away."));
        write(outside.path(), "all/away/SKILL.md", &skill("away", "Away."));
        let root = outside.path().join("root");
        write(&root, ".opencode/skills/here/SKILL.md", &skill("here", "Here."));
        symlink("../../../away", root.join(".opencode/skills/away")).unwrap();
        symlink("here", root.join(".opencode/skills/again")).unwrap();
        fs::create_dir(root.join(".opencode/skills/file")).unwrap();
        symlink(outside.path().join("away/SKILL.md"), root.join(".opencode/skills/file/SKILL.md"))
            .unwrap();
        fs::create_dir(root.join(".claude")).unwrap();
        symlink(outside.path().join("all"), root.join(".claude/skills")).unwrap();
        let directory = "/home/me/top/a/.opencode/skills/again";
        assert_eq!(find(&root, &root), owned(&[("here", "Here.", directory)]));
    }

    // Next report 34: skills in folders below were not there.
    #[test]
    fn skills_are_found_in_folders_below() {
        let outside = tempfile::tempdir().unwrap();
        write(outside.path(), "far/away/SKILL.md", &skill("away", "Away."));
        let root = outside.path().join("root");
        write(&root, ".opencode/skills/group/deep/SKILL.md", &skill("deep", "Deep."));
        write(&root, ".opencode/skills/group/deep/more/SKILL.md", &skill("not", "Part of it."));
        write(&root, ".claude/skills/a/b/c/SKILL.md", &skill("abc", "Deeper."));
        write(&root, ".claude/skills/lower/skill.md", &skill("lower", "Small letters."));
        write(&root, ".claude/skills/a/.git/x/SKILL.md", &skill("git", "Not there."));
        let deep = "d/".repeat(MAX_SKILL_DEPTH);
        write(&root, &format!(".agents/skills/{deep}SKILL.md"), &skill("last", "Deepest."));
        write(&root, &format!(".agents/skills/x/{deep}SKILL.md"), &skill("beyond", "Too deep."));
        symlink("../../../far", root.join(".opencode/skills/far")).unwrap();
        symlink(".", root.join(".opencode/skills/group/round")).unwrap();
        let names: Vec<_> = find(&root, &root).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["abc", "deep", "last", "lower"]);
        let (shown, hidden) = (Path::new("/shown"), HiddenPaths::default());
        let places = SkillPlaces { root: &root, top: &root, shown, hidden: &hidden };
        let found = places.find().unwrap();
        assert_eq!(found[3].shown_file(), Path::new("/shown/.claude/skills/lower/skill.md"));
        assert_eq!(places.text(&found[3]).unwrap(), Some(("Do it.".to_owned(), false)));
        let hidden = HiddenPaths::new([root.join(".claude/skills/a/b")]);
        let found = SkillPlaces { hidden: &hidden, ..places }.find().unwrap();
        assert!(found.iter().all(|skill| skill.name != "abc"), "{found:?}");
    }

    // Next report 35: a colon without quotes is no YAML, and the skill was told to nobody.
    #[test]
    fn a_description_with_a_colon_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for (front, expected) in [
            ("description: Configure it: hooks and skills", "Configure it: hooks and skills"),
            (
                "description: Configure it: hooks\n  and skills\r\nlicense: x",
                "Configure it: hooks and skills",
            ),
            ("description: 'It: all'\nargument-hint: [action] — e.g. \"list\"", "It: all"),
            ("argument-hint: [action] — x\ndescription: >-\n  Two\n  lines.", "Two lines."),
        ] {
            let text = format!("---\nname: colon\n{front}\n---\nDo it.");
            write(root, ".opencode/skills/x/SKILL.md", &text);
            let [(name, told, _)] = find(root, root).try_into().unwrap();
            assert_eq!((name.as_str(), told.as_str()), ("colon", expected));
        }
    }

    #[test]
    fn what_cannot_be_read_says_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for (front, line) in [
            ("license: MIT\ndescription: [\n", 2..=5),
            ("description: ' '\n", 1..=1),
            (&format!("description: x\nname: {long}\n"), 1..=1),
        ] {
            write(root, ".opencode/skills/x/SKILL.md", &format!("---\n{front}---\n"));
            let hidden = HiddenPaths::default();
            let found = SkillPlaces { root, top: root, shown: root, hidden: &hidden }.find();
            let [skill] = found.unwrap().try_into().unwrap();
            assert!(skill.description.is_err() && line.contains(&skill.line), "{skill:?}");
            assert_eq!(skill.file, Path::new(".opencode/skills/x/SKILL.md"));
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let long = format!("---\ndescription: {}\n---\n", "x".repeat(MAX_FRONT_BYTES));
        for (name, text, why) in [
            ("plain", "Just do it.", "does not begin with a front matter"),
            ("endless", "---\nname: endless\n", "does not begin with a front matter"),
            ("long", &long, "does not begin with a front matter"),
            ("mute", "---\nlicense: MIT\n---\n", "has no description"),
            ("broken", "---\ndescription: [\n---\n", "cannot be read: "),
            ("bomb", "---\na: &a [x]\ndescription: [*a, *a]\n---\n", "cannot be read: "),
        ] {
            let path = format!(".opencode/skills/{name}/SKILL.md");
            write(root, &path, text);
            let [(found, told, _)] = find(root, root).try_into().unwrap();
            assert_eq!(found, name);
            assert!(told.starts_with("unusable: ") && told.contains(why), "{told}");
            assert_eq!(told.lines().count(), 1, "{told}");
            fs::remove_dir_all(root.join(".opencode")).unwrap();
        }
        // Fields of other tools do no harm.
        let text = "\u{FEFF}---\r\nname: 'Fine'\r\ndescription: x\r\nmetadata:\r\n  a: [1]\r\n--- \r\nText";
        write(root, ".opencode/skills/fine/SKILL.md", text);
        let [(name, told, _)] = find(root, root).try_into().unwrap();
        assert_eq!((name.as_str(), told.as_str()), ("Fine", "x"));
    }

    #[test]
    fn a_folder_with_too_many_names_has_no_skills_and_there_is_a_bound_on_all() {
        let folder = tempfile::tempdir().unwrap();
        for n in 0..=MAX_SKILLS {
            let path = format!(".opencode/skills/s{n:03}/SKILL.md");
            write(folder.path(), &path, "---\ndescription: x\n---\n");
        }
        let found = find(folder.path(), folder.path());
        assert_eq!((found.len(), found[0].0.as_str()), (MAX_SKILLS, "s000"));
        for n in 0..MAX_NAMES {
            fs::create_dir(folder.path().join(format!(".opencode/skills/x{n}"))).unwrap();
        }
        assert_eq!(find(folder.path(), folder.path()), Vec::new());
    }
}
