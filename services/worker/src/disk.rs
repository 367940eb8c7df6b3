//! Where a managed Location's files are on a disk: one directory that workers share, or one for each token.
//!
//! ```text
//! shared   <workspaces>/<org>/<location>
//! own      <workspaces>/<org>/<location>.<token>      .restoring beside it: its files are not whole yet
//! ```

use std::io;
use std::path::{Path, PathBuf};

use domain::{FencingToken, LocationId};

/// Whether workers that may take over from each other see the same workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceDisk {
    /// They do: one directory for each Location.
    #[default]
    Shared,
    /// Each has its own: a Location's files are made anew from its newest Workspace Snapshot where it goes.
    Own,
}

/// A Location's directory on this worker's own disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    /// It is as its last holder, this worker, has left it. Otherwise it is to be made the newest snapshot, then
    /// [`whole`] is to be said.
    pub(crate) whole: bool,
}

/// Finds or makes the directory of a token. What this worker had of the Location before becomes it. `last`: the token
/// that acted there before, if no snapshot is newer. Blocking.
pub(crate) fn own(
    folder: &Path,
    location: &LocationId,
    token: FencingToken,
    last: Option<FencingToken>,
) -> io::Result<Directory> {
    std::fs::create_dir_all(folder)?;
    let root = folder.join(format!("{location}.{}", token.0));
    let earlier = earlier(folder, location, token)?;
    let is_whole = |root: &Path| root.is_dir() && !marker(root).exists();
    if is_whole(&root) {
        return Ok(Directory { root, whole: true });
    }
    if !root.is_dir() {
        let whole = earlier.iter().find(|(held, path)| Some(*held) == last && is_whole(path));
        if let Some((_, path)) = whole {
            std::fs::rename(path, &root)?;
            return Ok(Directory { root, whole: true });
        }
        std::fs::write(marker(&root), "")?;
        match earlier.last() {
            Some((_, path)) => {
                std::fs::rename(path, &root)?;
                remove_marker(path)?;
            }
            None => std::fs::create_dir(&root)?,
        }
    }
    for (_, path) in earlier.iter().filter(|(_, path)| path.is_dir()) {
        std::fs::remove_dir_all(path)?;
        remove_marker(path)?;
    }
    Ok(Directory { root, whole: false })
}

/// Finds or makes the directory that workers share. It is whole unless its first holder, which was to fill it, has not.
/// `first`: nobody has held the Location before. `seeded`: it begins with files of another one. `None`: it is on
/// another disk. Blocking.
pub(crate) fn shared(
    folder: &Path,
    location: &LocationId,
    first: bool,
    seeded: bool,
) -> io::Result<Option<Directory>> {
    let root = folder.join(location.as_str());
    if root.is_dir() {
        let whole = !marker(&root).exists();
        return Ok(Some(Directory { root, whole }));
    }
    // The first holder makes the directory before it raises the fence, so that a later one that does not see it
    // knows that it is on another disk.
    if !first {
        return Ok(None);
    }
    std::fs::create_dir_all(folder)?;
    if seeded {
        std::fs::write(marker(&root), "")?;
    }
    std::fs::create_dir(&root)?;
    Ok(Some(Directory { root, whole: !seeded }))
}

/// The directory's files are what they are to be. Blocking.
pub(crate) fn whole(root: &Path) -> io::Result<()> {
    remove_marker(root)
}

fn marker(root: &Path) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(".restoring");
    name.into()
}

fn remove_marker(root: &Path) -> io::Result<()> {
    match std::fs::remove_file(marker(root)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _done => Ok(()),
    }
}

/// This worker's directories of the Location under earlier tokens, the oldest first.
fn earlier(
    folder: &Path,
    location: &LocationId,
    token: FencingToken,
) -> io::Result<Vec<(FencingToken, PathBuf)>> {
    let prefix = format!("{location}.");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let held = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
        if let Some(held) = held.map(FencingToken)
            && held < token
            && entry.file_type()?.is_dir()
        {
            found.push((held, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use domain::{IdMint, Stamp};
    use tempfile::TempDir;

    use super::*;

    struct Disk {
        folder: TempDir,
        location: LocationId,
    }

    impl Disk {
        fn new() -> Self {
            let location = LocationId::mint(&mut IdMint::after(Stamp::default(), 1));
            Self { folder: tempfile::tempdir().expect("a folder"), location }
        }

        fn own(&self, token: i64, last: i64) -> Directory {
            let last = Some(FencingToken(last));
            own(self.folder.path(), &self.location, FencingToken(token), last).expect("a directory")
        }

        fn names(&self) -> Vec<String> {
            let entries = std::fs::read_dir(self.folder.path()).expect("the folder");
            let name = |entry: io::Result<std::fs::DirEntry>| {
                entry.expect("an entry").file_name().into_string().expect("a name")
            };
            let mut names: Vec<_> = entries.map(name).collect();
            names.sort_unstable();
            let rest = |name: &String| name[self.location.as_str().len()..].to_owned();
            names.iter().map(rest).collect()
        }
    }

    #[test]
    fn what_this_worker_left_last_is_whole_and_anything_else_is_to_be_restored() {
        let disk = Disk::new();
        let first = disk.own(1, 0);
        assert!(!first.whole, "an empty directory, until a snapshot says so");
        whole(&first.root).expect("whole");
        std::fs::write(first.root.join("a"), "a").expect("a file");
        let again = disk.own(1, 1);
        assert!(again.whole, "the same token again");
        let next = disk.own(5, 1);
        assert!(next.whole && next.root.join("a").exists(), "nobody else was there");
        assert_eq!(disk.names(), [".5"]);
        let back = disk.own(9, 7);
        assert!(!back.whole && back.root.join("a").exists(), "somebody else was there");
        assert_eq!(disk.names(), [".9", ".9.restoring"]);
        let died = disk.own(9, 9);
        assert!(!died.whole, "it died while it restored");
        let later = disk.own(12, 9);
        assert!(!later.whole, "and was not whole when it was left");
        assert_eq!(disk.names(), [".12", ".12.restoring"]);
        whole(&later.root).expect("whole");
        assert_eq!(disk.names(), [".12"]);
    }

    #[test]
    fn a_shared_directory_is_made_by_its_first_holder_alone() {
        let disk = Disk::new();
        let shared = |first, seeded| {
            shared(disk.folder.path(), &disk.location, first, seeded).expect("a look")
        };
        assert_eq!(shared(false, false), None, "it is on another disk");
        let made = shared(true, true).expect("made");
        assert!(!made.whole);
        assert!(!shared(false, true).expect("found").whole, "its first holder died");
        whole(&made.root).expect("whole");
        assert!(shared(false, true).expect("found").whole);
    }
}
