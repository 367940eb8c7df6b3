//! Whether git runs nothing in a repository that a command has made; one in which it might gets another name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat_with, statat,
};
use rustix::io::Errno;

use super::find::{Kind, Repository, open_folder};
use super::{config, index};
use crate::folders::{TO_CHANGE, TO_READ};

/// The most entries of a repository in which links are looked for, and the most levels of its folders.
const ENTRIES: usize = 100_000;
const DEPTH: usize = 128;
/// The steps of a rebase that run no program of the list's own, by their long and short names (git-rebase(1)).
const HARMLESS_STEPS: [&str; 23] = [
    "pick",
    "p",
    "reword",
    "r",
    "edit",
    "e",
    "squash",
    "s",
    "fixup",
    "f",
    "drop",
    "d",
    "break",
    "b",
    "label",
    "l",
    "reset",
    "t",
    "merge",
    "m",
    "update-ref",
    "u",
    "noop",
];
/// The largest configuration, or list of a rebase, that is read, in bytes.
const CONFIG: u64 = 64 * 1024;
/// The ending of the name of a repository that git shall not find any more.
const ASIDE: &str = ".untrusted";
/// The most names with that ending that are tried.
const NAMES: u32 = 100;

/// The end of a repository that is not to be trusted.
#[derive(Debug)]
pub(super) enum Aside {
    /// It is gone.
    Gone,
    /// Git outside does not find it any more; a sentence about it.
    Moved(String),
    /// It is where it was; a sentence about it.
    Stuck(String),
}

impl Repository {
    /// Returns whether git in it runs nothing that a command has put there: a configuration as of `git init`, no hooks, no links
    /// to elsewhere, and no names of such in its index.
    pub(super) fn is_harmless(&self, workspace: BorrowedFd<'_>) -> bool {
        if self.kind == Kind::Link {
            return false;
        }
        let Ok(folder) = open_folder(workspace, &self.path, TO_READ) else { return false };
        // A name that cannot be asked for counts as there.
        let has = |name: &str| {
            !matches!(statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
        };
        if has("commondir") || has("config.worktree") {
            return false;
        }
        let is_sample = |name: &OsStr| Path::new(name).extension() == Some(OsStr::new("sample"));
        let hooks = open_folder(folder.as_fd(), Path::new("hooks"), TO_READ);
        let has_hooks = match hooks {
            Ok(hooks) => list(&hooks).is_none_or(|all| !all.iter().all(|name| is_sample(name))),
            Err(_) => has("hooks"),
        };
        !has_hooks
            && has_harmless_config(&folder)
            && !has_links(&folder)
            && has_harmless_index(&folder)
            && has_harmless_rebase(&folder)
    }

    /// Gives it another name, so that git outside does not find it.
    pub(super) fn put_aside(&self, workspace: BorrowedFd<'_>) -> Aside {
        let shown = self.path.display();
        let (parent, name) = match self.kind {
            Kind::Bare => (Some(self.path.as_path()), OsStr::new("HEAD")),
            Kind::Folder | Kind::Link => {
                (self.path.parent(), self.path.file_name().unwrap_or_default())
            }
        };
        let parent = open_folder(workspace, parent.unwrap_or(Path::new("")), TO_CHANGE);
        match parent.and_then(|parent| move_aside(&parent, name)) {
            Err(Errno::NOENT) => Aside::Gone,
            Ok(to) => Aside::Moved(format!(
                "git repository {shown} was put aside, as {}: git outside the sandbox would run programs or use files \
                 that its configuration, hooks, links or index name",
                to.display()
            )),
            Err(errno) => {
                let why = std::io::Error::from(errno);
                Aside::Stuck(format!(
                    "git repository {shown} is not to be trusted, and could not be put aside: {why}; no command runs here until \
                     it is removed"
                ))
            }
        }
    }
}

/// Gives an entry of a folder a name with the ending [`ASIDE`], which nothing there has. Returns that name.
fn move_aside(parent: &OwnedFd, name: &OsStr) -> Result<PathBuf, Errno> {
    for number in 0..NAMES {
        let mut to = name.to_owned();
        to.push(ASIDE);
        if number > 0 {
            to.push(format!("-{number}"));
        }
        match renameat_with(parent, name, parent, &to, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done.map(|()| to.into()),
        }
    }
    Err(Errno::EXIST)
}

/// Returns the names in a folder; `None` if they cannot all be read.
fn list(folder: &OwnedFd) -> Option<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).ok()? {
        let entry = entry.ok()?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Some(names)
}

/// Opens a file of a repository, if it is no link and nothing else than a file.
fn open_file(folder: &OwnedFd, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(folder, name, flags, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok(File::from(fd))
}

/// Reads a file of at most [`CONFIG`] bytes of text.
fn read_small_file(folder: &OwnedFd, name: &str) -> Result<String, Errno> {
    let file = open_file(folder, name)?;
    let mut text = String::new();
    let size = file.take(CONFIG + 1).read_to_string(&mut text).map_err(|_| Errno::INVAL)?;
    if size as u64 > CONFIG { Err(Errno::FBIG) } else { Ok(text) }
}

fn has_harmless_config(folder: &OwnedFd) -> bool {
    match read_small_file(folder, "config") {
        Err(Errno::NOENT) => true,
        Err(_) => false,
        Ok(text) => config::is_harmless(&text),
    }
}

fn has_harmless_index(folder: &OwnedFd) -> bool {
    match open_file(folder, "index") {
        Err(Errno::NOENT) => true,
        Err(_) => false,
        Ok(file) => index::has_plain_names(&file),
    }
}

/// Returns whether a rebase that somebody continues would run nothing: its list has no `exec`.
fn has_harmless_rebase(folder: &OwnedFd) -> bool {
    let rebase = match open_folder(folder.as_fd(), Path::new("rebase-merge"), TO_READ) {
        Err(Errno::NOENT) => return true,
        Err(_) => return false,
        Ok(rebase) => rebase,
    };
    match read_small_file(&rebase, "git-rebase-todo") {
        Err(Errno::NOENT) => true,
        Err(_) => false,
        Ok(list) => list.lines().all(|line| {
            let word = line.split_whitespace().next().unwrap_or("#");
            word.starts_with('#') || HARMLESS_STEPS.contains(&word)
        }),
    }
}

/// Returns whether there is a link in a folder or below, or something that cannot be looked at, or more than is looked at.
fn has_links(folder: &OwnedFd) -> bool {
    let mut left = ENTRIES;
    let mut folders = vec![(PathBuf::new(), 0)];
    while let Some((path, depth)) = folders.pop() {
        let Ok(fd) = open_folder(folder.as_fd(), &path, TO_READ) else { return true };
        let Some(names) = list(&fd) else { return true };
        for name in names {
            let Ok(stat) = statat(&fd, &name, AtFlags::SYMLINK_NOFOLLOW) else { return true };
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
