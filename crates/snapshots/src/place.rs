//! Access to the Location's directory: the kernel resolves every path beneath it, and never through a
//! symlink.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, Stat, mkdirat, openat, openat2, statat};
use rustix::io::Errno;

use crate::error::SnapshotError;

/// The prefix of temporary files, ours and the tools'. They are in no snapshot.
pub(crate) const TEMPORARY: &str = ".oc-tmp-";
/// The number of retries after a path resolution loses a race with a rename.
const RACES: usize = 32;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the Location's root, by its real path: a link in it was put there since.
pub(crate) fn open_root(root: &Path) -> Result<OwnedFd, SnapshotError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, root, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        .map_err(SnapshotError::files("open", root))
}

/// Opens a directory by its name in another one.
pub(crate) fn open_directory(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

/// Opens a directory below the root. With `make`, creates missing ones on the way.
pub(crate) fn open_below(root: &OwnedFd, below: &Path, make: bool) -> Result<OwnedFd, Errno> {
    let open = |path: &Path| {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        for _ in 0..RACES {
            match openat2(root, path, DIRECTORY, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    };
    match open(below) {
        Err(Errno::NOENT) if make => {
            let (Some(parent), Some(name)) = (below.parent(), below.file_name()) else {
                return Err(Errno::NOENT);
            };
            let parent = open_below(root, parent, true)?;
            match mkdirat(&parent, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => open(below),
                Err(errno) => Err(errno),
            }
        }
        done => done,
    }
}

/// Returns the stat of a name itself, without following links; `None` if it does not exist.
pub(crate) fn look(parent: BorrowedFd<'_>, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match statat(parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns the sorted names in a directory.
pub(crate) fn names(fd: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in Dir::read_from(fd)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns the components of a path that stays below the root lexically; `None` for others.
pub(crate) fn components(path: &Path) -> Option<Vec<&OsStr>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!names.is_empty()).then_some(names)
}
