//! How many bytes of its disk a workspace takes, counted beside its commands.
//!
//! Its content is hostile: nothing is opened but folders, by the kernel beneath the root and through no link.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat,
};
use rustix::io::Errno;
use tokio::sync::Semaphore;

/// The most files of several names that are remembered. Beyond them a count is less exact.
const MOST: usize = 256 * 1024;
/// The levels whose folders stay open. Deeper ones are closed, and found again by their `..`.
const OPEN: usize = 32;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;
/// The time between two counts, and its part of the time that counts take.
const BETWEEN: Duration = Duration::from_secs(2);
const PART: u32 = 20;
/// The same while a workspace may be beyond its limit.
const BETWEEN_SOON: Duration = Duration::from_millis(100);
const PART_SOON: u32 = 2;

/// The size of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TreeSize {
    /// Bytes, as the disk counts them.
    pub(crate) bytes: u64,
    /// Files, folders and links.
    pub(crate) files: u64,
}

/// A folder whose entries are counted.
struct Level {
    /// `None` while a deeper folder is counted.
    folder: Option<Dir>,
    id: (u64, u64),
    /// The position behind the last entry that was read.
    at: i64,
}

impl Level {
    fn open_at(folder: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&folder)?;
        Ok(Self { folder: Some(Dir::new(folder)?), id: (stat.st_dev, stat.st_ino), at: 0 })
    }

    /// Opens the folder again, from one that was in it. A command may have moved that one elsewhere meanwhile.
    fn open_again(&mut self, below: &Dir) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut again = Self::open_at(openat(below.fd()?, "..", flags, Mode::empty())?)?;
        if again.id != self.id {
            return Err(Errno::NOENT);
        }
        if let Some(folder) = &mut again.folder {
            folder.seek(self.at)?;
        }
        self.folder = again.folder;
        Ok(())
    }
}

/// Counts what is below `root`, however deep. Folders that this process cannot read are left out.
pub(crate) fn count(root: &Path) -> io::Result<TreeSize> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat2(CWD, root, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let (mut size, mut seen) = (TreeSize::default(), BTreeSet::new());
    let mut levels = vec![Level::open_at(top)?];
    let device = levels[0].id.0;
    while let Some(level) = levels.last_mut() {
        // Moved meanwhile: the count goes on in the next folder that is open.
        let Some(folder) = level.folder.as_mut() else {
            levels.pop();
            continue;
        };
        let Some(Ok(entry)) = folder.read() else {
            let ended = levels.pop().and_then(|level| level.folder);
            if let Some((above, ended)) = levels.last_mut().zip(ended)
                && above.folder.is_none()
            {
                let _moved = above.open_again(&ended);
            }
            continue;
        };
        level.at = entry.offset();
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let Ok(parent) = folder.fd() else { continue };
        let Ok(stat) = statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        if !is_folder && stat.st_nlink > 1 && seen.len() < MOST && !seen.insert(stat.st_ino) {
            continue;
        }
        size.files += 1;
        size.bytes = size.bytes.saturating_add(stat.st_blocks.unsigned_abs().saturating_mul(BLOCK));
        if !is_folder || stat.st_dev != device {
            continue;
        }
        // Removed meanwhile, or closed to us.
        let opened = openat(parent.as_fd(), name, flags | OFlags::NOFOLLOW, Mode::empty());
        let Ok(below) = opened.and_then(Level::open_at) else { continue };
        if levels.len() > OPEN
            && let Some(level) = levels.last_mut()
        {
            level.folder = None;
        }
        levels.push(below);
    }
    Ok(size)
}

/// The size of one workspace, as it was counted last.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Size>);

#[derive(Debug, Default)]
struct Size {
    counting: bool,
    newest: Option<Counted>,
}

/// One count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) size: TreeSize,
    /// When it began.
    pub(crate) at: Instant,
    took: Duration,
    /// The part of the whole disk that was in use.
    used: TreeSize,
}

impl Counted {
    /// Whether it is time for another one, of which `limit` says how large the workspace may be. `is_soon`: the disk is short, and
    /// who has taken it is to be known.
    fn is_old(&self, used: TreeSize, limit: TreeSize, is_soon: bool) -> bool {
        let most = |has: u64, now: u64, then: u64| has.saturating_add(now.saturating_sub(then));
        let may_be_beyond = most(self.size.bytes, used.bytes, self.used.bytes) > limit.bytes
            || most(self.size.files, used.files, self.used.files) > limit.files;
        let (between, part) =
            if is_soon || may_be_beyond { (BETWEEN_SOON, PART_SOON) } else { (BETWEEN, PART) };
        self.at.elapsed() >= between.max(self.took * part)
    }
}

impl Tally {
    fn size(&self) -> std::sync::MutexGuard<'_, Size> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn newest(&self) -> Option<Counted> {
        self.size().newest
    }

    /// Begins a count in the background if it is time for one; a command does not wait for it.
    pub(crate) fn refresh(
        self: &Arc<Self>,
        root: &Path,
        used: TreeSize,
        limit: TreeSize,
        is_soon: bool,
        turns: &Arc<Semaphore>,
    ) {
        let mut size = self.size();
        if size.counting || size.newest.is_some_and(|newest| !newest.is_old(used, limit, is_soon)) {
            return;
        }
        let Ok(turn) = turns.clone().try_acquire_owned() else { return };
        size.counting = true;
        drop(size);
        let (tally, root) = (self.clone(), root.to_path_buf());
        tokio::task::spawn_blocking(move || {
            let at = Instant::now();
            let counted = count(&root);
            let mut size = tally.size();
            size.counting = false;
            match counted {
                Ok(counted) => {
                    size.newest = Some(Counted { size: counted, at, took: at.elapsed(), used })
                }
                // Its commands say so themselves.
                Err(error) => tracing::debug!(%error, "a workspace cannot be counted"),
            }
            drop(turn);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_the_disk_holds_is_counted_once_and_nothing_outside() {
        const MIB: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        for path in [&root.join("a/b"), &outside] {
            fs::create_dir_all(path).unwrap();
        }
        let content = vec![1; usize::try_from(MIB).unwrap()];
        for path in [root.join("a/b/file"), root.join("other"), outside.join("large")] {
            fs::write(&path, &content).unwrap();
            File::open(&path).unwrap().sync_all().unwrap();
        }
        fs::hard_link(root.join("other"), root.join("a/again")).unwrap();
        File::create(root.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        symlink(&outside, root.join("a/link")).unwrap();
        symlink("a", root.join("loop")).unwrap();
        let TreeSize { bytes, files } = count(&root).unwrap();
        assert!((2 * MIB..3 * MIB).contains(&bytes), "{bytes}");
        // a, a/b, a/b/file, other (also a/again), sparse, a/link and loop.
        assert_eq!(files, 7);
        assert!(count(&folder.path().join("nowhere")).is_err());
    }

    /// A brother of finding security-3 C2: what was deeper than a path may be long was not counted.
    #[test]
    fn a_tree_deeper_than_any_path_is_counted_to_its_end() {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = rustix::fs::open(folder.path(), flags, Mode::empty()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..300 {
            for name in [name.as_str(), "other"] {
                rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
            }
            at = openat(&at, name.as_str(), flags, Mode::empty()).unwrap();
        }
        let make = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&at, "file", make, Mode::RWXU).unwrap();
        rustix::io::write(&file, &vec![1; 1 << 20]).unwrap();
        let size = count(folder.path()).unwrap();
        assert!(size.bytes >= 1 << 20 && size.files == 601, "{size:?}");
        crate::removal::empty_folder(folder.path()).unwrap();
    }

    #[test]
    fn counts_are_rare_until_a_limit_may_be_passed() {
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        let sized = |bytes, files| TreeSize { bytes, files };
        let limit = TreeSize { bytes: 200, files: 20 };
        let counted = |ms| Counted {
            size: sized(100, 10),
            at: ago(ms),
            took: Duration::from_millis(1),
            used: sized(500, 50),
        };
        assert!(!counted(1_000).is_old(sized(550, 55), limit, false));
        assert!(counted(1_000).is_old(sized(550, 55), limit, true), "the disk is short");
        assert!(
            counted(1_000).is_old(sized(601, 50), limit, false),
            "the disk has grown by what was left"
        );
        assert!(counted(1_000).is_old(sized(500, 61), limit, false), "the same, of files");
        assert!(counted(2_500).is_old(sized(500, 50), limit, false));
        let slow = Counted { took: Duration::from_secs(1), ..counted(2_500) };
        assert!(!slow.is_old(sized(500, 50), limit, false));
        assert!(slow.is_old(sized(601, 50), limit, false));
    }
}
