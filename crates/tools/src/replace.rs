//! Replaces a file as a whole: never half of it, and never two calls at once.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::hash::{Hash, Hasher};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, renameat, unlinkat};
use rustix::io::Errno;
use sandbox::LocationLock;
use sandbox::lock::{self, Held};
use snapshots::Touched;

use crate::call::Stopped;
use crate::files::{LocationFiles, Refused};

/// The number of retries if another call replaces a file between opening it and reading its name.
const REPLACED_MEANWHILE: u32 = 100;
/// The most symlinks to nothing, one to the next, as in Linux.
const MAX_LINKS: u32 = 40;

/// One lock for each group of files, so that parallel calls on the same file wait for each other.
#[derive(Debug)]
pub(crate) struct FileLocks([Mutex<()>; 64]);

impl Default for FileLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }
}

impl FileLocks {
    /// Locks a file while it is read, changed and written back. Blocks.
    fn hold(&self, root: &Path, file: &Path) -> MutexGuard<'_, ()> {
        self.0[self.slot(root, file)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, root: &Path, file: &Path) -> usize {
        let index = hash(&(root, file)) % self.0.len() as u64;
        usize::try_from(index).unwrap_or(0)
    }

    /// Locks several files, in one order for all calls. Blocks. If a file is meanwhile moved to another name, tries again.
    pub(crate) fn hold_all(
        &self,
        files: &LocationFiles,
        paths: &[PathBuf],
    ) -> Result<HeldFiles<'_>, Refused> {
        let slots = || -> Result<BTreeSet<usize>, Refused> {
            let slot = |path: &PathBuf| -> Result<usize, Refused> {
                Ok(self.slot(files.real_root(), &resolve(files, path)?.0))
            };
            paths.iter().map(slot).collect()
        };
        for _ in 0..REPLACED_MEANWHILE {
            let wanted = slots()?;
            let lock = |slot: &usize| self.0[*slot].lock().unwrap_or_else(PoisonError::into_inner);
            let guards = wanted.iter().map(lock).collect();
            if slots()? == wanted {
                return Ok(HeldFiles(guards));
            }
        }
        Err(Refused::Io(io::Error::other("they keep being moved; try again")))
    }
}

/// Files that no other call of this worker changes meanwhile.
pub(crate) struct HeldFiles<'a>(
    #[expect(dead_code, reason = "held until it is dropped")] Vec<MutexGuard<'a, ()>>,
);

impl HeldFiles<'_> {
    /// Finds one of the files, as [`Target::find`] does. It stays locked as long as these are.
    pub(crate) fn target<'f>(
        &'f self,
        files: &'f LocationFiles,
        path: &Path,
    ) -> Result<Target<'f>, Refused> {
        let (real, existing_mode) = resolve(files, path)?;
        Ok(Target { files, given: path.to_path_buf(), path: real, existing_mode, _held: None })
    }
}

/// Returns the path with symlinks resolved, and the mode of a file that exists. Of one that does not, its folder is resolved.
fn resolve(files: &LocationFiles, path: &Path) -> Result<(PathBuf, Option<u32>), Refused> {
    let (mut path, mut tries) = (path.to_path_buf(), REPLACED_MEANWHILE);
    loop {
        let fd = match files.open(&path, OFlags::PATH) {
            Err(Refused::Missing) => {
                let free = resolve_folder(files, &follow_dangling(files, &path)?)?;
                if free == path || tries == 0 {
                    return Ok((free, None));
                }
                // By its other name there may be a file.
                (path, tries) = (free, tries - 1);
                continue;
            }
            Err(other) => return Err(other),
            Ok(fd) => fd,
        };
        let real = files.real_relative(&fd);
        let stat = fstat(&fd)?;
        // Another call has just replaced this file, which has no name any more.
        if stat.st_nlink == 0 && tries > 0 {
            tries -= 1;
            continue;
        }
        let mode = stat.st_mode;
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return Err(Refused::Io(io::Error::other("it is not a file")));
        }
        if mode & 0o222 == 0 {
            return Err(Refused::Io(io::Error::other("it is read-only")));
        }
        return Ok((real?, Some(mode & 0o7777)));
    }
}

/// Returns the path of a file that is to be made: where a symlink to nothing leads, as in a shell, else the path itself.
fn follow_dangling(files: &LocationFiles, path: &Path) -> Result<PathBuf, Refused> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let link = match files.open(&path, OFlags::PATH | OFlags::NOFOLLOW) {
            Err(Refused::Missing) => return Ok(path),
            Err(other) => return Err(other),
            Ok(fd) => fd,
        };
        if FileType::from_raw_mode(fstat(&link)?.st_mode) != FileType::Symlink {
            return Ok(path); // it was made meanwhile
        }
        let target = readlinkat(&link, "", Vec::new())?;
        let beside = files.real_relative(&link)?;
        let target = OsStr::from_bytes(target.to_bytes());
        path = files.drop_detours(beside.parent().unwrap_or(Path::new("")).join(target));
    }
    Err(Refused::Io(io::Error::other("its symlinks lead in a circle")))
}

/// Returns the path of a missing file with the deepest of its folders that exists by that one's real name, so that two names of
/// one file are told to be one.
fn resolve_folder(files: &LocationFiles, path: &Path) -> Result<PathBuf, Refused> {
    for above in path.ancestors().skip(1) {
        let folder = if above == Path::new("") { Path::new(".") } else { above };
        let real = match files.open(folder, OFlags::PATH) {
            Err(Refused::Missing) => continue,
            Err(other) => return Err(other),
            Ok(fd) => files.real_relative(&fd)?,
        };
        let rest = path.strip_prefix(above).unwrap_or(path);
        if rest.components().any(|part| part == Component::ParentDir) {
            return Err(Refused::Io(io::Error::other("it leads through a folder that is missing")));
        }
        return Ok(real.strip_prefix(".").unwrap_or(&real).join(rest));
    }
    Ok(path.to_path_buf())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A file that is about to change, and may not exist yet. No other call of this worker changes it meanwhile.
pub(crate) struct Target<'a> {
    files: &'a LocationFiles,
    /// The path below the root, as it was given.
    given: PathBuf,
    /// The path below the root, with symlinks resolved if it exists.
    path: PathBuf,
    existing_mode: Option<u32>,
    /// `None` if its lock is held elsewhere, for as long as this lives.
    _held: Option<MutexGuard<'a, ()>>,
}

impl<'a> Target<'a> {
    /// Finds the target. Follows a symlink that stays in the Location, also to what does not exist yet.
    pub(crate) fn find(
        files: &'a LocationFiles,
        locks: &'a FileLocks,
        path: &Path,
    ) -> Result<Self, Refused> {
        let (real, existing_mode) = resolve(files, path)?;
        let held = locks.hold(files.real_root(), &real);
        let given = path.to_path_buf();
        Ok(Self { files, given, path: real, existing_mode, _held: Some(held) })
    }

    pub(crate) fn exists(&self) -> bool {
        self.existing_mode.is_some()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the name by which it was given lies, with the links to its folder resolved: what [`Target::remove`] removes.
    pub(crate) fn find_removed(&self) -> Result<PathBuf, Refused> {
        resolve_folder(self.files, &self.given)
    }

    /// Replaces the file with `content` in one step: readers see the old file or the new one. Keeps the mode,
    /// but not owner and hard links. Does not sync: after a power loss, only the snapshot's content is safe.
    ///
    /// Returns the touched path: the file's real location.
    ///
    /// The temporary file's name contains `call`, so that the call's next body overwrites the leftovers of a
    /// killed worker.
    pub(crate) fn replace(&self, content: &[u8], call: &str) -> Result<Touched, Refused> {
        let (parent, name) = self.files.open_parent(&self.path)?;
        let beside = format!(".oc-tmp-{:016x}", hash(&(call, &name)));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = || openat(&parent, beside.as_str(), flags, Mode::from_raw_mode(0o666));
        let fd = match open() {
            Err(Errno::EXIST) => {
                unlinkat(&parent, beside.as_str(), AtFlags::empty())?;
                open()?
            }
            other => other?,
        };
        let done = self.fill(fd, content).and_then(|()| {
            renameat(&parent, beside.as_str(), &parent, &name).map_err(io::Error::from)
        });
        match done {
            Ok(()) => Ok(self.touched(&parent, &name)),
            Err(error) => {
                let _the_first_error_counts = unlinkat(&parent, beside.as_str(), AtFlags::empty());
                Err(Refused::Io(error))
            }
        }
    }

    /// Removes the name by which the file was given; a symlink's target stays. Returns the touched path.
    pub(crate) fn remove(&self) -> Result<Touched, Refused> {
        let (parent, name) = self.files.open_parent(&self.given)?;
        unlinkat(&parent, &name, AtFlags::empty())?;
        Ok(self.touched(&parent, &name))
    }

    /// Returns the path below the root without symlinks. If the name is not UTF-8 or the directory was moved
    /// meanwhile, it may be anything.
    fn touched(&self, parent: &OwnedFd, name: &OsStr) -> Touched {
        let Ok(directory) = self.files.real_relative(parent) else { return Touched::Anything };
        let directory = directory.strip_prefix(".").unwrap_or(&directory);
        directory.join(name).to_str().map_or(Touched::Anything, Touched::path)
    }

    fn fill(&self, fd: OwnedFd, content: &[u8]) -> io::Result<()> {
        let mut file = File::from(fd);
        file.write_all(content)?;
        match self.existing_mode {
            Some(mode) => file.set_permissions(Permissions::from_mode(mode)),
            None => Ok(()),
        }
    }
}

/// Holds the Location's lock for a change, so that a new owner waits for it. If the Location already has a
/// newer owner, the change is refused.
pub(crate) fn hold(lock: Option<&LocationLock>) -> Result<Option<Held>, Stopped> {
    lock.map(lock::hold).transpose().map_err(|error| Stopped::because(error.to_string()))
}
