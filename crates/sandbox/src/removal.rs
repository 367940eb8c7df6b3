//! Removes folders in which commands could write: of any depth, and with whatever names, modes and links they left there.
//!
//! ```text
//! top ─ a ─ b ─ … ─ 32 levels ─┐ a folder below that moves up to the top,
//!  ▲                           │ and has its turn in the next round
//!  └───── .removing-7 ◀────────┘
//! ```
//!
//! `std::fs::remove_dir_all` calls itself for each level. So one command could end this process, by a stack that is used up.
//! Here neither stack nor descriptors grow with the depth.
//!
//! Invariant: nothing is opened or removed but below the folder, by descriptors, through no link and on no other file system.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::folders::{TO_CHANGE, open_with_rights};

/// The most levels that are open at once.
const LEVELS: usize = 32;
/// The beginning of the names that deep folders get at the top.
const MOVED: &str = ".removing-";
/// The most rounds: a tree of 100,000 levels takes 3,000. A process that goes on writing is not followed for ever.
const ROUNDS: usize = 1 << 20;
/// The most entries that are remembered since they cannot be removed.
const MOST_LEFT: usize = 10_000;

/// Removes what is at `path`, and all in it if it is a folder. What is gone already is no error. Blocking.
///
/// # Errors
/// Something could not be removed. Everything else is gone; the error says how much is left, and why the first of it is.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match empty(path) {
        Ok(()) => match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failure(path, errno)),
        },
        Err(Failure::NoFolder) => match unlinkat(CWD, path, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failure(path, errno)),
        },
        Err(Failure::Gone) => Ok(()),
        Err(Failure::Left(error)) => Err(error),
    }
}

/// Removes all that is in the folder `path`, and keeps the folder. Blocking.
///
/// # Errors
/// As [`remove_tree`]; and there is no such folder.
pub fn empty_folder(path: &Path) -> io::Result<()> {
    empty(path).map_err(|failed| match failed {
        Failure::Gone => failure(path, Errno::NOENT),
        Failure::NoFolder => failure(path, Errno::NOTDIR),
        Failure::Left(error) => error,
    })
}

enum Failure {
    Gone,
    NoFolder,
    Left(io::Error),
}

fn failure(path: &Path, errno: Errno) -> io::Error {
    io::Error::new(errno.kind(), format!("{}: {}", path.display(), io::Error::from(errno)))
}

fn empty(path: &Path) -> Result<(), Failure> {
    let top = match open_folder(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Err(Failure::Gone),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(Failure::NoFolder),
        Err(errno) => return Err(Failure::Left(failure(path, errno))),
    };
    let mut removal =
        Removal::begin_at(&top).map_err(|errno| Failure::Left(failure(path, errno)))?;
    for _ in 0..ROUNDS {
        if !removal.round(&top).map_err(|errno| Failure::Left(failure(path, errno)))? {
            break;
        }
    }
    removal.result(path).map_err(Failure::Left)
}

/// Opens a folder, not a link to one, and makes it one that its owner can change. A command may have taken that right.
fn open_folder(
    parent: BorrowedFd<'_>,
    name: impl rustix::path::Arg + Copy,
) -> Result<OwnedFd, Errno> {
    open_with_rights(TO_CHANGE, |flags| openat(parent, name, flags, Mode::empty()))
}

/// One level that is open.
struct Level {
    folder: Dir,
    /// Its name in the level above.
    name: CString,
    /// Whether something of it went since it was listed from its beginning.
    progress: bool,
}

/// The removal of one tree.
struct Removal {
    device: u64,
    next_name: u64,
    /// Entries that stay: folder and name. Only the first ones, since they are asked for again and again.
    known_left: BTreeSet<(u64, CString)>,
    left: u64,
    first_left: Option<(PathBuf, Errno)>,
}

/// The end of an entry.
enum Step {
    /// It is gone from there.
    Gone,
    /// It stays, which is noted already.
    Left,
    /// It is a folder whose entries go first.
    Enter(Dir),
}

impl Removal {
    fn begin_at(top: &OwnedFd) -> Result<Self, Errno> {
        let device = fstat(top)?.st_dev;
        let known_left = BTreeSet::new();
        Ok(Self { device, next_name: 0, known_left, left: 0, first_left: None })
    }

    /// Removes what is at most [`LEVELS`] deep, and moves deeper folders to the top. Returns whether another round is needed.
    fn round(&mut self, top: &OwnedFd) -> Result<bool, Errno> {
        let folder = Dir::read_from(top)?;
        let mut levels = vec![Level { folder, name: CString::default(), progress: false }];
        let mut again = false;
        while let Some(level) = levels.last_mut() {
            // An error ends the listing: a folder with more in it is found not to be empty.
            let Some(Ok(entry)) = level.folder.read() else {
                again |= level.progress;
                self.leave(&mut levels);
                continue;
            };
            let name = entry.file_name().to_owned();
            if matches!(name.as_bytes(), b"." | b"..") {
                continue;
            }
            match self.take(top, &levels, &name) {
                Ok(Step::Gone) => {
                    if let Some(level) = levels.last_mut() {
                        level.progress = true;
                    }
                }
                Ok(Step::Left) => {}
                Ok(Step::Enter(folder)) => levels.push(Level { folder, name, progress: false }),
                Err(errno) => self.note_left(&levels, &name, errno),
            }
        }
        Ok(again)
    }

    /// Takes one entry of the last level away, or opens it.
    fn take(&mut self, top: &OwnedFd, levels: &[Level], name: &CStr) -> Result<Step, Errno> {
        let Some(level) = levels.last() else { return Ok(Step::Left) };
        let parent = level.folder.fd()?;
        let why = match unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Step::Gone),
            Err(errno) => errno,
        };
        match unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(Step::Gone),
            Err(Errno::NOTDIR) => return Err(why),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ACCESS) => {}
            Err(errno) => return Err(errno),
        }
        if self.is_known(parent, name) {
            return Ok(Step::Left);
        }
        let folder = match open_folder(parent, name) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(Step::Gone),
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(why),
            Err(errno) => return Err(errno),
        };
        if fstat(&folder)?.st_dev != self.device {
            return Err(Errno::XDEV);
        }
        if levels.len() < LEVELS {
            return Ok(Step::Enter(Dir::new(folder)?));
        }
        self.move_up(parent, name, top).map(|()| Step::Gone)
    }

    /// Moves a folder to the top, under a name that nothing there has.
    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr, top: &OwnedFd) -> Result<(), Errno> {
        loop {
            let to = format!("{MOVED}{}", self.next_name);
            self.next_name += 1;
            match renameat(parent, name, top, to.as_str()) {
                // Such a name may be a command's.
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                done => return done,
            }
        }
    }

    /// Ends the last level, which was listed: removes its folder, or lists it again where more is in it than was listed.
    fn leave(&mut self, levels: &mut Vec<Level>) {
        let Some(Level { folder: mut left, name, progress }) = levels.pop() else { return };
        // The top stays until all rounds are done.
        let Some(above) = levels.last_mut() else { return };
        let removed =
            above.folder.fd().and_then(|fd| unlinkat(fd, name.as_c_str(), AtFlags::REMOVEDIR));
        match removed {
            Ok(()) | Err(Errno::NOENT) => above.progress = true,
            // Some file systems leave entries out while others are removed.
            Err(Errno::NOTEMPTY | Errno::EXIST) if progress => {
                left.rewind();
                levels.push(Level { folder: left, name, progress: false });
            }
            Err(errno) => self.note_left(levels, &name, errno),
        }
    }

    fn is_known(&self, parent: BorrowedFd<'_>, name: &CStr) -> bool {
        fstat(parent).is_ok_and(|it| self.known_left.contains(&(it.st_ino, name.to_owned())))
    }

    /// Notes that an entry stays.
    fn note_left(&mut self, levels: &[Level], name: &CStr, errno: Errno) {
        let inode = levels.last().and_then(|level| level.folder.stat().ok()).map(|it| it.st_ino);
        let key = inode.map(|inode| (inode, name.to_owned()));
        if key.as_ref().is_some_and(|key| self.known_left.contains(key)) {
            return;
        }
        if self.known_left.len() < MOST_LEFT {
            self.known_left.extend(key);
        }
        self.left += 1;
        if self.first_left.is_none() {
            let names = levels.iter().skip(1).map(|level| level.name.as_c_str()).chain([name]);
            let path = names.map(|name| OsStr::from_bytes(name.to_bytes())).collect();
            self.first_left = Some((path, errno));
        }
    }

    fn result(self, path: &Path) -> io::Result<()> {
        let Some((first, errno)) = self.first_left else { return Ok(()) };
        let (path, first, left) = (path.display(), first.display(), self.left);
        let why = io::Error::from(errno);
        let told =
            format!("{path}: {left} of its entries cannot be removed, the first is {first}: {why}");
        Err(io::Error::new(errno.kind(), told))
    }
}

/// A new folder that goes with all that is in it, when this is dropped.
#[derive(Debug)]
pub struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes one in `parent`, which only this user can enter. Its name begins with `prefix`.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        Ok(Self(made.keep()))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0) {
            tracing::warn!(%error, "cannot remove a scratch folder");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
