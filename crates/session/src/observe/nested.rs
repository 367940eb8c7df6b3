use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use async_trait::async_trait;
use context::{
    InstructionFile, MAX_FILE_BYTES, MAX_FILES, Producer, SystemContext, nested_instructions,
    nested_unavailable,
};
use sandbox::HiddenPaths;
use tools::LocationTexts;

use super::{INSTRUCTION_FILE, ObservedAt};

/// The most directories to look into, the shallowest first.
const MAX_DIRECTORIES: usize = 1_000;

/// The instructions of directories below the Location in which the model has read.
pub(super) struct Nested;

#[async_trait]
impl Producer<ObservedAt> for Nested {
    async fn observe(&self, at: &ObservedAt) -> SystemContext {
        if !at.project_instructions || at.reads.is_empty() {
            return nested_instructions(Vec::new());
        }
        match at.files().await.and_then(|seen| seen.nested.clone()) {
            Ok(files) => nested_instructions(files),
            Err(why) => nested_unavailable(why),
        }
    }
}

/// Returns the instruction files on the paths from `root` to read files, from the shallowest to the deepest
/// directory.
pub(super) fn found(
    root: &Path,
    shown: &Path,
    reads: &BTreeSet<String>,
    hidden: &HiddenPaths,
) -> io::Result<Vec<InstructionFile>> {
    if reads.is_empty() {
        return Ok(Vec::new());
    }
    let texts = LocationTexts::open(root, hidden)?;
    let mut files = Vec::new();
    for directory in directories(root, shown, reads) {
        if files.len() == MAX_FILES {
            break;
        }
        if let Some(found) = texts.read(&directory.join(INSTRUCTION_FILE), MAX_FILE_BYTES)? {
            let origin = shown.join(directory).join(INSTRUCTION_FILE);
            files.extend(InstructionFile::new(&origin.to_string_lossy(), &found.text, found.more));
        }
    }
    Ok(files)
}

/// Returns the directories strictly between `root` and read files.
fn directories(root: &Path, shown: &Path, reads: &BTreeSet<String>) -> Vec<PathBuf> {
    let mut all = BTreeSet::new();
    for path in reads {
        let Some(path) = below(root, shown, Path::new(path)) else { continue };
        let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
        all.extend(above.map(|above| (above.components().count(), above.to_path_buf())));
    }
    all.into_iter().take(MAX_DIRECTORIES).map(|(_depth, directory)| directory).collect()
}

/// Returns `path` below the root, in plain names; `None` for paths elsewhere, such as a Managed Tool Output File.
/// Only compares words: opening decides what they lead to.
fn below(root: &Path, shown: &Path, path: &Path) -> Option<PathBuf> {
    let path = match path.is_absolute() {
        true => path.strip_prefix(shown).or_else(|_| path.strip_prefix(root)).ok()?,
        false => path,
    };
    let mut names = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir if names.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn reads(paths: &[&str]) -> BTreeSet<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn the_directories_of_what_was_read_are_those_below_the_root() {
        let of = |paths: &[&str]| -> Vec<String> {
            let all = directories(Path::new("/real"), Path::new("/workspace"), &reads(paths));
            all.into_iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(of(&["a/b/x.rs", "/workspace/a/y.rs", "/real/c/z.rs"]), ["a", "c", "a/b"]);
        assert_eq!(of(&["./d/../e/x", "e/./f/y"]), ["e", "e/f"]);
        let elsewhere = ["x.rs", "/workspace/x.rs", ".", "/workspace", "../up/x", "a/../../x/y"];
        assert!(of(&elsewhere).is_empty());
        assert!(of(&["/tool-output/tool_1", "/workspaces/a/x"]).is_empty());
    }

    #[test]
    fn files_are_found_from_the_shallowest_down() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("b/deep")).unwrap();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::create_dir_all(root.join("unread")).unwrap();
        for directory in [".", "a", "b", "b/deep", "unread"] {
            fs::write(root.join(directory).join("AGENTS.md"), format!("In {directory}.")).unwrap();
        }
        let all = found(
            root,
            Path::new("/w"),
            &reads(&["b/deep/x", "a/y", "gone/z"]),
            &HiddenPaths::default(),
        )
        .unwrap();
        let file = |origin: &str, text: &str| InstructionFile::new(origin, text, false).unwrap();
        assert_eq!(
            all,
            [
                file("/w/a/AGENTS.md", "In a."),
                file("/w/b/AGENTS.md", "In b."),
                file("/w/b/deep/AGENTS.md", "In b/deep."),
            ]
        );
    }
}
