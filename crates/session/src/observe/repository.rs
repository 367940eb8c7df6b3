use std::fs;
use std::path::Path;

/// The longest file of git's that is read, in bytes.
const GIT_FILE: u64 = 4 * 1024;

/// Whether `root` is a git checkout, and its branch. A worktree's `.git` is a file that names the folder.
/// What a workspace holds is not trusted: a branch is told only if git could have made it. Blocking.
pub(super) fn repository(root: &Path) -> (bool, Option<String>) {
    let git = root.join(".git");
    let folder = match short_text(&git) {
        Some(text) => match text.trim().strip_prefix("gitdir: ") {
            Some(folder) => root.join(folder),
            None => return (false, None),
        },
        None => git,
    };
    match short_text(&folder.join("HEAD")) {
        Some(head) => {
            let branch = head.trim().strip_prefix("ref: refs/heads/");
            (true, branch.filter(|name| is_branch(name)).map(str::to_owned))
        }
        None => (false, None),
    }
}

/// A regular file's text; `None` when it is anything else, or longer than git makes it.
fn short_text(path: &Path) -> Option<String> {
    let found = fs::metadata(path).ok()?;
    if !found.is_file() || found.len() > GIT_FILE {
        return None;
    }
    fs::read_to_string(path).ok()
}

/// Git's own rule, as far as it keeps a name to one short word.
fn is_branch(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && !name.contains(|c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c))
}
