//! Bounds the bytes of this worker's copies of repositories' packs: those that no fill has used for the longest time go first.
//! Storage has them all, and the next fill that needs one gets it from there.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A fill may read a pack for this long after it has asked for it.
const IN_USE: Duration = Duration::from_hours(1);

/// The copy of one pack, with its index.
struct Copy {
    used: SystemTime,
    bytes: u64,
    pack: PathBuf,
    index: PathBuf,
}

/// Removes copies until those in `folder` have at most `most` bytes, or all that are left were used within the hour before
/// `now`. Returns the bytes that it removed.
///
/// # Errors
/// When the folder cannot be read or changed.
pub(super) fn bound(folder: &Path, most: u64, now: SystemTime) -> io::Result<u64> {
    let mut copies = Vec::new();
    for org in folders(folder)? {
        for repository in folders(&org)? {
            read(&repository, &mut copies)?;
        }
    }
    copies.sort_by_key(|copy| copy.used);
    let (mut bytes, mut removed) = (copies.iter().map(|copy| copy.bytes).sum::<u64>(), 0);
    for copy in copies {
        let is_idle = now.duration_since(copy.used).is_ok_and(|unused| unused > IN_USE);
        if bytes <= most || !is_idle {
            break;
        }
        // The pack goes first: a pack that is there has its index.
        sandbox::remove_tree(&copy.pack)?;
        sandbox::remove_tree(&copy.index)?;
        bytes -= copy.bytes;
        removed += copy.bytes;
    }
    Ok(removed)
}

/// Takes in the copies of one repository.
fn read(repository: &Path, copies: &mut Vec<Copy>) -> io::Result<()> {
    for path in entries(repository)? {
        if path.extension() != Some(OsStr::new("pack")) {
            continue;
        }
        let index = path.with_extension("idx");
        // Another worker may remove it at the same time.
        let Ok(found) = path.symlink_metadata() else { continue };
        let indexed = index.symlink_metadata().map_or(0, |index| index.len());
        copies.push(Copy {
            used: found.modified()?,
            bytes: found.len() + indexed,
            pack: path,
            index,
        });
    }
    Ok(())
}

/// Returns the folders in a folder, without those in which something is made.
fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let is_one = |path: &PathBuf| {
        let is_hidden =
            path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        !is_hidden && path.symlink_metadata().is_ok_and(|found| found.is_dir())
    };
    Ok(entries(folder)?.into_iter().filter(is_one).collect())
}

/// Returns what is in a folder; nothing without the folder.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// Makes a pack of 900 bytes with an index of 100 that was last used so long ago.
    fn make(folder: &Path, name: &str, now: SystemTime, ago: Duration) -> PathBuf {
        let repository = folder.join(name);
        std::fs::create_dir_all(&repository).expect("a folder");
        let pack = repository.join("p.pack");
        std::fs::write(&pack, [0; 900]).expect("a pack");
        std::fs::write(repository.join("p.idx"), [0; 100]).expect("an index");
        let file = File::options().write(true).open(&pack).expect("the pack");
        file.set_modified(now - ago).expect("its time");
        pack
    }

    fn at_noon() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(12)
    }

    #[test]
    fn the_copies_unused_for_longest_go_first() {
        let (folder, now) = (tempfile::tempdir().expect("a folder"), at_noon());
        let at = |name, hours| make(folder.path(), name, now, Duration::from_hours(hours));
        let (old, older, new) = (at("org/old", 3), at("other/older", 5), at("org/new", 2));
        let making = folder.path().join(".tmp-1/objects");
        let made = make(&making, "pack", now, Duration::from_hours(9));
        assert_eq!(bound(folder.path(), 3_000, now).expect("bounded"), 0);
        assert_eq!(bound(folder.path(), 2_500, now).expect("bounded"), 1_000);
        let left = [&old, &older, &new, &made].map(|path| path.exists());
        assert_eq!(left, [true, false, true, true]);
        assert!(!older.with_extension("idx").exists());
        assert_eq!(bound(folder.path(), 0, now).expect("bounded"), 2_000);
        assert_eq!(bound(&folder.path().join("nowhere"), 0, now).expect("bounded"), 0);
    }

    #[test]
    fn a_copy_that_a_fill_may_read_stays() {
        let (folder, now) = (tempfile::tempdir().expect("a folder"), at_noon());
        let pack = make(folder.path(), "org/repository", now, Duration::from_mins(59));
        assert_eq!(bound(folder.path(), 0, now).expect("bounded"), 0);
        assert!(pack.exists());
    }
}
