//! The directory of a managed Location on a disk: one that workers share, or one for each token.
//!
//! ```text
//! shared   <workspaces>/<org>/<location>
//! own      <workspaces>/<org>/<location>.<token>
//! beside   ….restoring   its files are incomplete
//! ….anew        the token and the tree of its last restore, kept as long as the files are
//! ```

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use domain::{FencingToken, LocationId, SnapshotTree};

/// Whether workers that may take over from each other see the same workspaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WorkspaceDisk {
    /// They do: each Location has one directory.
    #[default]
    Shared,
    /// Each worker has its own: a takeover restores a Location's files from its newest Workspace Snapshot.
    Own,
}

/// A Location's directory on this worker's own disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    /// Whether it is as its last holder, this worker, left it. Otherwise restore the newest snapshot into it, then
    /// call [`whole`].
    pub(crate) whole: bool,
    /// The earlier restore of a whole directory. A session that nobody has worked on since does not know of it.
    pub(crate) anew: Option<Anew>,
}

/// A restore of files, which loses changes that no snapshot had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Anew {
    /// The token under which it happened.
    pub(crate) token: FencingToken,
    /// The restored tree; `None` if there was no snapshot.
    pub(crate) tree: Option<SnapshotTree>,
}

impl Directory {
    /// Returns a directory that is as it was left, unless its note is damaged: then nobody knows what its sessions
    /// must be told, and it is restored again.
    fn left(root: PathBuf) -> io::Result<Self> {
        let found = read_anew(&root)?;
        Ok(match found {
            Found::Nothing => Self { root, whole: true, anew: None },
            Found::Anew(anew) => Self { root, whole: true, anew: Some(anew) },
            Found::Damaged => Self { root, whole: false, anew: None },
        })
    }

    fn unfilled(root: PathBuf) -> Self {
        Self { root, whole: false, anew: None }
    }
}

/// Returns a builder of directories that are closed to other users, whatever the umask is.
fn private() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Finds or creates the directory of a token. This worker's earlier directory of the Location becomes it. `last` is
/// the token that acted there before, if no snapshot is newer. Blocking.
pub(crate) fn own(
    folder: &Path,
    location: &LocationId,
    token: FencingToken,
    last: Option<FencingToken>,
) -> io::Result<Directory> {
    private().recursive(true).create(folder)?;
    let root = folder.join(format!("{location}.{}", token.0));
    let earlier = earlier(folder, location, token)?;
    let is_whole = |root: &Path| root.is_dir() && !restoring(root).exists();
    if is_whole(&root) {
        return Directory::left(root);
    }
    if !root.is_dir() {
        let whole = earlier.iter().find(|(held, path)| Some(*held) == last && is_whole(path));
        if let Some((_, path)) = whole {
            // Copied first: a directory without the note would count as never restored.
            match std::fs::copy(anew(path), anew(&root)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _copied => {}
            }
            std::fs::rename(path, &root)?;
            remove(&anew(path))?;
            return Directory::left(root);
        }
        std::fs::write(restoring(&root), "")?;
        match earlier.iter().rfind(|(_, path)| path.is_dir()) {
            Some((_, path)) => std::fs::rename(path, &root)?,
            None => private().create(&root)?,
        }
    }
    for (_, path) in &earlier {
        // Its notes stay with it: without them it would count as whole.
        if let Err(error) = sandbox::remove_tree(path) {
            tracing::warn!(%error, "an earlier directory of a Location cannot be removed");
            continue;
        }
        remove(&restoring(path))?;
        remove(&anew(path))?;
    }
    Ok(Directory::unfilled(root))
}

/// Finds or creates the directory that workers share. It is whole unless its first holder, which had to fill it, did
/// not finish. `first`: nobody has held the Location before. `seeded`: it begins with another one's files. Returns
/// `None` if it is on another disk. Blocking.
pub(crate) fn shared(
    folder: &Path,
    location: &LocationId,
    first: bool,
    seeded: bool,
) -> io::Result<Option<Directory>> {
    shared_with(folder, location, first, seeded, sync_directory)
}

/// Makes a directory's names durable.
fn sync_directory(directory: &Path) -> io::Result<()> {
    std::fs::File::open(directory)?.sync_all()
}

fn shared_with(
    folder: &Path,
    location: &LocationId,
    first: bool,
    seeded: bool,
    mut sync: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<Option<Directory>> {
    let root = folder.join(location.as_str());
    if root.is_dir() {
        let filled = !restoring(&root).exists();
        return Ok(Some(if filled { Directory::left(root)? } else { Directory::unfilled(root) }));
    }
    // The first holder creates the directory before it raises the fence. So a later holder that does not see it knows
    // that it is on another disk.
    if !first {
        return Ok(None);
    }
    private().recursive(true).create(folder)?;
    if seeded {
        std::fs::write(restoring(&root), "")?;
    }
    private().create(&root)?;
    // The fence, which implies the directory, is durable at once. A loss of power between the two must not keep the
    // fence without the directory.
    for directory in [Some(folder), folder.parent()].into_iter().flatten() {
        sync(directory)?;
    }
    Ok(Some(Directory { root, whole: !seeded, anew: None }))
}

/// Marks the directory's files as whole. `made` describes the restore if that may have lost changes. Blocking.
pub(crate) fn whole(root: &Path, made: Option<&Anew>) -> io::Result<()> {
    match made {
        Some(Anew { token, tree }) => {
            let tree = tree.as_ref().map_or(NO_TREE, SnapshotTree::as_str);
            std::fs::write(anew(root), format!("{} {tree}\n", token.0))?;
        }
        None => remove(&anew(root))?,
    }
    remove(&restoring(root))
}

/// Stands for "no snapshot" in the note.
const NO_TREE: &str = "-";

enum Found {
    Nothing,
    Anew(Anew),
    Damaged,
}

fn read_anew(root: &Path) -> io::Result<Found> {
    let text = match std::fs::read(anew(root)) {
        Ok(bytes) => String::from_utf8(bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    Ok(parse(&text).map_or(Found::Damaged, Found::Anew))
}

fn parse(text: &str) -> Option<Anew> {
    let (token, tree) = text.strip_suffix('\n')?.split_once(' ')?;
    let tree = match tree {
        NO_TREE => None,
        tree => Some(SnapshotTree::try_from(tree.to_owned()).ok()?),
    };
    Some(Anew { token: FencingToken(token.parse().ok()?), tree })
}

const RESTORING: &str = ".restoring";
const ANEW: &str = ".anew";

fn restoring(root: &Path) -> PathBuf {
    beside(root, RESTORING)
}

fn anew(root: &Path) -> PathBuf {
    beside(root, ANEW)
}

fn beside(root: &Path, suffix: &str) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _done => Ok(()),
    }
}

/// Returns this worker's directories of the Location under earlier tokens, oldest first, also those of which only the
/// notes are left.
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
        let rest = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let held = rest.map(|rest| {
            rest.strip_suffix(RESTORING).or_else(|| rest.strip_suffix(ANEW)).unwrap_or(rest)
        });
        if let Some(held) = held.and_then(|held| held.parse().ok()).map(FencingToken)
            && held < token
        {
            found.push((held, folder.join(format!("{prefix}{}", held.0))));
        }
    }
    found.sort_unstable();
    found.dedup();
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
            Self { folder: testkit::memory_folder().expect("a folder"), location }
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

    /// Restores a directory's files under `token`, from no snapshot.
    fn remake(root: &Path, token: i64) -> Option<Anew> {
        let made = Some(Anew { token: FencingToken(token), tree: None });
        whole(root, made.as_ref()).expect("whole");
        made
    }

    #[test]
    fn what_this_worker_left_last_is_whole_and_anything_else_is_to_be_restored() {
        let disk = Disk::new();
        let first = disk.own(1, 0);
        assert!(!first.whole, "an empty directory, until a snapshot says so");
        whole(&first.root, None).expect("whole");
        std::fs::write(first.root.join("a"), "a").expect("a file");
        let again = disk.own(1, 1);
        assert!(again.whole, "the same token again");
        let next = disk.own(5, 1);
        assert!(next.whole && next.root.join("a").exists(), "nobody else was there");
        assert_eq!((next.anew, disk.names()), (None, vec![".5".to_owned()]));
        let back = disk.own(9, 7);
        assert!(!back.whole && back.root.join("a").exists(), "somebody else was there");
        assert_eq!(disk.names(), [".9", ".9.restoring"]);
        let died = disk.own(9, 9);
        assert!(!died.whole, "it died while it restored");
        let later = disk.own(12, 9);
        assert!(!later.whole, "and was not whole when it was left");
        assert_eq!(disk.names(), [".12", ".12.restoring"]);
        whole(&later.root, None).expect("whole");
        assert_eq!(disk.names(), [".12"]);
    }

    /// Finding security-3 C2.
    #[test]
    fn an_earlier_directory_goes_however_deep_it_is() {
        let disk = Disk::new();
        let earlier = disk.own(1, 0);
        whole(&earlier.root, None).expect("whole");
        let kept = disk.folder.path().join(format!("{}.2", disk.location));
        std::fs::rename(&earlier.root, &kept).expect("moved");
        std::fs::create_dir(&earlier.root).expect("a folder");
        testkit::dig(&earlier.root, 18_000).expect("dug");
        disk.own(3, 0);
        assert_eq!(disk.names(), [".3", ".3.restoring"]);
    }

    // Finding store 22: after a loss of power the fence existed and the directory did not, for good.
    #[test]
    fn a_shared_directory_is_durable_before_its_fence() {
        let disk = Disk::new();
        let folder = disk.folder.path().join("org");
        let mut synced = Vec::new();
        let made = shared_with(&folder, &disk.location, true, true, |directory| {
            let root = folder.join(disk.location.as_str());
            assert!(root.is_dir() && restoring(&root).exists(), "after all that is made");
            synced.push(directory.to_path_buf());
            Ok(())
        });
        assert!(!made.expect("made").expect("here").whole);
        assert_eq!(synced, [folder.clone(), disk.folder.path().to_path_buf()]);
        let failed = |_: &Path| Err(io::Error::other("no disk"));
        let other = LocationId::mint(&mut IdMint::after(Stamp::default(), 9));
        shared_with(&folder, &other, true, false, failed).expect_err("no fence is raised");
    }

    #[test]
    fn how_files_were_made_anew_is_known_as_long_as_they_are_there() {
        let disk = Disk::new();
        let made = remake(&disk.own(3, 1).root, 3);
        assert_eq!(disk.own(3, 3).anew, made, "the worker has started again");
        let next = disk.own(7, 3);
        assert_eq!((next.whole, &next.anew), (true, &made), "nobody else was there");
        assert_eq!(disk.names(), [".7", ".7.anew"]);
        assert_eq!(disk.own(8, 7).anew, made);
        let tree = SnapshotTree::try_from("ab".repeat(32)).expect("a tree");
        let other = Some(Anew { token: FencingToken(15), tree: Some(tree) });
        let back = disk.own(15, 12);
        assert_eq!((back.whole, &back.anew), (false, &None), "somebody else was there");
        assert_eq!(disk.names(), [".15", ".15.restoring"]);
        whole(&back.root, other.as_ref()).expect("whole");
        assert_eq!(disk.own(20, 15).anew, other);
    }

    #[test]
    fn a_death_between_two_tokens_forgets_nothing() {
        let disk = Disk::new();
        let first = disk.own(3, 1);
        remake(&first.root, 3);
        // The worker died before the directory was renamed.
        let next = first.root.with_extension("7");
        std::fs::copy(anew(&first.root), anew(&next)).expect("a copy");
        let later = disk.own(9, 7);
        assert!(!later.whole, "what was left is not of the last token");
        assert_eq!(disk.names(), [".9", ".9.restoring"], "and leaves nothing");
        // The worker died after it.
        remake(&later.root, 9);
        let next = later.root.with_extension("11");
        std::fs::copy(anew(&later.root), anew(&next)).expect("a copy");
        std::fs::rename(&later.root, &next).expect("renamed");
        let found = disk.own(13, 11);
        let token = found.anew.map(|anew| anew.token);
        assert_eq!((found.whole, token), (true, Some(FencingToken(9))));
    }

    #[test]
    fn a_directory_that_does_not_say_how_it_was_made_is_made_anew() {
        for text in ["", "3", "3 -", "x -\n", "3 ab\n"] {
            let disk = Disk::new();
            let first = disk.own(3, 1);
            remake(&first.root, 3);
            std::fs::write(anew(&first.root), text).expect("a file");
            assert!(!disk.own(3, 3).whole, "{text:?}");
            assert!(!disk.own(7, 3).whole, "{text:?}");
        }
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
        whole(&made.root, None).expect("whole");
        assert!(shared(false, true).expect("found").whole);
    }
}
