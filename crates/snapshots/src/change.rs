//! File changes for display: a status, line counts and a bounded patch for each file.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use blobs::Blobs;
use bytes::Bytes;
use similar::{DiffOp, TextDiff};

use crate::compare::{Change, compare};
use crate::error::SnapshotError;
use crate::limits::SnapshotLimits;
use crate::object::{Entry, Kind, ObjectId, TreeId};
use crate::objects::Objects;

/// The number of files compared per read from packs. Bounds the contents in memory.
const CHUNK: usize = 32;
/// The longest time for one patch. After that it is correct, but larger than necessary.
const ONE_PATCH: Duration = Duration::from_millis(200);
/// A NUL byte among this many first bytes makes a file binary, as in git.
const BINARY_BYTES: usize = 8_000;

/// The kind of a change to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeStatus {
    /// It is new.
    Added,
    /// Its content or mode changed, or it became a link or stopped being one.
    Modified,
    /// It is gone.
    Deleted,
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The path below the Location's root. Bytes that are not UTF-8 become U+FFFD.
    pub path: String,
    /// The kind of change.
    pub status: ChangeStatus,
    /// The number of added lines; 0 for binary files and files that were not compared.
    pub additions: u64,
    /// The number of removed lines; 0 for binary files and files that were not compared.
    pub deletions: u64,
    /// A unified diff with three lines of context. `None` for binary files, for files above the limits, and
    /// if only the mode changed.
    pub patch: Option<String>,
}

/// The files that differ between two trees, ordered by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// At most [`SnapshotLimits::changes`].
    pub files: Vec<FileChange>,
    /// The number of further changed files.
    pub more: usize,
    /// Added or removed empty directories, ordered by path; at most [`SnapshotLimits::changes`].
    pub directories: Vec<String>,
}

/// Returns the differences between two trees of the organisation `org`, read from packs alone. `packs`, oldest first, must
/// contain both trees.
pub async fn diff(
    blobs: &Blobs,
    org: &str,
    packs: Vec<String>,
    from: &TreeId,
    to: &TreeId,
    limits: &SnapshotLimits,
) -> Result<FileChanges, SnapshotError> {
    let objects = Objects::open(blobs.clone(), org.to_owned(), packs).await?;
    let changes = compare(&objects, &HashMap::new(), Some(from.0), Some(to.0)).await?;
    show(&objects, changes, limits).await
}

/// Returns a file of a tree of the organisation `org`, read from packs alone, if it has at most `most` bytes. `packs`, oldest
/// first, must contain the tree.
pub async fn file_at(
    blobs: &Blobs,
    org: &str,
    packs: Vec<String>,
    tree: &TreeId,
    path: &Path,
    most: u64,
) -> Result<Option<Bytes>, SnapshotError> {
    let objects = Objects::open(blobs.clone(), org.to_owned(), packs).await?;
    let mut at = Entry { kind: Kind::Directory, id: tree.0 };
    for name in path {
        if at.kind != Kind::Directory {
            return Ok(None);
        }
        let read = objects.trees(HashSet::from([at.id])).await?;
        let entries = read.get(&at.id).map_or(&[][..], Vec::as_slice);
        let Some((_, entry)) = entries.iter().find(|(known, _)| known == name) else {
            return Ok(None);
        };
        at = *entry;
    }
    if matches!(at.kind, Kind::Directory | Kind::Link) {
        return Ok(None);
    }
    objects.find(&[at.id]).await?;
    if objects.size(at.id).is_none_or(|bytes| bytes > most) {
        return Ok(None);
    }
    Ok(objects.get(vec![at.id]).await?.remove(&at.id))
}

/// Lists changes, with patches within the limits and if the packs have the contents.
pub(crate) async fn show(
    objects: &Objects,
    changes: Vec<Change>,
    limits: &SnapshotLimits,
) -> Result<FileChanges, SnapshotError> {
    // What git keeps for itself is no change of the person's files.
    let changes: Vec<Change> =
        changes.into_iter().filter(|change| !change.path.starts_with(".git")).collect();
    let empty = changes.iter().filter(|change| change.is_empty_directory());
    let directories = empty.map(|change| shown(&change.path)).take(limits.changes).collect();
    let mut leaves: Vec<Change> = changes.into_iter().filter(Change::is_leaf).collect();
    let more = leaves.len().saturating_sub(limits.changes);
    leaves.truncate(limits.changes);
    let began = Instant::now();
    let mut files = Vec::with_capacity(leaves.len());
    for chunk in leaves.chunks(CHUNK) {
        let left = limits.patch_time.saturating_sub(began.elapsed());
        let sides = chunk.iter().flat_map(|change| [change.from, change.to]).flatten();
        let small = |id: &ObjectId| objects.size(*id).is_some_and(|n| n <= limits.compared_bytes);
        let sides: Vec<_> = sides.map(|entry| entry.id).collect();
        if !left.is_zero() {
            objects.find(&sides).await?;
        }
        let wanted: Vec<_> = sides.into_iter().filter(small).collect();
        let contents = if left.is_zero() { HashMap::new() } else { objects.get(wanted).await? };
        let (chunk, patch_bytes) = (chunk.to_vec(), limits.patch_bytes);
        let shown = tokio::task::spawn_blocking(move || {
            let began = Instant::now();
            let one = |change: &Change| {
                let left = left.saturating_sub(began.elapsed()).min(ONE_PATCH);
                show_one(change, &contents, left, patch_bytes)
            };
            chunk.iter().map(one).collect::<Vec<_>>()
        });
        files.extend(shown.await?);
    }
    Ok(FileChanges { files, more, directories })
}

fn show_one(
    change: &Change,
    contents: &HashMap<ObjectId, Bytes>,
    time: Duration,
    patch_bytes: usize,
) -> FileChange {
    let path = shown(&change.path);
    let status = match (&change.from, &change.to) {
        (None, _) => ChangeStatus::Added,
        (_, None) => ChangeStatus::Deleted,
        (Some(_), Some(_)) => ChangeStatus::Modified,
    };
    let unknown =
        FileChange { path: path.clone(), status, additions: 0, deletions: 0, patch: None };
    let text = |entry: Option<Entry>| match entry {
        None => Some(""),
        Some(entry) => contents.get(&entry.id).and_then(|bytes| as_text(bytes)),
    };
    let (Some(before), Some(after)) = (text(change.from), text(change.to)) else { return unknown };
    if time.is_zero() || before == after {
        return unknown;
    }
    let diff = TextDiff::configure().timeout(time).diff_lines(before, after);
    let (mut additions, mut deletions) = (0, 0);
    for op in diff.ops() {
        match op {
            DiffOp::Equal { .. } => {}
            DiffOp::Delete { old_len, .. } => deletions += *old_len as u64,
            DiffOp::Insert { new_len, .. } => additions += *new_len as u64,
            DiffOp::Replace { old_len, new_len, .. } => {
                deletions += *old_len as u64;
                additions += *new_len as u64;
            }
        }
    }
    let name = |side: &str, entry: Option<Entry>| match entry {
        Some(_) => format!("{side}/{path}"),
        None => "/dev/null".to_owned(),
    };
    let (old, new) = (name("a", change.from), name("b", change.to));
    let patch = diff.unified_diff().context_radius(3).header(&old, &new).to_string();
    let patch = Some(patch).filter(|patch| patch.len() <= patch_bytes);
    FileChange { path, status, additions, deletions, patch }
}

fn as_text(bytes: &Bytes) -> Option<&str> {
    let start = &bytes[..bytes.len().min(BINARY_BYTES)];
    if start.contains(&0) { None } else { std::str::from_utf8(bytes).ok() }
}

/// Returns a path as events and people see it.
pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
