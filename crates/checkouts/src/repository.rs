//! Reads of git's own files what a `git` would say, without one: nothing of a repository is obeyed.

use std::path::{Path, PathBuf};

use git_wire::Oid;
use sandbox::HiddenPaths;
use tools::LocationTexts;

/// The longest file of git that is read, in bytes.
const GIT_FILE: usize = 4 * 1024;

/// Returns whether `root` is a git checkout, and its branch. Blocking.
///
/// A worktree's `.git` is a file that names another folder. That folder is only read if the Location is a directory
/// of the machine's user (`in_project`), and only if the folder names the Location too. The workspace is not trusted: everything is read below the Location and up
/// to a limit, and a branch is only shown if git could have created it.
#[must_use]
pub fn read_repository(
    root: &Path,
    in_project: bool,
    hidden: &HiddenPaths,
) -> (bool, Option<String>) {
    match head(root, in_project, hidden) {
        Some(head) => {
            let branch = head.trim().strip_prefix("ref: refs/heads/");
            (true, branch.filter(|name| is_branch(name)).map(str::to_owned))
        }
        None => (false, None),
    }
}

/// The most bytes of `packed-refs` that are read.
const PACKED_REFS: usize = 16 * 1024 * 1024;

/// The commit of a checkout whose `.git` is a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadCommit {
    /// The branch has no commit yet.
    Unborn,
    Commit(Oid),
}

/// Returns the commit that `HEAD` of the checkout at `top` leads to; `None` if that cannot be told from plain files here: the
/// `.git` is elsewhere, or of a newer format. Blocking.
pub(crate) fn head_commit(top: &Path, hidden: &HiddenPaths) -> Option<HeadCommit> {
    let texts = LocationTexts::open(top, hidden).ok()?;
    let head = short_text(&texts, Path::new(".git/HEAD"))?;
    let Some(name) = head.trim().strip_prefix("ref: ") else {
        return head.trim().parse().ok().map(HeadCommit::Commit);
    };
    let branch = name.strip_prefix("refs/heads/")?;
    let is_plain = is_branch(branch) && branch.split('/').all(|part| !part.starts_with('.'));
    if !is_plain {
        return None; // of another format of references, for one
    }
    if let Some(loose) = short_text(&texts, &Path::new(".git").join(name)) {
        return loose.trim().parse().ok().map(HeadCommit::Commit);
    }
    let Some(packed) = texts.read(Path::new(".git/packed-refs"), PACKED_REFS).ok()? else {
        return Some(HeadCommit::Unborn);
    };
    let mut lines = packed.text.lines().filter_map(|line| line.split_once(' '));
    match lines.find(|(_, packed)| *packed == name) {
        Some((commit, _)) => commit.parse().ok().map(HeadCommit::Commit),
        None if packed.more => None,
        None => Some(HeadCommit::Unborn),
    }
}

/// Returns the text of git's `HEAD`; `None` without one.
fn head(root: &Path, in_project: bool, hidden: &HiddenPaths) -> Option<String> {
    let texts = LocationTexts::open(root, hidden).ok()?;
    let Some(text) = short_text(&texts, Path::new(".git")) else {
        return short_text(&texts, Path::new(".git/HEAD"));
    };
    let folder = text.trim().strip_prefix("gitdir: ")?;
    let folder = root.join(folder);
    if let Ok(below) = folder.strip_prefix(root)
        && let Some(head) = short_text(&texts, &below.join("HEAD"))
    {
        return Some(head);
    }
    if !in_project {
        return None;
    }
    let folder = folder.canonicalize().ok()?;
    let texts = LocationTexts::open(&folder, hidden).ok()?;
    belongs_to(&texts, &folder, root).then(|| short_text(&texts, Path::new("HEAD")))?
}

/// Returns whether git made `folder` for the checkout at `root`, as its own files there say: of a worktree, `gitdir` names the
/// checkout's `.git`; of a submodule, `config` names the checkout. Whoever wrote the `.git` cannot write them elsewhere.
fn belongs_to(texts: &LocationTexts, folder: &Path, root: &Path) -> bool {
    let is = |path: PathBuf, other: &Path| path.canonicalize().is_ok_and(|path| path == other);
    let Ok(root) = root.canonicalize() else { return false };
    let worktree = short_text(texts, Path::new("gitdir"));
    if worktree.is_some_and(|path| is(folder.join(path.trim()), &root.join(".git"))) {
        return true;
    }
    let config = short_text(texts, Path::new("config")).unwrap_or_default();
    let mut values = config.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once('=')?;
        (name.trim() == "worktree").then(|| value.trim())
    });
    values.any(|value| is(folder.join(value), &root))
}

/// Returns the text of a regular file; `None` if it is something else, cannot be read, or is longer than git makes
/// it.
fn short_text(texts: &LocationTexts, path: &Path) -> Option<String> {
    let found = texts.read(path, GIT_FILE).ok().flatten()?;
    (!found.more).then_some(found.text)
}

/// Checks git's own rule for names, and limits them to one short word.
fn is_branch(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn repository(root: &Path, in_project: bool) -> (bool, Option<String>) {
        super::read_repository(root, in_project, &HiddenPaths::default())
    }

    const ON_MAIN: &str = "ref: refs/heads/main\n";

    fn on(branch: &str) -> (bool, Option<String>) {
        (true, Some(branch.to_owned()))
    }

    /// Makes a directory with the Location `root` and, beside it, the folder of a worktree.
    fn worktree(gitdir: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        for place in [folder.path().join("away"), root.join("inner")] {
            fs::create_dir(&place).unwrap();
            fs::write(place.join("HEAD"), ON_MAIN).unwrap();
        }
        fs::write(root.join(".git"), format!("gitdir: {gitdir}\n")).unwrap();
        (folder, root)
    }

    #[test]
    fn a_checkout_and_a_worktree_tell_their_branch() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert_eq!(repository(root, true), (false, None));
        fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(repository(root, true), (false, None));
        fs::write(root.join(".git/HEAD"), ON_MAIN).unwrap();
        assert_eq!(repository(root, false), on("main"));
        fs::write(root.join(".git/HEAD"), "0123456789\n").unwrap();
        assert_eq!(repository(root, false), (true, None));
        let (_folder, root) = worktree("inner");
        assert_eq!(repository(&root, false), on("main"));
    }

    #[test]
    fn only_a_local_location_looks_into_a_folder_elsewhere() {
        let (folder, root) = worktree("../away");
        // Finding security-3, low: any directory with a `HEAD` was read.
        assert_eq!(repository(&root, true), (false, None));
        fs::write(folder.path().join("away/gitdir"), format!("{}/.git\n", root.display())).unwrap();
        assert_eq!(repository(&root, true), on("main"));
        assert_eq!(repository(&root, false), (false, None));
        let absolute = folder.path().join("away");
        let (_folder, root) = worktree(&absolute.display().to_string());
        assert_eq!(repository(&root, true), (false, None));
        let config = format!("[core]\n\tbare = false\n\tworktree = {}\n", root.display());
        fs::write(absolute.join("config"), config).unwrap();
        assert_eq!(repository(&root, true), on("main"));
        assert_eq!(repository(&root, false), (false, None));
    }

    // Finding security 3: `.git` as a link to /proc/self/pagemap was read without a bound, before any write.
    #[test]
    fn a_hostile_git_is_no_repository_and_is_not_read() {
        let ended = |make: &dyn Fn(&Path)| {
            let folder = tempfile::tempdir().unwrap();
            make(folder.path());
            let (ends, end) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let both = [true, false].map(|in_project| repository(folder.path(), in_project));
                ends.send(both).unwrap();
            });
            end.recv_timeout(std::time::Duration::from_secs(60)).unwrap()
        };
        let none = [(false, None), (false, None)];
        for target in ["/proc/self/pagemap", "/proc/self/mem", "/dev/zero"] {
            assert_eq!(ended(&|root| symlink(target, root.join(".git")).unwrap()), none);
            let head = |root: &Path| {
                fs::create_dir(root.join(".git")).unwrap();
                symlink(target, root.join(".git/HEAD")).unwrap();
            };
            assert_eq!(ended(&head), none, "{target}");
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let pipe = |root: &Path| {
            rustix::fs::mkfifoat(rustix::fs::CWD, root.join(".git"), mode).unwrap();
        };
        assert_eq!(ended(&pipe), none);
        let sparse = |root: &Path| {
            fs::File::create(root.join(".git")).unwrap().set_len(1 << 40).unwrap();
        };
        assert_eq!(ended(&sparse), none);
    }
}
