//! The changes of a working tree, as git tells them in a cell.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::{Cell, Command, DiskShare, End, HiddenPaths, LiveOutput, Reach, Sandbox};
use tokio_util::sync::CancellationToken;
use tools::LocationTexts;
use workspaces::{ChangesAsked, show_changes};

use crate::repository::{HeadCommit, head_commit};

/// The longest time for git.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of git's output that are read.
const OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// The most files of an answer.
const MAX_FILES: usize = 2_000;
/// The most bytes of an untracked file of which a patch is made.
const UNTRACKED_BYTES: usize = 256 * 1024;
/// The most bytes of the patches of all untracked files.
const ALL_UNTRACKED_BYTES: usize = 4 * 1024 * 1024;

/// How a file differs from the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Deleted,
}

/// A file of the working tree that differs from the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkingChange {
    /// Its path below the directory that was asked about.
    pub path: String,
    /// How it differs.
    pub kind: ChangeKind,
    /// The lines that are new; 0 of a binary file.
    pub additions: u64,
    /// The lines that are gone; 0 of a binary file.
    pub deletions: u64,
    /// A unified diff; `None` of a binary file, of a large one, and where none was asked for.
    pub patch: Option<String>,
}

/// The checkout that a directory belongs to.
pub(crate) struct AskedTree<'t> {
    /// The top, where the `.git` is.
    pub(crate) top: &'t Path,
    /// The directory.
    pub(crate) root: &'t Path,
    pub(crate) hidden: &'t HiddenPaths,
}

impl AskedTree<'_> {
    /// Returns the directory below the top, `.` for the top itself.
    fn find_path_below(&self) -> Option<&str> {
        let below = self.root.strip_prefix(self.top).ok()?.to_str()?;
        Some(if below.is_empty() { "." } else { below })
    }

    /// Returns the command that shows the changes; `None` if git cannot be asked about this checkout. Blocking.
    pub(crate) fn build_command(&self, asked: ChangesAsked) -> Option<Command> {
        let head = match head_commit(self.top, self.hidden)? {
            HeadCommit::Unborn => None,
            HeadCommit::Commit(commit) => Some(commit),
        };
        let git = show_changes(head, self.find_path_below()?, asked);
        Some(Command {
            program: git.program.into(),
            args: git.args.into_iter().map(Into::into).collect(),
            directory: self.top.to_path_buf(),
            env: git.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            timeout: PATIENCE,
            keep_bytes: OUTPUT_BYTES,
            lock: None,
            cell: Cell {
                name: format!("changes {}", self.top.display()),
                workspace: Some(self.top.to_path_buf()),
                shown: None,
                protect: false,
                network: Reach::None,
                hidden: self.hidden.clone(),
            },
            outputs: Vec::new(),
            share: DiskShare::default(),
            read_only: Vec::new(),
            live: LiveOutput::default(),
        })
    }

    /// Reads git's answer, and the untracked files. `shows` says whether a file may be shown, by its path below the directory.
    /// Blocking.
    pub(crate) fn read_answer(
        &self,
        answer: &str,
        asked: ChangesAsked,
        shows: impl Fn(&Path) -> bool,
    ) -> Vec<WorkingChange> {
        let Ok(texts) = LocationTexts::open(self.top, self.hidden) else { return Vec::new() };
        let prefix =
            self.find_path_below().filter(|below| *below != ".").map(|below| format!("{below}/"));
        let prefix = prefix.unwrap_or_default();
        let is_shown = |path: &str| {
            !texts.is_hidden(Path::new(path))
                && path.strip_prefix(&prefix).is_some_and(|below| shows(Path::new(below)))
        };
        let Answer { untracked, mut changes } = Answer::parse(answer);
        changes.retain(|path, _| is_shown(path));
        let mut room = ALL_UNTRACKED_BYTES;
        for path in untracked.into_iter().filter(|path| is_shown(path)) {
            if changes.len() >= MAX_FILES {
                break;
            }
            if let Some(change) = untracked_change(&texts, &path, asked, &mut room) {
                changes.insert(path, change);
            }
        }
        let below = |change: WorkingChange| WorkingChange {
            path: change.path.strip_prefix(&prefix).unwrap_or(&change.path).to_owned(),
            ..change
        };
        changes.into_values().take(MAX_FILES).map(below).collect()
    }
}

/// Runs the command. Returns what it printed; `None` if it could not run here, failed or took too long.
pub(crate) async fn run_git(sandbox: &dyn Sandbox, command: Command) -> Option<String> {
    let directory: PathBuf = command.directory.clone();
    let outcome = match sandbox.run(command, &CancellationToken::new()).await {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::debug!(directory = %directory.display(), %error, "git could not be asked for changes");
            return None;
        }
    };
    if outcome.end != End::Exited(0) {
        let end = outcome.end;
        tracing::debug!(directory = %directory.display(), ?end, "git did not tell the changes");
        return None;
    }
    let is_whole = outcome.output.is_whole();
    let mut answer = outcome.output.head;
    if is_whole {
        answer.push_str(&outcome.output.tail);
    } else if let Some(end) = answer.rfind('\n') {
        answer.truncate(end + 1); // more was printed than is read
    }
    Some(answer)
}

/// Returns the change of a file that git does not know; `None` for something else than a regular file.
fn untracked_change(
    texts: &LocationTexts,
    path: &str,
    asked: ChangesAsked,
    room: &mut usize,
) -> Option<WorkingChange> {
    let found = texts.read(Path::new(path), UNTRACKED_BYTES).ok()??;
    let is_text = !found.more && !found.is_mended && !found.text.contains('\0');
    let lines = if is_text { found.text.lines().count() } else { 0 };
    let is_wanted = is_text && asked.context.is_some() && found.text.len() <= *room;
    let patch = is_wanted.then(|| {
        *room -= found.text.len();
        added_patch(path, &found.text, lines)
    });
    Some(WorkingChange {
        path: path.to_owned(),
        kind: ChangeKind::Added,
        additions: u64::try_from(lines).unwrap_or(u64::MAX),
        deletions: 0,
        patch,
    })
}

/// Returns the patch that makes a file of this text.
fn added_patch(path: &str, text: &str, lines: usize) -> String {
    let mut patch = format!("--- /dev/null\n+++ b/{path}\n");
    if lines == 0 {
        return patch;
    }
    let count = if lines == 1 { String::new() } else { format!(",{lines}") };
    patch.push_str(&format!("@@ -0,0 +1{count} @@\n"));
    for line in text.split_inclusive('\n') {
        patch.push('+');
        patch.push_str(line);
    }
    if !text.ends_with('\n') {
        patch.push_str("\n\\ No newline at end of file\n");
    }
    patch
}

/// The output of [`show_changes`].
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    untracked: Vec<String>,
    /// By path from the top.
    changes: BTreeMap<String, WorkingChange>,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let mut answer = Self::default();
        let (lists, patches) = text.split_once("\n\n").unwrap_or((text, ""));
        for line in lists.lines() {
            answer.read_line(line);
        }
        let mut rest = patches;
        while let Some(start) = begin_of_patch(rest) {
            let patch = &rest[start..];
            let end = begin_of_patch(&patch[1..]).map_or(patch.len(), |end| end + 1);
            answer.keep_patch(&patch[..end]);
            rest = &patch[end..];
        }
        answer
    }

    /// Reads a line before the patches: an untracked file, `:MODES IDS STATUS\tNAME`, or `ADDED\tDELETED\tNAME`.
    fn read_line(&mut self, line: &str) {
        if let Some(name) = line.strip_prefix("? ") {
            // A repository within ends with a slash.
            let name = unquote_name(name).filter(|name| !name.ends_with('/'));
            self.untracked.extend(name);
            return;
        }
        if let Some(raw) = line.strip_prefix(':') {
            let Some((facts, name)) = raw.split_once('\t') else { return };
            let kind = match facts.rsplit(' ').next().and_then(|status| status.chars().next()) {
                Some('A') => ChangeKind::Added,
                Some('D') => ChangeKind::Deleted,
                Some(_) => ChangeKind::Modified,
                None => return,
            };
            let Some(path) = unquote_name(name) else { return };
            let change =
                WorkingChange { path: path.clone(), kind, additions: 0, deletions: 0, patch: None };
            self.changes.insert(path, change);
            return;
        }
        let mut columns = line.splitn(3, '\t');
        let mut next = || columns.next().unwrap_or_default();
        let (additions, deletions, name) = (next(), next(), next());
        let change = unquote_name(name).and_then(|path| self.changes.get_mut(&path));
        if let Some(change) = change {
            change.additions = additions.parse().unwrap_or(0);
            change.deletions = deletions.parse().unwrap_or(0);
        }
    }

    /// Keeps a patch from its `---` on. One without lines, as of a binary file, is left out.
    fn keep_patch(&mut self, patch: &str) {
        let Some(lines) = patch.find("\n--- ").map(|at| &patch[at + 1..]) else { return };
        let mut names = lines.lines().take(2).filter_map(|line| line.get(4..));
        let name = |given: &str| {
            let name = unquote_name(given.trim_end_matches('\t'))?;
            name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).map(str::to_owned)
        };
        let path = names.find_map(name); // of an added file the first is /dev/null
        if let Some(change) = path.and_then(|path| self.changes.get_mut(&path)) {
            change.patch = Some(lines.to_owned());
        }
    }
}

/// Returns where the next patch begins. Lines of files begin with another sign.
fn begin_of_patch(text: &str) -> Option<usize> {
    if text.starts_with("diff --git ") {
        return Some(0);
    }
    text.find("\ndiff --git ").map(|at| at + 1)
}

/// Returns a name as it is, of how git prints it: in quotes with escapes, if it has odd characters. `None` if it is not UTF-8.
fn unquote_name(printed: &str) -> Option<String> {
    let Some(quoted) = printed.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return (!printed.is_empty() && !printed.contains('\u{FFFD}')).then(|| printed.to_owned());
    };
    let mut bytes = Vec::with_capacity(quoted.len());
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'a' => 7,
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            digit @ b'0'..=b'3' => {
                let low = |byte: u8| (b'0'..=b'7').contains(&byte).then(|| byte - b'0');
                ((digit - b'0') << 6) | (low(rest.next()?)? << 3) | low(rest.next()?)?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|name| !name.contains('\u{FFFD}'))
}

#[cfg(test)]
mod tests {
    use super::ChangeKind::{Added, Deleted, Modified};
    use super::*;

    const PRINTED: &str = "? new.txt\n? nested/\n? \"tab\\there\"\n\
        :100644 100644 4 0 M\ta.txt\n:000000 100644 0 c A\tbin\n:100644 000000 5 0 D\tsub/x\n\
        :100644 100644 d 0 M\t\"\\303\\266 \\\"q\\\"\"\n\
        1\t0\ta.txt\n-\t-\tbin\n0\t1\tsub/x\n1\t1\t\"\\303\\266 \\\"q\\\"\"\n\n\
        diff --git a/a.txt b/a.txt\nindex 4..d 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n a\n+diff --git a/bin b/bin\n\
        diff --git a/bin b/bin\nnew file mode 100644\nBinary files /dev/null and b/bin differ\n\
        diff --git a/sub/x b/sub/x\ndeleted file mode 100644\n--- a/sub/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
        diff --git \"a/\\303\\266 \\\"q\\\"\" b/x\n--- \"a/\\303\\266 \\\"q\\\"\"\t\n+++ \"b/\\303\\266 \\\"q\\\"\"\t\n@@ -1 +1 @@\n-a\n+b\n";

    #[test]
    fn the_answer_of_git_is_read_name_by_name() {
        let answer = Answer::parse(PRINTED);
        assert_eq!(answer.untracked, ["new.txt", "tab\there"]);
        let told: Vec<_> = answer
            .changes
            .values()
            .map(|it| (it.path.as_str(), it.kind, it.additions, it.deletions, it.patch.is_some()))
            .collect();
        assert_eq!(
            told,
            [
                ("a.txt", Modified, 1, 0, true),
                ("bin", Added, 0, 0, false),
                ("sub/x", Deleted, 0, 1, true),
                ("ö \"q\"", Modified, 1, 1, true),
            ]
        );
        let patch = answer.changes["a.txt"].patch.as_deref();
        assert_eq!(
            patch,
            Some("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,2 @@\n a\n+diff --git a/bin b/bin\n")
        );
        for cut in 0..PRINTED.len() {
            Answer::parse(PRINTED.get(..cut).unwrap_or_default());
        }
    }

    #[test]
    fn an_untracked_file_has_the_patch_that_makes_it() {
        for (text, patch) in [
            ("", "--- /dev/null\n+++ b/n\n"),
            ("a\n", "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+a\n"),
            (
                "a\nb",
                "--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n",
            ),
        ] {
            assert_eq!(added_patch("n", text, text.lines().count()), patch);
        }
    }
}
