//! Walks the files of a Location in a fixed order, without ignored files.
//!
//! Nothing in a Location is trusted. Each directory is opened by its path, which the kernel resolves beneath
//! the root and through no symlink. It is listed and closed before its entries are visited. So a walk holds
//! few descriptors, never blocks, and uses bounded memory.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, statat};
use snapshots::{IgnoreFiles, IgnoreRules};
use tokio_util::sync::CancellationToken;

use crate::call::Stopped;
use crate::files::LocationFiles;

/// The most names that one walk looks at.
const MAX_ENTRIES: usize = 500_000;
/// The most levels of directories. Deeper ones count as unreadable.
const MAX_DEPTH: usize = 256;

/// The parts that a walk could not see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// The number of directories that could not be listed.
    pub(crate) unreadable: usize,
    /// The walk stopped at its limit of names.
    pub(crate) gave_up: bool,
    /// Something was left out because an ignore file names it.
    pub(crate) ignored: bool,
}

/// Visits each file and symlink below the directory `base`, in the order of names within each directory,
/// until `visit` breaks. `base` and the visited paths are relative to the root. Never follows a symlink.
/// Ignore files above the root do not count, because results must not differ between workers.
///
/// If `base` itself is ignored, ignore files above it do not count: it was requested by name.
pub(crate) fn walk(
    files: &LocationFiles,
    base: &Path,
    cancel: &CancellationToken,
    visit: impl FnMut(&Path) -> Result<ControlFlow<()>, Stopped>,
) -> Result<Walked, Stopped> {
    let base = if base == Path::new(".") { Path::new("") } else { base };
    let rules = IgnoreRules::new(IgnoreFiles::GitAndIgnore);
    let walked = Walked::default();
    let mut walk = Walk { files, cancel, visit, rules, walked, entries: 0 };
    walk.enter_above(base);
    walk.directory(base, 0).map(|_| walk.walked)
}

struct Walk<'w, F> {
    files: &'w LocationFiles,
    cancel: &'w CancellationToken,
    visit: F,
    rules: IgnoreRules,
    walked: Walked,
    entries: usize,
}

/// A name in a directory.
struct Listed {
    name: OsString,
    is_directory: bool,
}

impl<F: FnMut(&Path) -> Result<ControlFlow<()>, Stopped>> Walk<'_, F> {
    /// Reads the ignore files above `base`, unless they ignore it.
    fn enter_above(&mut self, base: &Path) {
        let mut above = PathBuf::new();
        for name in base {
            let Ok(fd) = self.files.open_directory(&above) else { return };
            self.rules.enter(fd.as_fd(), &above);
            above.push(name);
            if name == ".git" || self.rules.ignores(&above, true) {
                self.rules = IgnoreRules::new(IgnoreFiles::GitAndIgnore);
                return;
            }
        }
    }

    fn directory(&mut self, below: &Path, depth: usize) -> Result<ControlFlow<()>, Stopped> {
        if self.cancel.is_cancelled() {
            return Err(Stopped::Interrupted);
        }
        let opened = if depth < MAX_DEPTH { self.files.open_directory(below).ok() } else { None };
        let Some(fd) = opened else {
            self.walked.unreadable += 1;
            return Ok(ControlFlow::Continue(()));
        };
        self.rules.enter(fd.as_fd(), below);
        let went_on = match self.list(&fd) {
            Some(names) => {
                drop(fd); // close it before descending, however deep that goes
                self.visit_all(below, depth, names)
            }
            None => {
                self.walked.unreadable += 1;
                Ok(ControlFlow::Continue(()))
            }
        };
        self.rules.leave();
        went_on
    }

    fn visit_all(
        &mut self,
        below: &Path,
        depth: usize,
        names: Vec<Listed>,
    ) -> Result<ControlFlow<()>, Stopped> {
        for (count, Listed { name, is_directory }) in names.into_iter().enumerate() {
            if count % 256 == 255 && self.cancel.is_cancelled() {
                return Err(Stopped::Interrupted);
            }
            let path = below.join(&name);
            if name == ".git" {
                continue;
            }
            if self.rules.ignores(&path, is_directory) {
                self.walked.ignored = true;
                continue;
            }
            let went_on = match is_directory {
                true => self.directory(&path, depth + 1)?,
                false => (self.visit)(&path)?,
            };
            if went_on.is_break() {
                return Ok(went_on);
            }
        }
        if self.walked.gave_up { Ok(ControlFlow::Break(())) } else { Ok(ControlFlow::Continue(())) }
    }

    /// Returns the files, symlinks and directories in a directory, ordered by name, up to the walk's
    /// remaining limit. `None` if they cannot be listed.
    fn list(&mut self, fd: &OwnedFd) -> Option<Vec<Listed>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(fd).ok()? {
            let entry = entry.ok()?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let Ok(stat) = statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) else {
                    continue; // removed meanwhile
                };
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            let is_directory = match kind {
                FileType::Directory => true,
                FileType::RegularFile | FileType::Symlink => false,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => continue,
            };
            if self.entries == MAX_ENTRIES {
                self.walked.gave_up = true;
                break;
            }
            self.entries += 1;
            let name = std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes());
            let name = std::ffi::OsStr::to_owned(name);
            names.push(Listed { name, is_directory });
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Some(names)
    }
}
