//! The files of a Location in an order that never changes, without what its ignore files name.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use tokio_util::sync::CancellationToken;

use crate::call::Stopped;
use crate::files::LocationFiles;

/// Entries that one walk looks at.
const MAX_ENTRIES: usize = 500_000;

/// What a walk could not see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) unreadable: usize,
    pub(crate) gave_up: bool,
    base_seen: bool,
}

/// Visits each file below the directory `base`, both below the root, by name within each directory, until `visit`
/// breaks. Ignore files above the root count nothing: a result must not differ between workers.
///
/// A `base` that is itself ignored is walked without the ignore files above it: it was asked for by name.
pub(crate) fn walk(
    files: &LocationFiles,
    base: &Path,
    cancel: &CancellationToken,
    mut visit: impl FnMut(&Path) -> Result<ControlFlow<()>, Stopped>,
) -> Result<Walked, Stopped> {
    let base = if base == Path::new(".") { Path::new("") } else { base };
    let walked = walk_from(files, Path::new(""), base, cancel, &mut visit)?;
    if walked.base_seen {
        return Ok(walked);
    }
    walk_from(files, base, base, cancel, &mut visit)
}

fn walk_from(
    files: &LocationFiles,
    start: &Path,
    base: &Path,
    cancel: &CancellationToken,
    visit: &mut impl FnMut(&Path) -> Result<ControlFlow<()>, Stopped>,
) -> Result<Walked, Stopped> {
    let root = files.real_root().to_path_buf();
    let mut walked = Walked::default();
    for (count, entry) in builder(&root, start, base).build().enumerate() {
        if count.is_multiple_of(256) && cancel.is_cancelled() {
            return Err(Stopped::Interrupted);
        }
        if count == MAX_ENTRIES {
            walked.gave_up = true;
            break;
        }
        let Ok(entry) = entry else {
            walked.unreadable += 1;
            continue;
        };
        let Ok(below) = entry.path().strip_prefix(&root) else { continue };
        walked.base_seen |= below.starts_with(base);
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file() || kind.is_symlink());
        if is_file && below.starts_with(base) && visit(below)?.is_break() {
            break;
        }
    }
    Ok(walked)
}

fn builder(root: &Path, start: &Path, base: &Path) -> WalkBuilder {
    let (root, base): (PathBuf, PathBuf) = (root.to_path_buf(), base.to_path_buf());
    let mut builder = WalkBuilder::new(root.join(start));
    builder
        .hidden(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .sort_by_file_name(Ord::cmp)
        .filter_entry(move |entry: &DirEntry| {
            let below = entry.path().strip_prefix(&root).unwrap_or(Path::new(""));
            entry.file_name() != ".git" && (base.starts_with(below) || below.starts_with(&base))
        });
    builder
}
