//! The skills of a Location: directories with a `SKILL.md`, whose front matter describes them.

use std::collections::BTreeMap;
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
    file: PathBuf,
}

/// The fields of a front matter that count.
#[derive(Deserialize)]
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
        let nearest_first = below.ancestors().zip(self.shown.ancestors()).take(MAX_LEVELS);
        for (directory, shown) in nearest_first {
            for folder in FOLDERS {
                for name in texts.names(&directory.join(folder), MAX_NAMES)? {
                    if found.len() == MAX_SKILLS {
                        return Ok(found.into_values().collect());
                    }
                    let below = Path::new(folder).join(name);
                    let file = directory.join(&below).join(SKILL_FILE);
                    let Some(start) = texts.read(&file, MAX_FRONT_BYTES)? else { continue };
                    let skill = FoundSkill::of(&start.text, shown.join(below), file);
                    found.entry(skill.name.clone()).or_insert(skill);
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

impl FoundSkill {
    fn of(text: &str, directory: PathBuf, file: PathBuf) -> Self {
        let called = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let front = split(text)
            .ok_or_else(|| {
                format!(
                    "its {SKILL_FILE} does not begin with a front matter between two lines of ---"
                )
            })
            .and_then(|(front, _)| {
                serde_saphyr::from_str::<Front>(front).map_err(|error| {
                    let error = error.to_string();
                    let why = error.lines().next().unwrap_or_default().to_owned();
                    format!("the front matter of its {SKILL_FILE} cannot be read: {why}")
                })
            });
        let (name, description) = match front {
            Ok(front) => {
                let missing = || format!("the front matter of its {SKILL_FILE} has no description");
                (front.name.unwrap_or(called), front.description.ok_or_else(missing))
            }
            Err(why) => (called, Err(why)),
        };
        Self { name: name.trim().to_owned(), description, directory, file }
    }
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
