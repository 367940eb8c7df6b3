//! Restores files: one atomic step per file, and never over content that would be lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawMode, Stat, fchmod, fstat, openat, renameat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;
use sandbox::LocationLock;
use sandbox::lock::{self, Held};

use crate::change::{FileChange, shown};
use crate::compare::Change;
use crate::directory::{Dir, Leaf, Node, Vouch};
use crate::error::SnapshotError;
use crate::object::{Entry, Kind, ObjectId};
use crate::place::{self, TEMPORARY};
use crate::steps::Steps;

/// The treatment of a file that would be removed or replaced, and whose content is in no pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsaved {
    /// Leave it and list it. For a Revert, before which everything was captured.
    Keep,
    /// Overwrite it. For a takeover, for which only the newest snapshot counts.
    Overwrite,
}

/// The result of a restore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The changed files, in the form of [`crate::diff`].
    pub files: Vec<FileChange>,
    /// The number of changed files beyond the list.
    pub more: usize,
    /// Paths that differ from the tree, because something there must not be lost or changed meanwhile.
    pub left: Vec<String>,
}

/// Selects the changes that a restore makes: those at `paths` and beneath, without `.git`; or all. A path
/// with a trailing slash means only the directory itself, not its contents.
pub(crate) fn select(changes: Vec<Change>, paths: Option<&BTreeSet<String>>) -> Vec<Change> {
    let Some(paths) = paths else { return changes };
    let named = |change: &Change| {
        let path = &change.path;
        let in_git = path.iter().any(|name| name == ".git");
        let itself = || !change.is_leaf() && paths.contains(&format!("{}/", shown(path)));
        !in_git && (itself() || path.ancestors().any(|path| paths.contains(&shown(path))))
    };
    let gone: BTreeSet<PathBuf> = changes
        .iter()
        .filter(|change| change.to.is_none() && named(change))
        .flat_map(|change| change.path.ancestors().map(Path::to_path_buf))
        .collect();
    let wanted = |change: &Change| {
        let is_directory = change.from.is_some_and(|entry| entry.kind == Kind::Directory);
        named(change) || (is_directory && gone.contains(&change.path))
    };
    changes.into_iter().filter(wanted).collect()
}

/// The file work of one restore.
pub(crate) struct Apply<'a> {
    pub(crate) root: &'a OwnedFd,
    pub(crate) lock: Option<&'a LocationLock>,
    pub(crate) unsaved: Unsaved,
    /// Returns whether a committed pack has an object.
    pub(crate) is_kept: &'a dyn Fn(ObjectId) -> bool,
    /// The current time in nanoseconds since the epoch.
    pub(crate) now_ns: i64,
    pub(crate) steps: &'a Steps,
    /// The known state of the files; updated with each change.
    pub(crate) dir: &'a mut Dir,
    pub(crate) progress: Progress,
}

/// The progress of a restore.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Paths that differ from the tree.
    pub(crate) left: BTreeSet<PathBuf>,
    /// Files with several names of which the restore removed one. That changes the other names' change time,
    /// and nothing else.
    unlinked: HashSet<Vouch>,
}

/// Whether a change was made, rather than left.
type Done = Result<bool, SnapshotError>;

impl Apply<'_> {
    /// Removes everything that the tree does not have, and creates its directories. `changes` are ordered by
    /// path.
    pub(crate) fn clear(&mut self, changes: &[Change]) -> Result<(), SnapshotError> {
        for change in changes.iter().rev().filter(|change| change.to.is_none()) {
            let Some(from) = change.from else { continue };
            let is_directory = from.kind == Kind::Directory;
            let removed =
                if is_directory { self.rmdir(&change.path)? } else { self.remove(change)? };
            if removed {
                self.dir.set(&change.path, None);
            } else if !is_directory {
                self.progress.left.insert(change.path.clone());
            }
            self.steps.pass()?;
        }
        let is_new = |change: &&Change| {
            change.from.is_none() && change.to.is_some_and(|entry| entry.kind == Kind::Directory)
        };
        for change in changes.iter().filter(is_new) {
            let _held = self.hold()?;
            match place::open_below(self.root, &change.path, true) {
                Ok(_) => self.dir.make(&change.path),
                Err(errno) => self.leave(&change.path, errno)?,
            }
            self.steps.pass()?;
        }
        Ok(())
    }

    /// Puts files and links in their places.
    pub(crate) fn fill(
        &mut self,
        changes: &[&Change],
        contents: &HashMap<ObjectId, Bytes>,
    ) -> Result<(), SnapshotError> {
        for change in changes {
            let Some(to) = change.to else { continue };
            let Some(bytes) = contents.get(&to.id) else {
                return Err(SnapshotError::MissingObject(to.id.to_string()));
            };
            if !self.put(change, to, bytes)? {
                self.progress.left.insert(change.path.clone());
            }
            self.steps.pass()?;
        }
        Ok(())
    }

    /// Holds the Location's lock for one change: a new owner waits for it.
    fn hold(&self) -> Result<Option<Held>, SnapshotError> {
        Ok(self.lock.map(lock::hold).transpose()?)
    }

    fn leave(&mut self, path: &Path, errno: Errno) -> Result<(), SnapshotError> {
        if in_the_way(errno) {
            self.progress.left.insert(path.to_path_buf());
            Ok(())
        } else {
            Err(SnapshotError::files("restore", path)(errno))
        }
    }

    /// Returns whether the current content at a path may be lost: it is the change's old content and stored,
    /// or it does not matter.
    fn may_lose(&self, change: &Change, now: Option<&Stat>) -> bool {
        match (self.unsaved, now) {
            (Unsaved::Overwrite, _) | (Unsaved::Keep, None) => true,
            (Unsaved::Keep, Some(now)) => change.from.is_some_and(|from| {
                let (seen, now) = (self.dir.leaf(&change.path), Vouch::of(now));
                let ours = self.progress.unlinked.contains(&now.but_for_links());
                let unchanged = seen.is_some_and(|leaf| {
                    leaf.vouch == now || (ours && leaf.vouch.but_for_links() == now.but_for_links())
                });
                unchanged && (self.is_kept)(from.id)
            }),
        }
    }

    /// Records that one name of a file with other names was removed.
    fn unlinked(&mut self, was: Option<&Stat>) {
        if let Some(was) = was.filter(|was| was.st_nlink > 1) {
            self.progress.unlinked.insert(Vouch::of(was).but_for_links());
        }
    }

    fn remove(&mut self, change: &Change) -> Done {
        let failed = || SnapshotError::files("remove", &change.path);
        let Some((parent, name)) = self.parent(&change.path, false)? else { return Ok(true) };
        let now = place::look(parent.as_fd(), name).map_err(failed())?;
        if now.as_ref().is_some_and(is_directory) || !self.may_lose(change, now.as_ref()) {
            return Ok(false);
        }
        let held = self.hold()?;
        let removed = unlinkat(&parent, name, AtFlags::empty());
        drop(held);
        match removed {
            Ok(()) | Err(Errno::NOENT) => {
                self.unlinked(now.as_ref());
                Ok(true)
            }
            Err(errno) if in_the_way(errno) => Ok(false),
            Err(errno) => Err(failed()(errno)),
        }
    }

    /// Removes an empty directory. One with untracked files stays, without a report, because nothing in it
    /// differs.
    fn rmdir(&mut self, path: &Path) -> Done {
        let Some((parent, name)) = self.parent(path, false)? else { return Ok(true) };
        let _held = self.hold()?;
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) if in_the_way(errno) => Ok(false),
            Err(errno) => Err(SnapshotError::files("remove", path)(errno)),
        }
    }

    /// Opens a path's parent directory and returns it with the last name; `None` if the parent does not
    /// exist.
    fn parent<'p>(
        &self,
        path: &'p Path,
        make: bool,
    ) -> Result<Option<(OwnedFd, &'p OsStr)>, SnapshotError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(None) };
        match place::open_below(self.root, parent, make) {
            Ok(fd) => Ok(Some((fd, name))),
            Err(errno) if errno == Errno::NOENT || in_the_way(errno) => Ok(None),
            Err(errno) => Err(SnapshotError::files("open", parent)(errno)),
        }
    }

    fn put(&mut self, change: &Change, to: Entry, bytes: &[u8]) -> Done {
        let failed = || SnapshotError::files("restore", &change.path);
        let Some((parent, name)) = self.parent(&change.path, true)? else { return Ok(false) };
        let now = place::look(parent.as_fd(), name).map_err(failed())?;
        if now.as_ref().is_some_and(is_directory) || !self.may_lose(change, now.as_ref()) {
            return Ok(false);
        }
        let beside = beside(name);
        let mut placed = self.place(&parent, &beside, name, to, bytes);
        if matches!(placed, Err(Failed::System(Errno::EXIST))) {
            // A restore before this one has died.
            unlinkat(&parent, &beside, AtFlags::empty()).map_err(failed())?;
            placed = self.place(&parent, &beside, name, to, bytes);
        }
        match placed {
            Ok(vouch) => {
                self.unlinked(now.as_ref());
                let racy = vouch.is_racy(self.now_ns);
                self.dir.set(&change.path, Some(Node::Leaf(Leaf { entry: to, vouch, racy })));
                Ok(true)
            }
            Err(Failed::Crash(crash)) => Err(crash),
            Err(Failed::System(errno)) => {
                // The first error counts; the temporary file is in no snapshot anyway.
                let _left_beside = unlinkat(&parent, &beside, AtFlags::empty());
                if in_the_way(errno) { Ok(false) } else { Err(failed()(errno)) }
            }
        }
    }

    /// Creates the entry under a temporary name and renames it, so that readers see the old or the new one.
    fn place(
        &self,
        parent: &OwnedFd,
        beside: &OsStr,
        name: &OsStr,
        to: Entry,
        bytes: &[u8],
    ) -> Result<Vouch, Failed> {
        let Some(mode) = to.kind.mode() else {
            symlinkat(OsStr::from_bytes(bytes), parent, beside)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let link = openat(parent, beside, flags, Mode::empty())?;
            return self.rename(parent, beside, name, &link);
        };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // No other user may read it before it has its own mode.
        let fd = openat(parent, beside, flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(fd);
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        file.write_all(first)?;
        self.steps.pass()?;
        file.write_all(rest)?;
        fchmod(&file, Mode::from_raw_mode(RawMode::from(mode)))?;
        self.rename(parent, beside, name, &file)
    }

    /// Gives `made` its name. It is vouched for by itself: something else may have that name by now.
    fn rename(
        &self,
        parent: &OwnedFd,
        beside: &OsStr,
        name: &OsStr,
        made: impl AsFd,
    ) -> Result<Vouch, Failed> {
        self.steps.pass()?;
        let _held = self.hold()?;
        renameat(parent, beside, parent, name)?;
        Ok(Vouch::of(&fstat(made)?))
    }
}

enum Failed {
    System(Errno),
    /// A newer owner or a test stopped the work, not the file system.
    Crash(SnapshotError),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<SnapshotError> for Failed {
    fn from(error: SnapshotError) -> Self {
        Self::Crash(error)
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// Returns whether something blocks a single file; the rest of the restore continues.
fn in_the_way(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ISDIR
            | Errno::NOTDIR
            | Errno::NOTEMPTY
            | Errno::LOOP
            | Errno::XDEV
            | Errno::ACCESS
            | Errno::PERM
            | Errno::NAMETOOLONG
    )
}

/// Returns the temporary name of a file. It is always the same, so that a restore after a crash removes the
/// leftovers of the first.
fn beside(name: &OsStr) -> OsString {
    let id = ObjectId::of(name.as_bytes()).to_string();
    format!("{TEMPORARY}restore-{}", &id[..16]).into()
}
