//! Finds the differences between two trees. Shared subtrees are never read.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use crate::error::SnapshotError;
use crate::object::{Entries, Entry, Kind, ObjectId};
use crate::objects::Objects;

/// A path whose entry differs. A file that became a directory, or the reverse, is two changes at the same
/// path: one removes, the other adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) path: PathBuf,
    pub(crate) from: Option<Entry>,
    pub(crate) to: Option<Entry>,
}

impl Change {
    /// Returns whether files or links differ, not just the presence of a directory.
    pub(crate) fn is_leaf(&self) -> bool {
        let is_leaf = |entry: &Option<Entry>| entry.is_none_or(|e| e.kind != Kind::Directory);
        is_leaf(&self.from) && is_leaf(&self.to)
    }

    /// Returns whether an empty directory was added or removed, which no change beneath it shows.
    pub(crate) fn is_empty_directory(&self) -> bool {
        let empty = Entry { kind: Kind::Directory, id: ObjectId::of(b"") };
        matches!((self.from, self.to), (None, Some(entry)) | (Some(entry), None) if entry == empty)
    }
}

type Pair = (PathBuf, Option<ObjectId>, Option<ObjectId>);

/// Returns the changes from one tree to another, parents before their contents. `known` holds trees that need
/// not be read.
pub(crate) async fn compare(
    objects: &Objects,
    known: &HashMap<ObjectId, Entries>,
    from: Option<ObjectId>,
    to: Option<ObjectId>,
) -> Result<Vec<Change>, SnapshotError> {
    let mut changes = Vec::new();
    let mut level: Vec<Pair> = vec![(PathBuf::new(), from, to)];
    while !level.is_empty() {
        let ids = level.iter().flat_map(|(_, from, to)| [*from, *to]).flatten();
        let unknown: HashSet<_> = ids.filter(|id| !known.contains_key(id)).collect();
        let read = objects.trees(unknown).await?;
        let entries = |id: Option<ObjectId>| -> &[(_, _)] {
            id.and_then(|id| known.get(&id).or_else(|| read.get(&id))).map_or(&[], Vec::as_slice)
        };
        let mut next = Vec::new();
        for (path, from, to) in level {
            if from != to {
                merge(&path, entries(from), entries(to), &mut changes, &mut next);
            }
        }
        level = next;
    }
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(changes)
}

fn merge(
    at: &Path,
    mut from: &[(std::ffi::OsString, Entry)],
    mut to: &[(std::ffi::OsString, Entry)],
    changes: &mut Vec<Change>,
    next: &mut Vec<Pair>,
) {
    loop {
        let order = match (from.first(), to.first()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let mut before = None;
        let mut after = None;
        let mut name = None;
        if order.is_le()
            && let Some(((first, entry), rest)) = from.split_first()
        {
            (before, name, from) = (Some(*entry), Some(first), rest);
        }
        if order.is_ge()
            && let Some(((first, entry), rest)) = to.split_first()
        {
            (after, name, to) = (Some(*entry), Some(first), rest);
        }
        let Some(name) = name else { return };
        if before == after {
            continue;
        }
        let path = at.join(name);
        let directory = |entry: Option<Entry>| {
            entry.filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.id)
        };
        let (dir_before, dir_after) = (directory(before), directory(after));
        if dir_before.is_some() || dir_after.is_some() {
            next.push((path.clone(), dir_before, dir_after));
        }
        match (dir_before.is_some(), dir_after.is_some()) {
            (true, true) => {}
            (false, false) => changes.push(Change { path, from: before, to: after }),
            (true, false) | (false, true) => {
                if before.is_some() {
                    changes.push(Change { path: path.clone(), from: before, to: None });
                }
                if after.is_some() {
                    changes.push(Change { path, from: None, to: after });
                }
            }
        }
    }
}
