//! Looks for what git takes for a repository, in all folders of a workspace.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, openat2, renameat_with, statat,
};
use rustix::io::Errno;

use super::config;

/// The most entries that one look goes through, the shallow ones first.
const ENTRIES: usize = 1_000_000;
/// The most levels of folders.
const DEPTH: usize = 128;
/// The largest configuration that is read, in bytes.
const CONFIG: u64 = 64 * 1024;
/// The ending of the name of a repository that git shall not find any more.
const ASIDE: &str = ".untrusted";

/// A repository: a `.git`, or a folder with the layout of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Repository {
    /// Below the workspace: the `.git`, or the folder.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// Device and inode, which stay when it is moved.
    pub(super) id: (u64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A folder `.git`.
    Folder,
    /// A file or link `.git`, which names a repository elsewhere.
    Link,
    /// A folder of another name with the layout of a repository.
    Bare,
}

/// Returns all repositories in a workspace. Opens no link. Blocking.
pub(super) fn repositories(workspace: BorrowedFd<'_>) -> BTreeSet<Repository> {
    let mut found = BTreeSet::new();
    let mut folders = VecDeque::from([(PathBuf::new(), 0)]);
    let mut left = ENTRIES;
    while let Some((path, depth)) = folders.pop_front() {
        let Some(fd) = open_folder(workspace, &path) else { continue };
        let Ok(entries) = Dir::read_from(&fd) else { continue };
        let mut layout = Layout::default();
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            left = left.saturating_sub(1);
            layout.note(name);
            let mut kind = entry.file_type();
            let is_git = name.eq_ignore_ascii_case(".git");
            if is_git || kind == FileType::Unknown {
                let Ok(stat) = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                kind = FileType::from_raw_mode(stat.st_mode);
                if is_git {
                    let id = (stat.st_dev, stat.st_ino);
                    let kind = if kind == FileType::Directory { Kind::Folder } else { Kind::Link };
                    found.insert(Repository { path: path.join(name), kind, id });
                    continue;
                }
            }
            if kind == FileType::Directory && depth < DEPTH {
                folders.push_back((path.join(name), depth + 1));
            }
        }
        if layout.is_repository()
            && let Ok(stat) = rustix::fs::fstat(&fd)
        {
            let id = (stat.st_dev, stat.st_ino);
            found.insert(Repository { path, kind: Kind::Bare, id });
        }
        if left == 0 {
            tracing::warn!(
                "a checkout has more than {ENTRIES} entries: the deepest were not looked at for repositories"
            );
            break;
        }
    }
    found
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

fn open_folder(from: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    openat2(from, path, flags, Mode::empty(), resolve).ok()
}

impl Repository {
    /// Returns whether git in it runs nothing that a command has put there: a configuration as of `git init`, no hooks, and no
    /// links to elsewhere.
    pub(super) fn is_harmless(&self, workspace: BorrowedFd<'_>) -> bool {
        if self.kind == Kind::Link {
            return false;
        }
        let Some(folder) = open_folder(workspace, &self.path) else { return false };
        let has = |name: &str| statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if has("commondir") || has("config.worktree") {
            return false;
        }
        let is_sample = |name: &OsStr| Path::new(name).extension() == Some(OsStr::new("sample"));
        let hooks = open_folder(folder.as_fd(), Path::new("hooks"));
        let has_hooks = match hooks {
            Some(hooks) => names(&hooks).is_none_or(|all| !all.iter().all(|name| is_sample(name))),
            None => has("hooks"),
        };
        !has_hooks && has_harmless_config(&folder) && !has_links(&folder)
    }

    /// Gives it another name, so that git outside does not find it. Returns a sentence; `None` if it is gone.
    pub(super) fn put_aside(&self, workspace: BorrowedFd<'_>) -> Option<String> {
        let shown = self.path.display();
        let (parent, name) = match self.kind {
            Kind::Bare => (Some(self.path.as_path()), OsStr::new("HEAD")),
            Kind::Folder | Kind::Link => {
                (self.path.parent(), self.path.file_name().unwrap_or_default())
            }
        };
        let parent = parent.and_then(|parent| open_folder(workspace, parent));
        let moved = parent.ok_or(Errno::NOENT).and_then(|parent| {
            (0..100_u32)
                .find_map(|number| {
                    let mut to = name.to_owned();
                    to.push(ASIDE);
                    if number > 0 {
                        to.push(format!("-{number}"));
                    }
                    match renameat_with(&parent, name, &parent, &to, RenameFlags::NOREPLACE) {
                        Err(Errno::EXIST) => None,
                        done => Some(done),
                    }
                })
                .unwrap_or(Err(Errno::EXIST))
        });
        match moved {
            Err(Errno::NOENT) => None,
            Ok(()) => Some(format!(
                "git repository {shown} was put aside, as {}{ASIDE}: git outside the sandbox would run programs or use files \
                 that its configuration, hooks or links name",
                name.display()
            )),
            Err(errno) => {
                let why = std::io::Error::from(errno);
                tracing::warn!(repository = %shown, %why, "a repository that a command made cannot be put aside");
                Some(format!(
                    "git repository {shown} is not to be trusted, and could not be put aside: {why}; remove it"
                ))
            }
        }
    }
}

fn names(folder: &OwnedFd) -> Option<Vec<std::ffi::OsString>> {
    let entries = Dir::read_from(folder).ok()?;
    let names =
        entries.flatten().map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
    Some(names.filter(|name| name != "." && name != "..").collect())
}

fn has_harmless_config(folder: &OwnedFd) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(folder, "config", flags, Mode::empty()) {
        Err(Errno::NOENT) => return true,
        Err(_) => return false,
        Ok(fd) => fd,
    };
    let is_file = rustix::fs::fstat(&fd).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size).is_ok_and(|size| size <= CONFIG)
    });
    let mut text = String::new();
    let mut file = std::fs::File::from(fd).take(CONFIG);
    is_file && file.read_to_string(&mut text).is_ok() && config::is_harmless(&text)
}

/// Returns whether there is a link in a folder or below, or more in it than is looked at.
fn has_links(folder: &OwnedFd) -> bool {
    let mut left = ENTRIES / 10;
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((path, depth)) = folders.pop() {
        let Some(fd) = open_folder(folder.as_fd(), &path) else { continue };
        for name in names(&fd).unwrap_or_default() {
            let Ok(stat) = statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            left = left.saturating_sub(1);
            let kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::Directory {
                folders.push((path.join(name), depth + 1));
            } else if kind != FileType::RegularFile {
                return true;
            }
            if left == 0 || depth > DEPTH {
                return true;
            }
        }
    }
    false
}
