//! Finds programs.

use std::path::{Path, PathBuf};

/// Returns the folders of `PATH`, in order.
pub(crate) fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// Returns the first program with that name in these folders.
pub(crate) fn find(program: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    folders.iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// Returns the folders directly below `parent`, in any order; none if it does not exist.
pub(crate) fn folders_in(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
