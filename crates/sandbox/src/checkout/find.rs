//! Looks for what git takes for a repository, in all folders of a workspace.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, Dir, FileType, Mode, ResolveFlags, accessat, fstat, openat2, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::folders::{TO_READ, give_rights, open_with_rights};

/// The most folders that one look goes through, the shallow ones first. Files do not count: who makes them needs longer than who
/// reads their names.
const FOLDERS: usize = 250_000;
/// The most levels of folders.
const DEPTH: usize = 128;

/// A repository: a `.git`, or a folder with the layout of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Repository {
    /// Below the workspace: the `.git`, or the folder.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// Device and inode, which stay when it is moved.
    pub(super) id: Id,
}

/// Device and inode.
pub(super) type Id = (u64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A folder `.git`.
    Folder,
    /// A file or link `.git`, which names a repository elsewhere.
    Link,
    /// A folder of another name with the layout of a repository.
    Bare,
}

/// All that one look has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) repositories: BTreeSet<Repository>,
    /// The first part that was not looked at, if there is one.
    pub(super) unseen: Option<Unseen>,
}

/// A part of a workspace in which repositories may be hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unseen {
    /// There are more folders than so many.
    TooMany(usize),
    /// This folder is deeper than others may be.
    TooDeep(PathBuf),
    /// This folder cannot be listed.
    Closed(PathBuf, Errno),
}

/// The reason, and what helps.
impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(most) => write!(
                f,
                "it has more than {most} folders; remove those that are not needed, or work in a smaller directory"
            ),
            Self::TooDeep(path) => write!(
                f,
                "{} is more than {DEPTH} levels deep, or its path too long; remove it",
                short(path)
            ),
            Self::Closed(path, errno) => {
                let why = std::io::Error::from(*errno);
                write!(f, "{} cannot be listed ({why}); open or remove it", short(path))
            }
        }
    }
}

/// A path for a message, the beginning of a long one.
fn short(path: &Path) -> String {
    let shown = path.display().to_string();
    match shown.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// A folder whose turn comes.
struct Folder {
    /// The place of the folder in which it is.
    above: usize,
    name: OsString,
    depth: usize,
}

/// Returns the path of a folder. Only names are kept, since a command can make a path of 4 KiB for each folder.
fn path_of(folders: &[Folder], place: usize) -> PathBuf {
    let mut names = Vec::new();
    let mut at = place;
    while let Some(folder) = folders.get(at).filter(|_| at > 0) {
        names.push(folder.name.as_os_str());
        at = folder.above;
    }
    names.iter().rev().collect()
}

/// Returns all repositories in a workspace. Opens no link, and gives the owner of closed folders their rights back. Blocking.
pub(super) fn find_repositories(workspace: &OwnedFd) -> Found {
    find_within(workspace, FOLDERS)
}

pub(super) fn find_within(workspace: &OwnedFd, most: usize) -> Found {
    let mut found = Found::default();
    let mut folders = vec![Folder { above: 0, name: OsString::new(), depth: 0 }];
    let mut place = 0;
    if let Err(errno) = give_rights(workspace, TO_READ) {
        found.unseen = Some(Unseen::Closed(".".into(), errno));
    }
    while place < folders.len() {
        let (path, depth) = (path_of(&folders, place), folders[place].depth);
        let above = place;
        place += 1;
        let unseen = look_into(workspace, &path, &mut found.repositories, |name| {
            if depth >= DEPTH {
                return Some(Unseen::TooDeep(path.join(name)));
            }
            if folders.len() >= most {
                return Some(Unseen::TooMany(most));
            }
            folders.push(Folder { above, name: name.to_owned(), depth: depth + 1 });
            None
        });
        found.unseen = found.unseen.or(unseen);
    }
    found
}

/// Looks at the names in one folder, and hands on the folders in it. Returns the first part that cannot be looked at.
fn look_into(
    workspace: &OwnedFd,
    path: &Path,
    found: &mut BTreeSet<Repository>,
    mut below: impl FnMut(&OsStr) -> Option<Unseen>,
) -> Option<Unseen> {
    let opened = open_folder(workspace.as_fd(), path, TO_READ);
    let opened = opened.and_then(|fd| Dir::read_from(&fd).map(|entries| (fd, entries)));
    let (fd, entries) = match opened {
        Ok(opened) => opened,
        Err(errno) => return why_unseen(workspace, path, errno),
    };
    let mut unseen = None;
    let mut layout = Layout::default();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => {
                unseen = unseen.or_else(|| why_unseen(workspace, path, errno));
                break;
            }
        };
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        layout.note(name);
        let mut kind = entry.file_type();
        let is_git = name.eq_ignore_ascii_case(".git");
        if is_git || kind == FileType::Unknown {
            let stat = match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(errno) => {
                    unseen = unseen.or_else(|| why_unseen(workspace, path, errno));
                    continue;
                }
            };
            kind = FileType::from_raw_mode(stat.st_mode);
            if is_git {
                let id = (stat.st_dev, stat.st_ino);
                let kind = if kind == FileType::Directory { Kind::Folder } else { Kind::Link };
                found.insert(Repository { path: path.join(name), kind, id });
                continue;
            }
        }
        if kind == FileType::Directory {
            let refused = below(name);
            unseen = unseen.or(refused);
        }
    }
    if layout.is_repository()
        && let Ok(stat) = fstat(&fd)
    {
        let id = (stat.st_dev, stat.st_ino);
        found.insert(Repository { path: path.to_owned(), kind: Kind::Bare, id });
    }
    unseen
}

/// Returns whether a part that cannot be looked at can hide a repository of a command.
fn why_unseen(workspace: &OwnedFd, path: &Path, errno: Errno) -> Option<Unseen> {
    match errno {
        // It is gone, or something else is there by now. Whoever did that is looked at afterwards.
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => None,
        Errno::NAMETOOLONG => Some(Unseen::TooDeep(path.to_owned())),
        Errno::ACCESS | Errno::PERM if is_anothers(workspace, path) => None,
        errno => Some(Unseen::Closed(path.to_owned(), errno)),
    }
}

/// Returns whether a folder is another user's, and closed to commands of ours too, as a database's is that runs in a container.
fn is_anothers(workspace: &OwnedFd, path: &Path) -> bool {
    let to_write = Access::WRITE_OK | Access::EXEC_OK;
    match statat(workspace, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            stat.st_uid != geteuid().as_raw()
                && accessat(workspace, path, to_write, AtFlags::EACCESS).is_err()
        }
        // The folder above is closed.
        Err(Errno::ACCESS) => path.parent().is_some_and(|above| is_anothers(workspace, above)),
        Err(_) => false,
    }
}

/// Which names of the layout of a repository a folder has.
#[derive(Default)]
struct Layout {
    head: bool,
    common: bool,
    objects: bool,
    refs: bool,
}

impl Layout {
    fn note(&mut self, name: &OsStr) {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        self.head |= is("HEAD");
        self.common |= is("commondir");
        self.objects |= is("objects");
        self.refs |= is("refs");
    }

    fn is_repository(&self) -> bool {
        self.head && (self.common || (self.objects && self.refs))
    }
}

/// Opens a folder below another one, through no link, and gives its owner the rights that are needed.
pub(super) fn open_folder(
    from: BorrowedFd<'_>,
    path: &Path,
    needed: Mode,
) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    open_with_rights(needed, |flags| openat2(from, path, flags, Mode::empty(), resolve))
}
