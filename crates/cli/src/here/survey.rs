//! Looks at the person's repository: its commit, what is not committed, and which of it is not sent.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::private::Private;
use super::secret;
use crate::CliError;

/// The largest file that is sent without being committed, in bytes.
const MAX_FILE: u64 = 64 * 1024 * 1024;
/// The commits that the service is asked about.
const ASKED: &str = "--max-count=256";
/// The author of the commits that hold what is not committed.
const AUTHOR: [(&str, &str); 4] = [
    ("GIT_AUTHOR_NAME", "OpenCode"),
    ("GIT_AUTHOR_EMAIL", "noreply@opencode.invalid"),
    ("GIT_COMMITTER_NAME", "OpenCode"),
    ("GIT_COMMITTER_EMAIL", "noreply@opencode.invalid"),
];

/// The state of the person's repository.
pub(super) struct Survey {
    /// The name of its folder.
    pub(super) name: String,
    /// Its first commit.
    pub(super) root: String,
    /// The commit that is checked out.
    pub(super) head: String,
    /// Its branch, by its full name.
    pub(super) branch: Option<String>,
    /// Its newest commits.
    pub(super) commits: Vec<String>,
    /// What is not committed, as two commits.
    pub(super) changes: Option<ChangeCommits>,
    /// The files that differ from the commit.
    pub(super) changed: usize,
    /// Those of them that git does not track.
    pub(super) untracked: usize,
    /// Files and folders that are ignored.
    pub(super) ignored: Vec<PathBuf>,
    /// Untracked files that look like secrets, and stay.
    pub(super) kept_back: Vec<PathBuf>,
    /// Changed files that look like secrets, and go.
    pub(super) secret_changes: Vec<PathBuf>,
    /// Committed files whose names are those of secrets.
    pub(super) secret_commits: Vec<PathBuf>,
    /// Untracked repositories in this one, which stay.
    pub(super) nested: Vec<PathBuf>,
}

/// The commits that hold what is not committed.
pub(super) struct ChangeCommits {
    pub(super) staged: String,
    pub(super) wip: String,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, CliError> {
    Err(CliError::Usage(format!("run --here: {}", why.into())))
}

/// Looks at the repository. `include` names files and folders that go although they look like secrets.
pub(super) fn survey(here: &Private, include: &[PathBuf]) -> Result<Survey, CliError> {
    let Ok(head) = here.text(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]) else {
        return refuse(format!("{} has no commit yet; make one first", here.top.display()));
    };
    if head.len() != 40 {
        return refuse("the repository has SHA-256 ids, which are not supported yet");
    }
    if here.text(["rev-parse", "--is-shallow-repository"])? == "true" {
        return refuse("the clone is shallow; fetch the rest first: git fetch --unshallow");
    }
    let roots = here.run(["rev-list", "--max-parents=0", "HEAD"], b"")?;
    let roots = String::from_utf8_lossy(&roots);
    let root = roots.lines().last().unwrap_or(&head).to_owned();
    let branch = here.attempt(["symbolic-ref", "--quiet", "HEAD"].map(OsStr::new))?;
    let branch = String::from_utf8_lossy(&branch.stdout).trim().to_owned();
    let commits = here.run(["rev-list", ASKED, "HEAD"], b"")?;
    let commits = String::from_utf8_lossy(&commits).lines().map(str::to_owned).collect();
    let Ok(staged) = here.text(["write-tree"]) else {
        return refuse("the index has conflicts; resolve them first");
    };
    here.refresh()?;
    let is_included = |path: &Path| {
        include.iter().any(|given| given == Path::new(".") || path.starts_with(given))
    };
    let untracked = here.paths(["ls-files", "-o", "--exclude-standard", "-z"])?;
    let (nested, untracked): (Vec<_>, Vec<_>) =
        untracked.into_iter().partition(|path| path.as_os_str().as_bytes().ends_with(b"/"));
    let looks_secret = |path: &PathBuf| !is_included(path) && is_secret(&here.top, path);
    let (kept_back, untracked): (Vec<_>, Vec<_>) = untracked.into_iter().partition(looks_secret);
    let modified = here.paths(["diff-files", "--name-only", "--ignore-submodules", "-z"])?;
    let staged_paths = here.paths(["diff-index", "--cached", "--name-only", "-z", "HEAD"])?;
    fits(&here.top, untracked.iter().chain(&modified).chain(&staged_paths))?;
    let tracked: BTreeSet<PathBuf> = modified.iter().chain(&staged_paths).cloned().collect();
    let secret_changes = tracked.into_iter().filter(looks_secret).collect();
    let committed = here.paths(["ls-tree", "-r", "-z", "--name-only", "HEAD"])?;
    let is_named_so = |path: &PathBuf| !is_included(path) && secret::is_named_so(path);
    let secret_commits = committed.into_iter().filter(is_named_so).collect();
    here.stage(untracked.iter().chain(&modified).map(PathBuf::as_path))?;
    let tree = here.text(["write-tree"])?;
    let base = here.text(["rev-parse", "--verify", "HEAD^{tree}"])?;
    let changes = if tree == base && staged == base {
        None
    } else {
        let date = here.text(["log", "-1", "--format=@%ct +0000", "HEAD"])?;
        let commit = |tree: &str, message: &str| {
            let dates = [("GIT_AUTHOR_DATE", date.as_str()), ("GIT_COMMITTER_DATE", date.as_str())];
            let variables: Vec<_> = AUTHOR.into_iter().chain(dates).collect();
            let words = ["commit-tree", "-p", head.as_str(), "-m", message, tree];
            let made = here.run_with(words, &variables, b"")?;
            Ok::<_, CliError>(String::from_utf8_lossy(&made).trim().to_owned())
        };
        let wip = commit(&tree, "Changes that were not committed")?;
        Some(ChangeCommits { staged: commit(&staged, "Changes that were staged")?, wip })
    };
    let changed = here.paths(["diff-index", "--cached", "--name-only", "-z", "HEAD"])?.len();
    let ignored =
        here.paths(["ls-files", "-o", "-i", "--exclude-standard", "--directory", "-z"])?;
    if let Some(path) = ignored.iter().find(|path| include.contains(path)) {
        return refuse(format!(
            "--include {}: git ignores it, and a workspace keeps no ignored files; let the session make it, or take it out \
             of .gitignore",
            path.display()
        ));
    }
    Ok(Survey {
        name: name(&here.top),
        root,
        branch: Some(branch).filter(|branch| !branch.is_empty()),
        commits,
        changes,
        changed,
        untracked: untracked.len(),
        ignored,
        kept_back,
        secret_changes,
        secret_commits,
        nested,
        head,
    })
}

/// Returns the name of a folder as the service takes it.
fn name(top: &Path) -> String {
    let name = top.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let plain =
        |one: char| if one.is_ascii_alphanumeric() || "._-".contains(one) { one } else { '-' };
    let name: String = name.trim_start_matches('.').chars().map(plain).take(64).collect();
    if name.is_empty() { "repository".to_owned() } else { name }
}

fn is_secret(top: &Path, path: &Path) -> bool {
    secret::is_named_so(path) || {
        let mut head = Vec::new();
        // A link names a file, and is none; whatever cannot be read is not sent either.
        let is_file = top.join(path).symlink_metadata().is_ok_and(|found| found.is_file());
        let read = is_file.then(|| File::open(top.join(path)).ok()).flatten();
        let read = read.map(|file| file.take(secret::LOOKED_AT).read_to_end(&mut head));
        matches!(read, Some(Ok(_))) && secret::holds_one(&head)
    }
}

/// Refuses files that are too large to be sent.
fn fits<'a>(top: &Path, paths: impl Iterator<Item = &'a PathBuf>) -> Result<(), CliError> {
    let bytes = |path: &&PathBuf| top.join(path).symlink_metadata().map_or(0, |found| found.len());
    let large: BTreeSet<String> = paths
        .filter(|path| bytes(path) > MAX_FILE)
        .map(|path| path.display().to_string())
        .collect();
    if large.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = large.iter().map(String::as_str).take(5).collect();
    refuse(format!(
        "a file that is not committed has at most {} MiB: commit these, ignore them or take them away: {}",
        MAX_FILE >> 20,
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_named_by_its_folder() {
        assert_eq!(name(Path::new("/home/me/shop")), "shop");
        assert_eq!(name(Path::new("/home/me/.dot files é")), "dot-files--");
        assert_eq!(name(Path::new("/")), "repository");
    }
}
