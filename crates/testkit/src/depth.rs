//! Folders of a depth that no program makes and one command can.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use tempfile::TempDir;

/// Makes a folder below a folder, so many times, beginning in `at`, and a file in the last.
///
/// # Errors
/// The file system fails.
pub fn dig(at: &Path, levels: usize) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = openat(CWD, at, flags, Mode::empty())?;
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU)?;
        folder = openat(&folder, "d", flags, Mode::empty())?;
    }
    openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RWXU)?;
    Ok(())
}

/// Makes a temporary folder in memory, where that is to be had: a disk needs a minute for many levels.
///
/// # Errors
/// The system cannot make a folder.
pub fn memory_folder() -> Result<TempDir> {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.context("cannot make a temporary folder")
}
