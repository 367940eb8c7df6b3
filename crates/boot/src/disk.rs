//! Free disk space.

use std::io;
use std::path::Path;

use crate::BootError;

/// The space for a fresh Postgres with its write-ahead log and some reserve, in MiB.
pub(crate) const COMFORT_MIB: u64 = 256;

/// Refuses a disk with less than `min_bytes` left for this user.
///
/// `path` need not exist yet; its nearest existing parent counts.
///
/// # Errors
/// [`BootError::DiskFull`], or [`BootError::Io`] if the file system does not answer.
pub fn ensure_free_space(path: &Path, min_bytes: u64) -> Result<(), BootError> {
    let free = free_bytes(path).map_err(BootError::io("look at the disk of", path))?;
    if free >= min_bytes {
        return Ok(());
    }
    let (free_mib, needed_mib) = (free >> 20, min_bytes.div_ceil(1 << 20));
    Err(BootError::DiskFull { path: path.to_owned(), free_mib, needed_mib })
}

pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let existing = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let disk = rustix::fs::statvfs(existing)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_less_than_needed_is_refused_with_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("not/yet/there");
        assert!(ensure_free_space(&path, 1).is_ok());
        let refused = ensure_free_space(&path, u64::MAX).unwrap_err().to_string();
        assert!(refused.contains("is full") && refused.contains("--data-dir"), "{refused}");
        assert!(!refused.contains('\n'));
    }
}
