//! How many bytes of its disk a workspace takes, counted beside its commands.
//!
//! Its content is hostile: nothing is opened but folders, by the kernel beneath the root and through no link.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use tokio::sync::Semaphore;

/// The most folders that wait to be looked at, and the most files of several names that are remembered. Beyond them a count
/// is less exact.
const MOST: usize = 256 * 1024;
/// The unit of `st_blocks`.
const BLOCK: u64 = 512;
/// The time between two counts, and its part of the time that counts take.
const BETWEEN: Duration = Duration::from_secs(2);
const PART: u32 = 20;
/// The same while a workspace may be beyond its limit.
const BETWEEN_SOON: Duration = Duration::from_millis(100);
const PART_SOON: u32 = 2;

/// Bytes below `root`, as the disk counts them. Folders that this process cannot read are left out.
pub(crate) fn count(root: &Path) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = openat2(CWD, root, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let (mut bytes, mut seen) = (0_u64, BTreeSet::new());
    let mut open = vec![PathBuf::from(".")];
    while let Some(folder) = open.pop() {
        let opened = openat2(&top, &folder, flags | OFlags::NOFOLLOW, Mode::empty(), resolve);
        // Removed meanwhile, deeper than a path may be long, or closed to us.
        let Ok(entries) = opened.and_then(|fd| Dir::read_from(&fd).map(|all| (fd, all))) else {
            continue;
        };
        let (fd, entries) = entries;
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = statat(fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_folder = FileType::from_raw_mode(stat.st_mode).is_dir();
            if !is_folder && stat.st_nlink > 1 && seen.len() < MOST && !seen.insert(stat.st_ino) {
                continue;
            }
            bytes = bytes.saturating_add(stat.st_blocks.unsigned_abs().saturating_mul(BLOCK));
            if is_folder && open.len() < MOST {
                open.push(folder.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
    Ok(bytes)
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
    pub(crate) bytes: u64,
    /// When it began.
    pub(crate) at: Instant,
    took: Duration,
    /// Bytes of the whole disk that were in use.
    used: u64,
}

impl Counted {
    /// Whether it is time for another one, of which `limit` says how large the workspace may be.
    fn is_old(&self, used: u64, limit: u64) -> bool {
        let may_be_beyond = self.bytes.saturating_add(used.saturating_sub(self.used)) > limit;
        let (between, part) =
            if may_be_beyond { (BETWEEN_SOON, PART_SOON) } else { (BETWEEN, PART) };
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
        used: u64,
        limit: u64,
        turns: &Arc<Semaphore>,
    ) {
        let mut size = self.size();
        if size.counting || size.newest.is_some_and(|newest| !newest.is_old(used, limit)) {
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
                Ok(bytes) => size.newest = Some(Counted { bytes, at, took: at.elapsed(), used }),
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
        let bytes = count(&root).unwrap();
        assert!((2 * MIB..3 * MIB).contains(&bytes), "{bytes}");
        assert!(count(&folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn a_tree_deeper_than_any_path_is_counted_as_far_as_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), vec![1; 8192]).unwrap();
        let mut at = rustix::fs::open(folder.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let name = "d".repeat(200);
        for _ in 0..40 {
            rustix::fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = rustix::fs::openat(&at, name.as_str(), OFlags::RDONLY, Mode::empty()).unwrap();
        }
        assert!(count(folder.path()).unwrap() >= 8192);
    }

    #[test]
    fn counts_are_rare_until_a_limit_may_be_passed() {
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        let counted =
            |ms| Counted { bytes: 100, at: ago(ms), took: Duration::from_millis(1), used: 500 };
        assert!(!counted(1_000).is_old(550, 200));
        assert!(counted(1_000).is_old(601, 200), "the disk has grown by what was left");
        assert!(counted(2_500).is_old(500, 200));
        let slow = Counted { took: Duration::from_secs(1), ..counted(2_500) };
        assert!(!slow.is_old(500, 200) && slow.is_old(601, 200));
    }
}
