//! The data folder of one installation, held by one process at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::BootError;

/// The newest format of the folder that this release knows.
const FORMAT: u32 = 1;

/// A data folder that this process holds. Dropping it, or any death of the process, releases it for the next
/// one.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// The lock is held as long as this file is open; children do not inherit it.
    _lock: File,
}

impl DataDir {
    /// Creates the folder if it is missing, and locks it for this process.
    ///
    /// A new folder is closed to other users. If the owner is root, others may pass through it but not list
    /// it, because Postgres runs inside as another user.
    ///
    /// # Errors
    /// [`BootError::DataDirInUse`], [`BootError::NewerDataDir`], or the reason why it cannot be created.
    pub fn open(path: &Path) -> Result<Self, BootError> {
        let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        let created = DirBuilder::new().recursive(true).mode(mode).create(path);
        created.map_err(BootError::io("create the folder", path))?;
        let path = fs::canonicalize(path).map_err(BootError::io("open the folder", path))?;
        refuse_foreign(&path)?;
        let lock = lock(&path)?;
        check_format(&path)?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the folder's absolute path, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a subfolder, created closed to other users if it is missing.
    ///
    /// # Errors
    /// The reason why it cannot be created.
    pub fn subfolder(&self, name: &str) -> Result<PathBuf, BootError> {
        let path = self.path.join(name);
        let created = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(BootError::io("create the folder", &path))?;
        Ok(path)
    }
}

/// Entries that a folder may have before its first use: from a start that was killed at once, from a cluster
/// with its default folder below, from the file system.
const HARMLESS: [&str; 3] = ["lock", "cluster", "lost+found"];

/// Refuses a folder that something else uses, such as a repository: our files would mix with its own.
fn refuse_foreign(folder: &Path) -> Result<(), BootError> {
    if folder.join("format").exists() {
        return Ok(());
    }
    let read = || BootError::io("read the folder", folder);
    for entry in fs::read_dir(folder).map_err(read())? {
        let name = entry.map_err(read())?.file_name();
        if !HARMLESS.iter().any(|harmless| name == *harmless) {
            let found = name.to_string_lossy().into_owned();
            return Err(BootError::ForeignDataDir { path: folder.to_owned(), found });
        }
    }
    Ok(())
}

fn lock(folder: &Path) -> Result<File, BootError> {
    let path = folder.join("lock");
    let options = OpenOptions::new().read(true).write(true).create(true).mode(0o600).clone();
    let mut file = options.open(&path).map_err(BootError::io("write", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            file.read_to_string(&mut owner).map_err(BootError::io("read", &path))?;
            let owner = match owner.trim() {
                "" => "(not known)".to_owned(), // between its lock and its note of the process id
                pid => pid.to_owned(),
            };
            return Err(BootError::DataDirInUse { path: folder.to_owned(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(BootError::io("lock", &path)(error)),
    }
    let noted = file.set_len(0).and_then(|()| file.rewind());
    let noted = noted.and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(BootError::io("write", &path))?;
    Ok(file)
}

fn check_format(folder: &Path) -> Result<(), BootError> {
    let path = folder.join("format");
    if !path.exists() {
        return fs::write(&path, format!("{FORMAT}\n")).map_err(BootError::io("write", &path));
    }
    let text = fs::read_to_string(&path).map_err(BootError::io("read", &path))?;
    // An empty file belongs to a writer that was killed or had no space; it can only be ours.
    match text.trim().parse::<u32>() {
        Ok(found) if found > FORMAT => {
            Err(BootError::NewerDataDir { path: folder.to_owned(), found, known: FORMAT })
        }
        Ok(_) => Ok(()),
        Err(_) => fs::write(&path, format!("{FORMAT}\n")).map_err(BootError::io("write", &path)),
    }
}

/// Returns the default data folder: `/var/lib/opencode-cloud` for root (Postgres runs as another user, who
/// cannot enter root's home), otherwise below `XDG_DATA_HOME` or `~/.local/share`, or in the current folder.
#[must_use]
pub fn default_data_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/opencode-cloud");
    }
    let data_home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = std::env::home_dir().map(|home| home.join(".local/share"));
    let parent = data_home.filter(|path| path.is_absolute()).or(home);
    parent.map_or_else(|| "opencode-cloud-data".into(), |parent| parent.join("opencode-cloud"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_holds_a_folder_and_its_name_is_told_to_the_next() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        let held = DataDir::open(&path).unwrap();
        let refused = DataDir::open(&path).unwrap_err().to_string();
        let owner = format!("is in use by process {};", std::process::id());
        assert!(refused.contains(&owner), "{refused}");
        drop(held);
        assert!(DataDir::open(&path).is_ok());
    }

    // Finding trial 12: a repository was accepted, and the cause of a refusal was dropped.
    #[test]
    fn a_folder_that_cannot_be_ours_is_refused_with_the_cause() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("main.rs"), "").unwrap();
        let refused = DataDir::open(temp.path()).unwrap_err().to_string();
        assert!(refused.contains("it holds main.rs; choose an empty or a new folder"), "{refused}");
        assert!(!temp.path().join("lock").exists(), "nothing was written there");
        let refused = DataDir::open(&temp.path().join("main.rs")).unwrap_err().to_string();
        assert!(refused.contains("main.rs: "), "{refused}");
        assert!(refused.contains("--data-dir") && !refused.contains("os error"), "{refused}");
    }

    #[test]
    fn a_folder_of_a_newer_release_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        drop(DataDir::open(temp.path()).unwrap());
        fs::write(temp.path().join("format"), "2\n").unwrap();
        let refused = DataDir::open(temp.path()).unwrap_err();
        assert!(matches!(refused, BootError::NewerDataDir { found: 2, known: 1, .. }));
        fs::write(temp.path().join("format"), "").unwrap();
        drop(DataDir::open(temp.path()).unwrap());
        assert_eq!(fs::read_to_string(temp.path().join("format")).unwrap(), "1\n");
    }
}
