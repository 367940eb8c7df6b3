//! Scans the Location's files: all of them by stat, or only some paths.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use sandbox::HiddenFiles;
use sha2::{Digest, Sha256};

use crate::directory::{Dir, Leaf, Node, Vouch};
use crate::error::SnapshotError;
use crate::limits::{LARGE_FILES, SnapshotLimits};
use crate::object::{Entry, Kind, ObjectId};
use crate::place::{self, TEMPORARY};
use crate::rules::{IgnoreFiles, IgnoreRules};

/// The beginning of the names of packs in a `.git` that are in no snapshot, because they are the repository's own: whoever
/// gave them keeps them elsewhere, and puts them back beside a restore with [`crate::give`].
pub const GIVEN_PACK: &str = "pack-given-";

/// The most left-out paths that are listed.
const NAMED: usize = 20;
/// The most left-out paths that are remembered.
pub(crate) const REMEMBERED: usize = 10_000;

/// The reason why a path is in no snapshot although no ignore file names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is larger than [`SnapshotLimits::file_bytes`], or it is a `.git` with a file larger than
    /// [`SnapshotLimits::git_file_bytes`].
    TooLarge,
    /// It lies deeper than [`SnapshotLimits::depth`].
    TooDeep,
    /// It is a pipe, a socket or a device.
    Special,
    /// It cannot be read. The snapshot keeps its earlier content.
    Unreadable,
}

/// The files that a Capture left out and that are new or changed since an earlier report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The number of paths.
    pub count: usize,
    /// The first 20 paths.
    pub first: Vec<(String, Why)>,
}

/// A path that a scan left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) path: String,
    pub(crate) why: Why,
    /// The file's stat, if that matters.
    pub(crate) vouch: Option<Vouch>,
}

impl Skipped {
    pub(crate) fn of(left_out: &[LeftOut]) -> Self {
        let first = left_out.iter().take(NAMED).map(|left| (left.path.clone(), left.why));
        Self { count: left_out.len(), first: first.collect() }
    }
}

/// Receives the contents that a scan reads.
pub(crate) trait Keep {
    /// Returns whether this content is not wanted, because it is stored or nothing is.
    fn has(&self, id: ObjectId) -> bool;

    /// Takes a content.
    fn keep(&mut self, id: ObjectId, bytes: Bytes) -> Result<(), SnapshotError>;
}

/// Keeps nothing.
pub(crate) struct KeepNothing;

impl Keep for KeepNothing {
    fn has(&self, _: ObjectId) -> bool {
        true
    }

    fn keep(&mut self, _: ObjectId, _: Bytes) -> Result<(), SnapshotError> {
        Ok(())
    }
}

/// The size in bytes from which a file that was known before is hashed before it is read into memory: git gives a pack that
/// has what a commit needs a new time, and no new content.
const HASHED_FIRST: u64 = 1024 * 1024;

/// One scan of the files.
pub(crate) struct Scan<'a> {
    pub(crate) limits: &'a SnapshotLimits,
    /// Include `.git`.
    pub(crate) git: bool,
    /// Files and directories that are passed over.
    pub(crate) hidden: HiddenFiles,
    /// The start of the scan in nanoseconds since the epoch.
    pub(crate) now_ns: i64,
    /// Receives each content read.
    pub(crate) keep: &'a mut dyn Keep,
    /// Left-out paths, at most 10,000.
    pub(crate) left_out: Vec<LeftOut>,
    /// The number of files read.
    pub(crate) read: usize,
    rules: IgnoreRules,
    entries: usize,
    git_too_large: bool,
}

/// The position of the scan.
#[derive(Clone, Copy, Default)]
struct Inside {
    depth: usize,
    /// Inside an ignored directory, where only files that were tracked before count.
    ignored: bool,
    git: bool,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(
        limits: &'a SnapshotLimits,
        git: bool,
        now_ns: i64,
        keep: &'a mut dyn Keep,
    ) -> Self {
        Self {
            limits,
            git,
            hidden: HiddenFiles::default(),
            now_ns,
            keep,
            left_out: Vec::new(),
            read: 0,
            rules: IgnoreRules::new(IgnoreFiles::Git),
            entries: 0,
            git_too_large: false,
        }
    }

    /// Scans everything below `root`. After an error, `dir` is unusable until the next full scan.
    pub(crate) fn everything(
        &mut self,
        root: &OwnedFd,
        dir: &mut Dir,
    ) -> Result<(), SnapshotError> {
        self.entries = 0;
        self.directory(root, &mut PathBuf::new(), dir, Inside::default()).map(drop)
    }

    /// Scans one path and everything beneath it.
    pub(crate) fn path(
        &mut self,
        root: &OwnedFd,
        dir: &mut Dir,
        path: &Path,
    ) -> Result<(), SnapshotError> {
        let Some(names) = place::components(path) else { return self.everything(root, dir) };
        self.entries = 0;
        self.descend(root, &mut PathBuf::new(), dir, &names, Inside::default()).map(drop)
    }

    fn descend(
        &mut self,
        fd: &OwnedFd,
        below: &mut PathBuf,
        dir: &mut Dir,
        names: &[&OsStr],
        inside: Inside,
    ) -> Result<bool, SnapshotError> {
        self.rules.enter(fd.as_fd(), below);
        let changed = self.step(fd, below, dir, names, inside);
        self.rules.leave();
        if let Ok(true) = changed {
            dir.id = None;
        }
        changed
    }

    fn step(
        &mut self,
        fd: &OwnedFd,
        below: &mut PathBuf,
        dir: &mut Dir,
        names: &[&OsStr],
        inside: Inside,
    ) -> Result<bool, SnapshotError> {
        let Some((name, rest)) = names.split_first() else { return Ok(false) };
        let known = matches!(dir.nodes.get(*name), Some(Node::Dir(_)));
        let next = if rest.is_empty() || !known {
            None // the last name, or an unknown directory: scan all of it
        } else {
            place::open_directory(fd.as_fd(), name)
                .ok()
                .filter(|fd| !self.is_hidden(fstat(fd).ok()))
        };
        below.push(name);
        let changed = match (next, dir.nodes.get_mut(*name)) {
            (Some(next), Some(Node::Dir(child))) => match self.inside(name, below, true, inside) {
                Some(inside) => self.descend(&next, below, child, rest, inside),
                None => Ok(false),
            },
            _ => self.entry(fd.as_fd(), name, below, dir, inside),
        };
        below.pop();
        changed
    }

    /// Returns the position for an entry; `None` if it is never scanned.
    fn inside(
        &self,
        name: &OsStr,
        below: &Path,
        is_directory: bool,
        inside: Inside,
    ) -> Option<Inside> {
        if name.as_bytes().starts_with(TEMPORARY.as_bytes()) {
            return None;
        }
        let depth = inside.depth + 1;
        if name == ".git" && !inside.git {
            return self.git.then_some(Inside { depth, ignored: false, git: true });
        }
        if inside.git {
            let bytes = name.as_bytes();
            // Locks and half-written objects of a git process that runs or was killed.
            let passing =
                bytes.ends_with(b".lock") || bytes.starts_with(b"tmp_") || bytes == b"gc.pid";
            // Who made the workspace keeps these, and puts them back.
            let passing = passing || bytes.starts_with(GIVEN_PACK.as_bytes());
            let passing = passing || below == Path::new(LARGE_FILES);
            return (!passing).then_some(Inside { depth, ..inside });
        }
        let ignored = inside.ignored || self.rules.ignores(below, is_directory);
        Some(Inside { depth, ignored, git: false })
    }

    fn is_hidden(&self, stat: Option<Stat>) -> bool {
        stat.is_some_and(|stat| self.hidden.contains(stat.st_dev, stat.st_ino))
    }

    fn directory(
        &mut self,
        fd: &OwnedFd,
        below: &mut PathBuf,
        dir: &mut Dir,
        inside: Inside,
    ) -> Result<bool, SnapshotError> {
        let names = place::names(fd).map_err(SnapshotError::files("list", below))?;
        self.rules.enter(fd.as_fd(), below);
        let mut changed = false;
        for name in &names {
            below.push(name);
            let done = self.entry(fd.as_fd(), name, below, dir, inside);
            below.pop();
            changed |= done?;
        }
        self.rules.leave();
        let before = dir.nodes.len();
        dir.nodes.retain(|name, _| names.binary_search(name).is_ok());
        changed |= dir.nodes.len() != before;
        if changed {
            dir.id = None;
        }
        Ok(changed)
    }

    /// Scans one entry of a directory. Returns whether it changed.
    fn entry(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        below: &mut PathBuf,
        dir: &mut Dir,
        inside: Inside,
    ) -> Result<bool, SnapshotError> {
        let stat = place::look(parent, name).map_err(SnapshotError::files("look at", below))?;
        let kind = stat.as_ref().map(|stat| FileType::from_raw_mode(stat.st_mode));
        let is_directory = kind == Some(FileType::Directory);
        let within = match self.is_hidden(stat) {
            true => None,
            false => self.inside(name, below, is_directory, inside),
        };
        let known = dir.nodes.get(name);
        // Tracked files stay tracked if an ignore file names them later, as in git.
        let tracked = within.filter(|within| {
            !within.ignored || known.is_some_and(|node| node.dir().is_some() == is_directory)
        });
        let (Some(stat), Some(within)) = (stat, tracked) else {
            return Ok(dir.nodes.remove(name).is_some());
        };
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(SnapshotError::TooManyFiles { limit: self.limits.entries });
        }
        if is_directory {
            let changed = self.child(parent, name, below, dir, within)?;
            if within.git && !inside.git && std::mem::take(&mut self.git_too_large) {
                return Ok(dir.nodes.remove(name).is_some());
            }
            return Ok(changed);
        }
        let before = match known {
            Some(Node::Leaf(leaf)) => Some(leaf.clone()),
            Some(Node::Dir(_)) | None => None,
        };
        let now = self.leaf(parent, name, below, &stat, before.as_ref(), within)?;
        let changed = now.as_ref().map(|leaf| leaf.entry) != known.map(Node::entry);
        match now {
            Some(leaf) => drop(dir.nodes.insert(name.to_owned(), Node::Leaf(leaf))),
            None => drop(dir.nodes.remove(name)),
        }
        Ok(changed)
    }

    fn child(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        below: &mut PathBuf,
        dir: &mut Dir,
        inside: Inside,
    ) -> Result<bool, SnapshotError> {
        if inside.depth > self.limits.depth {
            self.skip(below, Why::TooDeep, None);
            return Ok(dir.nodes.remove(name).is_some());
        }
        let fd = match place::open_directory(parent, name) {
            Ok(fd) => fd,
            Err(Errno::ACCESS | Errno::PERM) => {
                self.skip(below, Why::Unreadable, None);
                return Ok(false);
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Ok(dir.nodes.remove(name).is_some()); // removed meanwhile
            }
            Err(errno) => return Err(SnapshotError::files("open", below)(errno)),
        };
        let before = match dir.nodes.remove(name) {
            Some(Node::Dir(child)) => Some(child),
            Some(Node::Leaf(_)) | None => None,
        };
        let is_new = before.is_none();
        let mut child = before.unwrap_or_default();
        let changed = self.directory(&fd, below, &mut child, inside)?;
        dir.nodes.insert(name.to_owned(), Node::Dir(child));
        Ok(changed || is_new)
    }

    /// Returns the current file or link; `None` if it is not tracked.
    fn leaf(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        below: &Path,
        stat: &Stat,
        before: Option<&Leaf>,
        inside: Inside,
    ) -> Result<Option<Leaf>, SnapshotError> {
        let limit = if inside.git { self.limits.git_file_bytes } else { self.limits.file_bytes };
        let vouch = Vouch::of(stat);
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if vouch.size > limit => {
                return Ok(self.too_large(below, vouch, inside));
            }
            FileType::RegularFile => Some(Kind::file(stat.st_mode)),
            FileType::Symlink => Some(Kind::Link),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => None,
        };
        let Some(kind) = kind else {
            self.skip(below, Why::Special, None);
            return Ok(None);
        };
        if let Some(leaf) = before
            && !leaf.racy
            && leaf.vouch == vouch
            && leaf.entry.kind == kind
        {
            return Ok(Some(leaf.clone()));
        }
        self.read += 1;
        let read = if kind == Kind::Link {
            let target = readlinkat(parent, name, Vec::new());
            target.map(|target| (Content::Read(target.into_bytes()), vouch))
        } else {
            let hash_first = before.is_some() && vouch.size >= HASHED_FIRST;
            let has = |id| hash_first && self.keep.has(id);
            read_file(parent, name, limit, hash_first.then_some(&has))
        };
        match read {
            Ok((Content::Read(bytes), _)) if bytes.len() as u64 > limit => {
                Ok(self.too_large(below, vouch, inside))
            }
            Ok((content, after)) => {
                let id = match content {
                    Content::Known(id) => id,
                    Content::Read(bytes) => {
                        let id = ObjectId::of(&bytes);
                        self.keep.keep(id, bytes.into())?;
                        id
                    }
                };
                let racy = after != vouch || vouch.is_racy(self.now_ns);
                Ok(Some(Leaf { entry: Entry { kind, id }, vouch, racy }))
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                self.skip(below, Why::Unreadable, Some(vouch));
                Ok(before.cloned())
            }
            Err(Errno::NOENT | Errno::LOOP | Errno::INVAL | Errno::NXIO) => Ok(None), // removed meanwhile
            Err(errno) => Err(SnapshotError::files("read", below)(errno)),
        }
    }

    fn too_large(&mut self, below: &Path, vouch: Vouch, inside: Inside) -> Option<Leaf> {
        self.git_too_large |= inside.git;
        self.skip(below, Why::TooLarge, Some(vouch));
        None
    }

    fn skip(&mut self, below: &Path, why: Why, vouch: Option<Vouch>) {
        if self.left_out.len() < REMEMBERED {
            let path = below.to_string_lossy().into_owned();
            self.left_out.push(LeftOut { path, why, vouch });
        }
    }
}

/// The content of a file.
enum Content {
    /// It is stored, or need not be.
    Known(ObjectId),
    Read(Vec<u8>),
}

/// Returns a file's content, at most one byte more than `limit`, and its stat after the read. With `has`, it is hashed in
/// pieces first, and read only if it is wanted.
fn read_file(
    parent: BorrowedFd<'_>,
    name: &OsStr,
    limit: u64,
    has: Option<&dyn Fn(ObjectId) -> bool>,
) -> Result<(Content, Vouch), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let size = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
    let mut file = File::from(fd);
    let content = content(&mut file, size, limit, has);
    let content = content.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok((content, Vouch::of(&fstat(&file)?)))
}

fn content(
    file: &mut File,
    size: u64,
    limit: u64,
    has: Option<&dyn Fn(ObjectId) -> bool>,
) -> io::Result<Content> {
    if let Some(has) = has {
        let mut hash = Sha256::new();
        let hashed = io::copy(&mut file.by_ref().take(limit + 1), &mut HashOf(&mut hash))?;
        let id = ObjectId(hash.finalize().into());
        if hashed <= limit && has(id) {
            return Ok(Content::Known(id));
        }
        file.rewind()?;
    }
    // One byte more: the end is seen without another piece of memory.
    let room = usize::try_from(size.min(limit) + 1).unwrap_or(0);
    let mut bytes = Vec::with_capacity(room);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Content::Read(bytes))
}

/// Hashes whatever is written.
struct HashOf<'a>(&'a mut Sha256);

impl io::Write for HashOf<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
