use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use context::{
    InstructionFile, MAX_FILE_BYTES, MAX_FILES, Producer, SystemContext, instructions,
    instructions_unavailable,
};
use domain::TimestampMs;
use sandbox::HiddenPaths;
use tools::LocationTexts;

use super::{INSTRUCTION_FILE, ObservedAt};

/// How long an organisation's text is cached, in ms. A drain asks at each boundary.
const FRESH_FOR: TimestampMs = 2_000;

/// The organisation's and the project's instructions, as one aggregate.
#[derive(Default)]
pub(super) struct Ambient {
    /// The organisation's last text, and the time when it was read.
    known: Mutex<Option<(TimestampMs, Option<InstructionFile>)>>,
}

#[async_trait]
impl Producer<ObservedAt> for Ambient {
    async fn observe(&self, at: &ObservedAt) -> SystemContext {
        match tokio::join!(self.organisation(at), project(at)) {
            (Ok(organisation), Ok(project)) => instructions(organisation, project),
            (Err(why), _) | (_, Err(why)) => instructions_unavailable(why),
        }
    }
}

impl Ambient {
    /// Returns the organisation's instructions for all its sessions.
    async fn organisation(&self, at: &ObservedAt) -> Result<Option<InstructionFile>, String> {
        let known = self.lock().clone();
        if let Some((when, text)) = known
            && (0..FRESH_FOR).contains(&(at.now_ms - when))
        {
            return Ok(text);
        }
        let found = at.store.organisation_instructions(at.org).await;
        let found = found.map_err(|error| error.to_string())?;
        let text =
            found.and_then(|found| InstructionFile::new("your organisation", &found.text, false));
        *self.lock() = Some((at.now_ms, text.clone()));
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(TimestampMs, Option<InstructionFile>)>> {
        // No foreign code runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn project(at: &ObservedAt) -> Result<Vec<InstructionFile>, String> {
    if !at.project_instructions {
        return Ok(Vec::new());
    }
    at.files().await?.project.clone()
}

/// Reads the instruction files from `top` down to `root`, which is shown as `shown`. Opens nothing above `top`.
pub(super) fn upward(
    root: &Path,
    top: &Path,
    shown: &Path,
    hidden: &HiddenPaths,
) -> io::Result<Vec<InstructionFile>> {
    let texts = LocationTexts::open(top, hidden)?;
    let below = root.strip_prefix(top).unwrap_or(Path::new(""));
    let mut files = Vec::new();
    let nearest_first = below.ancestors().zip(shown.ancestors()).take(MAX_FILES);
    for (directory, shown) in nearest_first {
        if let Some(found) = texts.read(&directory.join(INSTRUCTION_FILE), MAX_FILE_BYTES)? {
            let origin = shown.join(INSTRUCTION_FILE);
            files.extend(InstructionFile::new(&origin.to_string_lossy(), &found.text, found.more));
        }
    }
    files.reverse();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use context::Initialized;
    use tools::project_top;

    use super::*;

    fn told(files: Vec<InstructionFile>) -> String {
        let Initialized { baseline, .. } =
            instructions(None, files).initialize().expect("available");
        baseline
    }

    #[test]
    fn the_project_is_told_from_the_top_of_its_worktree_down_to_the_location() {
        let outside = tempfile::tempdir().unwrap();
        let top = outside.path().join("top");
        let root = top.join("a/b");
        fs::create_dir_all(&root).unwrap();
        fs::write(outside.path().join("AGENTS.md"), "Not ours.").unwrap();
        fs::write(top.join("AGENTS.md"), "Far.").unwrap();
        fs::write(root.join("AGENTS.md"), "Near.").unwrap();
        let shown = Path::new("/home/me/top/a/b");
        let near = "Instructions for this workspace:\n\nInstructions from: /home/me/top/a/b/AGENTS.md\nNear.";
        // Without a repository, the Location is its own project.
        assert_eq!(project_top(&root), root);
        assert_eq!(
            told(upward(&root, project_top(&root), shown, &HiddenPaths::default()).unwrap()),
            near
        );
        // A worktree's `.git` is a file.
        fs::write(top.join(".git"), "gitdir: elsewhere").unwrap();
        assert_eq!(project_top(&root), top);
        let both = told(upward(&root, project_top(&root), shown, &HiddenPaths::default()).unwrap());
        let far = "Instructions from: /home/me/top/AGENTS.md\nFar.\n\nInstructions from: /home/me/top/a/b/";
        assert!(both.contains(far) && !both.contains("Not ours"), "{both}");
    }

    #[test]
    fn a_symlink_tells_what_is_in_the_project_and_nothing_else() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        let root = outside.path().join("root");
        fs::create_dir(&root).unwrap();
        let read = || upward(&root, &root, Path::new("/w"), &HiddenPaths::default()).unwrap();
        for (target, files) in [("../secret", 0), ("CLAUDE.md", 1)] {
            fs::write(root.join("CLAUDE.md"), "Ours.").unwrap();
            symlink(target, root.join("AGENTS.md")).unwrap();
            assert_eq!(read().len(), files, "{target}");
            fs::remove_file(root.join("AGENTS.md")).unwrap();
        }
        fs::create_dir(root.join("AGENTS.md")).unwrap();
        assert_eq!(read(), Vec::new());
    }

    #[test]
    fn only_the_beginning_of_a_huge_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("AGENTS.md"), "x".repeat(1024 * 1024)).unwrap();
        let baseline = told(
            upward(folder.path(), folder.path(), Path::new("/w"), &HiddenPaths::default()).unwrap(),
        );
        assert!(baseline.len() < MAX_FILE_BYTES + 300, "{} bytes", baseline.len());
        assert!(baseline.ends_with("(cut here: only the first 65536 bytes are told)"));
    }
}
