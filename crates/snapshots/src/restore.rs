//! Putting files back: one step of the file system for each, and never over what would be lost.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, openat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use sandbox::{LocationLock, lock};

use crate::change::{FileChange, shown};
use crate::compare::Change;
use crate::directory::{Dir, Leaf, Node, Vouch};
use crate::error::SnapshotError;
use crate::object::{Entry, Kind, ObjectId};
use crate::place::{self, TEMPORARY};
use crate::steps::Steps;

/// What is done about a file that would be removed or replaced, and whose content is in no pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsaved {
    /// It stays as it is, and is named. For a revert, before which everything was captured.
    Keep,
    /// It is lost. For a takeover, of which the newest snapshot is all that counts.
    Overwrite,
}

/// What a restore did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// The files that were changed, as [`crate::diff`] lists them.
    pub files: Vec<FileChange>,
    /// How many more files were changed than are listed.
    pub more: usize,
    /// Paths that are not as in the tree, since something is there that must not be lost, or that changed meanwhile.
    pub left: Vec<String>,
}

/// Which changes a restore makes: those at `paths` and beneath, without `.git`; or all.
pub(crate) fn select(changes: Vec<Change>, paths: Option<&BTreeSet<String>>) -> Vec<Change> {
    let Some(paths) = paths else { return changes };
    let named = |path: &Path| {
        let in_git = path.iter().any(|name| name == ".git");
        !in_git && path.ancestors().any(|path| paths.contains(&shown(path)))
    };
    let gone: BTreeSet<PathBuf> = changes
        .iter()
        .filter(|change| change.to.is_none() && named(&change.path))
        .flat_map(|change| change.path.ancestors().map(Path::to_path_buf))
        .collect();
    let wanted = |change: &Change| {
        let is_directory = change.from.is_some_and(|entry| entry.kind == Kind::Directory);
        named(&change.path) || (is_directory && gone.contains(&change.path))
    };
    changes.into_iter().filter(wanted).collect()
}

/// The file work of one restore.
pub(crate) struct Apply<'a> {
    pub(crate) root: &'a OwnedFd,
    pub(crate) lock: Option<&'a LocationLock>,
    pub(crate) unsaved: Unsaved,
    /// Whether a committed pack has an object.
    pub(crate) is_kept: &'a dyn Fn(ObjectId) -> bool,
    /// In nanoseconds since the epoch.
    pub(crate) now_ns: i64,
    pub(crate) steps: &'a Steps,
    /// What is known of the files; follows each change.
    pub(crate) dir: &'a mut Dir,
    pub(crate) left: BTreeSet<PathBuf>,
}

/// Whether a change was made, or had to be left.
type Done = Result<bool, SnapshotError>;

impl Apply<'_> {
    /// Takes away what the tree does not have, and makes its directories. `changes` in order of paths.
    pub(crate) fn clear(&mut self, changes: &[Change]) -> Result<(), SnapshotError> {
        for change in changes.iter().rev().filter(|change| change.to.is_none()) {
            let Some(from) = change.from else { continue };
            let is_directory = from.kind == Kind::Directory;
            let removed =
                if is_directory { self.rmdir(&change.path)? } else { self.remove(change)? };
            if removed {
                self.dir.set(&change.path, None);
            } else if !is_directory {
                self.left.insert(change.path.clone());
            }
            self.steps.pass()?;
        }
        let is_new = |change: &&Change| {
            change.from.is_none() && change.to.is_some_and(|entry| entry.kind == Kind::Directory)
        };
        for change in changes.iter().filter(is_new) {
            self.prove()?;
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
                self.left.insert(change.path.clone());
            }
            self.steps.pass()?;
        }
        Ok(())
    }

    fn prove(&self) -> Result<(), SnapshotError> {
        self.lock.map_or(Ok(()), |held| lock::prove(held).map_err(SnapshotError::from))
    }

    fn leave(&mut self, path: &Path, errno: Errno) -> Result<(), SnapshotError> {
        if in_the_way(errno) {
            self.left.insert(path.to_path_buf());
            Ok(())
        } else {
            Err(SnapshotError::files("restore", path)(errno))
        }
    }

    /// Whether what is at a path now may be lost: it is what the change says, and kept; or it does not matter.
    fn may_lose(&self, change: &Change, now: Option<&Stat>) -> bool {
        match (self.unsaved, now) {
            (Unsaved::Overwrite, _) | (Unsaved::Keep, None) => true,
            (Unsaved::Keep, Some(now)) => change.from.is_some_and(|from| {
                let seen = self.dir.leaf(&change.path);
                let unchanged = seen.is_some_and(|leaf| leaf.vouch == Vouch::of(now));
                unchanged && (self.is_kept)(from.id)
            }),
        }
    }

    fn remove(&mut self, change: &Change) -> Done {
        let failed = || SnapshotError::files("remove", &change.path);
        let Some((parent, name)) = self.parent(&change.path, false)? else { return Ok(true) };
        let now = place::look(parent.as_fd(), name).map_err(failed())?;
        if now.as_ref().is_some_and(is_directory) || !self.may_lose(change, now.as_ref()) {
            return Ok(false);
        }
        self.prove()?;
        match unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(errno) if in_the_way(errno) => Ok(false),
            Err(errno) => Err(failed()(errno)),
        }
    }

    /// A directory that still has something that no tree has stays, silently: nothing of it differs.
    fn rmdir(&mut self, path: &Path) -> Done {
        let Some((parent, name)) = self.parent(path, false)? else { return Ok(true) };
        self.prove()?;
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(errno) if in_the_way(errno) => Ok(false),
            Err(errno) => Err(SnapshotError::files("remove", path)(errno)),
        }
    }

    /// The directory that a path is in, and its last name; `None` when there is no such directory.
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
        match unlinkat(&parent, &beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed()(errno)),
        }
        let placed = self.place(&parent, &beside, name, to, bytes, now.as_ref());
        match placed {
            Ok(vouch) => {
                let racy = vouch.is_racy(self.now_ns);
                self.dir.set(&change.path, Some(Node::Leaf(Leaf { entry: to, vouch, racy })));
                Ok(true)
            }
            Err(Failed::Crash(crash)) => Err(crash),
            Err(Failed::System(errno)) => {
                // The first error counts; what is beside is in no snapshot.
                let _left_beside = unlinkat(&parent, &beside, AtFlags::empty());
                if in_the_way(errno) { Ok(false) } else { Err(failed()(errno)) }
            }
        }
    }

    /// Makes the entry beside its place, and renames it: who looks sees the old one or the new one.
    fn place(
        &self,
        parent: &OwnedFd,
        beside: &OsStr,
        name: &OsStr,
        to: Entry,
        bytes: &[u8],
        now: Option<&Stat>,
    ) -> Result<Vouch, Failed> {
        if to.kind == Kind::Link {
            symlinkat(OsStr::from_bytes(bytes), parent, beside)?;
        } else {
            let bits = if to.kind == Kind::Executable { 0o777 } else { 0o666 };
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let fd = openat(parent, beside, flags, Mode::from_raw_mode(bits))?;
            let mut file = File::from(fd);
            let (first, rest) = bytes.split_at(bytes.len() / 2);
            file.write_all(first)?;
            self.steps.pass()?;
            file.write_all(rest)?;
            if let Some(mode) = now.and_then(|stat| kept_mode(stat, to.kind)) {
                fchmod(&file, mode)?;
            }
        }
        self.steps.pass()?;
        self.prove()?;
        renameat(parent, beside, parent, name)?;
        let stat = match openat(
            parent,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        ) {
            Ok(fd) => fstat(&fd)?,
            Err(errno) => return Err(errno.into()),
        };
        Ok(Vouch::of(&stat))
    }
}

enum Failed {
    System(Errno),
    /// Not the file system's: a newer owner, or a test.
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

/// The mode that a file keeps: its own, with or without the right to execute for who may read.
fn kept_mode(stat: &Stat, kind: Kind) -> Option<Mode> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return None;
    }
    let bits = stat.st_mode & 0o777;
    let bits = match kind {
        Kind::Executable if bits & 0o111 == 0 => bits | ((bits & 0o444) >> 2),
        Kind::Executable => bits,
        Kind::File | Kind::Link | Kind::Directory => bits & !0o111,
    };
    Some(Mode::from_raw_mode(bits))
}

/// What stands where a file should be, or keeps it from being changed: the rest goes on without it.
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

/// Where a file is made before it is put in its place; the same one each time, so that a restore that is repeated
/// after a crash takes away what the first one left.
fn beside(name: &OsStr) -> OsString {
    let id = ObjectId::of(name.as_bytes()).to_string();
    format!("{TEMPORARY}restore-{}", &id[..16]).into()
}
