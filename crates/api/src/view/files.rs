use std::collections::BTreeMap;

use checkouts::{ChangeKind, WorkingChange};
use domain::{FileChange, FileStatus};
use schemars::JsonSchema;
use serde::Serialize;

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FileView {
    pub(crate) file: String,
    /// A unified diff; `None` for binary files and for large ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
    pub(crate) additions: i64,
    pub(crate) deletions: i64,
    pub(crate) status: FileStatus,
    /// Whether the counts were added up over several steps: lines may count twice, and there is no patch.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) partial: bool,
}

/// The changes of files. Stock clients only get the list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct DiffView {
    pub(crate) files: Vec<FileView>,
    /// The number of changed files that are not listed.
    pub(crate) more: i64,
}

/// The number of changed files and lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct SummaryView {
    additions: i64,
    deletions: i64,
    files: i64,
}

impl SummaryView {
    /// Returns whether nothing changed.
    pub(crate) fn is_nothing(self) -> bool {
        self.files == 0
    }
}

impl From<FileChange> for FileView {
    fn from(change: FileChange) -> Self {
        Self {
            file: change.path,
            patch: change.patch,
            additions: change.additions,
            deletions: change.deletions,
            status: change.status,
            partial: false,
        }
    }
}

impl From<WorkingChange> for FileView {
    fn from(change: WorkingChange) -> Self {
        Self {
            file: change.path,
            patch: change.patch,
            additions: i64::try_from(change.additions).unwrap_or(i64::MAX),
            deletions: i64::try_from(change.deletions).unwrap_or(i64::MAX),
            status: match change.kind {
                ChangeKind::Added => FileStatus::Added,
                ChangeKind::Modified => FileStatus::Modified,
                ChangeKind::Deleted => FileStatus::Deleted,
            },
            partial: false,
        }
    }
}

/// Steps that follow one another, added up as they come.
#[derive(Debug, Default)]
pub(crate) struct AddedSteps {
    /// `None`: the file was added and deleted again.
    files: BTreeMap<String, Option<FileView>>,
    more: i64,
}

impl AddedSteps {
    /// Adds the next step, with the number of files that it does not list.
    pub(crate) fn add(&mut self, changes: Vec<FileChange>, unlisted: i64) {
        self.more = self.more.max(unlisted);
        for change in changes {
            let path = change.path.clone();
            // A file that was added and deleted starts afresh.
            let now = match self.files.remove(&path).flatten() {
                Some(before) => after(&before, change),
                None => Some(change.into()),
            };
            self.files.insert(path, now);
        }
    }

    pub(crate) fn into_diff(self) -> DiffView {
        DiffView { files: self.files.into_values().flatten().collect(), more: self.more }
    }
}

impl DiffView {
    /// Returns whether a file's counts were added up over several steps, or files are missing.
    pub(crate) fn is_partial(&self) -> bool {
        self.more > 0 || self.files.iter().any(|file| file.partial)
    }

    /// Adds up steps that follow one another. A file that several steps changed is only counted and has no patch. A
    /// file that was added and deleted again is left out.
    pub(crate) fn of_steps(steps: impl IntoIterator<Item = (Vec<FileChange>, i64)>) -> Self {
        let mut added = AddedSteps::default();
        for (changes, unlisted) in steps {
            added.add(changes, unlisted);
        }
        added.into_diff()
    }

    pub(crate) fn summary(&self) -> SummaryView {
        let sum = |of: fn(&FileView) -> i64| self.files.iter().map(of).sum();
        let listed = i64::try_from(self.files.len()).unwrap_or(i64::MAX);
        SummaryView {
            additions: sum(|file| file.additions),
            deletions: sum(|file| file.deletions),
            files: listed.saturating_add(self.more),
        }
    }
}

/// Combines two changes of a file. Returns `None` when a file is deleted that the first change had added.
fn after(before: &FileView, change: FileChange) -> Option<FileView> {
    let status = match (before.status, change.status) {
        (FileStatus::Added, FileStatus::Deleted) => return None,
        (FileStatus::Added, FileStatus::Added | FileStatus::Modified) => FileStatus::Added,
        (FileStatus::Modified | FileStatus::Deleted, FileStatus::Deleted) => FileStatus::Deleted,
        (FileStatus::Modified | FileStatus::Deleted, FileStatus::Added | FileStatus::Modified) => {
            FileStatus::Modified
        }
    };
    Some(FileView {
        file: change.path,
        patch: None,
        additions: before.additions + change.additions,
        deletions: before.deletions + change.deletions,
        status,
        partial: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, status: FileStatus, additions: i64, deletions: i64) -> FileChange {
        let patch = Some(format!("@@ of {path}"));
        FileChange { path: path.into(), status, additions, deletions, patch }
    }

    fn told(diff: &DiffView) -> Vec<(&str, FileStatus, i64, i64, bool)> {
        let line =
            |file: &FileView| (file.status, file.additions, file.deletions, file.patch.is_some());
        let told = diff.files.iter().map(|file| (file.file.as_str(), line(file)));
        told.map(|(file, (status, plus, minus, patch))| (file, status, plus, minus, patch))
            .collect()
    }

    #[test]
    fn steps_add_up_and_only_what_one_step_did_has_its_patch() {
        use FileStatus::{Added, Deleted, Modified};
        let diff = DiffView::of_steps([
            (vec![change("new", Added, 3, 0), change("gone", Added, 1, 0)], 0),
            (vec![change("new", Modified, 1, 1), change("once", Modified, 2, 2)], 4),
            (vec![change("gone", Deleted, 0, 1), change("old", Deleted, 0, 9)], 1),
            (vec![change("old", Added, 5, 0)], 0),
        ]);
        assert_eq!(
            told(&diff),
            [
                ("new", Added, 4, 1, false),
                ("old", Modified, 5, 9, false),
                ("once", Modified, 2, 2, true),
            ]
        );
        assert_eq!(diff.more, 4);
        assert_eq!(diff.summary(), SummaryView { additions: 11, deletions: 12, files: 7 });
    }

    #[test]
    fn a_file_that_came_and_went_can_come_again() {
        use FileStatus::{Added, Deleted};
        let diff = DiffView::of_steps([
            (vec![change("a", Added, 1, 0)], 0),
            (vec![change("a", Deleted, 0, 1)], 0),
            (vec![change("a", Added, 2, 0)], 0),
        ]);
        assert_eq!(told(&diff), [("a", Added, 2, 0, true)]);
        assert_eq!(
            DiffView::of_steps([]).summary(),
            SummaryView { additions: 0, deletions: 0, files: 0 }
        );
    }
}
