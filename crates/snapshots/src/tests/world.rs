//! A Location in a temporary folder, its blobs, and its rows as the store would have them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use blobs::Blobs;
use domain::{Clock, FencingToken, LocationRef, OrgId, SystemClock, TimestampMs};
use sandbox::HiddenPaths;

use crate::steps::Steps;
use crate::{
    Captured, Restored, Shadow, ShadowOptions, SnapshotError, SnapshotLimits, Touched, TreeId,
    Unsaved,
};

/// The kind and content of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Thing {
    Directory,
    File(Vec<u8>, bool),
    Link(PathBuf),
}

pub(super) type Files = BTreeMap<PathBuf, Thing>;

/// Returns everything below `root`, read without the code under test.
pub(super) fn files(root: &Path) -> Files {
    fn below(root: &Path, at: &Path, all: &mut Files) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            let found = fs::symlink_metadata(&path).unwrap();
            let thing = if found.is_dir() {
                below(root, &path, all);
                Thing::Directory
            } else if found.is_symlink() {
                Thing::Link(fs::read_link(&path).unwrap())
            } else {
                Thing::File(fs::read(&path).unwrap(), found.permissions().mode() & 0o100 != 0)
            };
            all.insert(name, thing);
        }
    }
    let mut all = Files::new();
    below(root, root, &mut all);
    all
}

/// A clock that is an hour ahead, so that no file counts as just changed.
#[derive(Debug)]
pub(super) struct Ahead(pub(super) SystemClock);

impl Clock for Ahead {
    fn now_ms(&self) -> TimestampMs {
        self.0.now_ms() + 3_600_000
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// Makes a folder, in memory if possible: each blob is synced, and no test depends on the disk.
pub(super) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap()
}

pub(super) struct World {
    pub(super) folder: tempfile::TempDir,
    pub(super) options: ShadowOptions,
    pub(super) shadow: Shadow,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut ShadowOptions)) -> Self {
        let folder = folder();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let mut options = ShadowOptions {
            root,
            cache: folder.path().join("cache"),
            blobs: Blobs::in_folder(&folder.path().join("blobs")).unwrap(),
            at: LocationRef { org: OrgId::FIRST, location: "loc_1".parse().unwrap() },
            token: FencingToken(7),
            lock: None,
            packs: Vec::new(),
            seed: Vec::new(),
            git: true,
            hidden: HiddenPaths::default(),
            limits: SnapshotLimits::default(),
            clock: Arc::new(SystemClock::new()),
        };
        change(&mut options);
        let shadow = Shadow::open(options.clone()).await.unwrap();
        Self { folder, options, shadow }
    }

    pub(super) fn root(&self) -> &Path {
        &self.options.root
    }

    pub(super) fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(super) fn link(&self, path: &str, target: &str) {
        symlink(target, self.root().join(path)).unwrap();
    }

    pub(super) fn executable(&self, path: &str, is: bool) {
        let mode = if is { 0o755 } else { 0o644 };
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn files(&self) -> Files {
        files(self.root())
    }

    /// Captures, and commits the row.
    pub(super) async fn capture(&mut self, touched: &Touched) -> Option<Captured> {
        let captured = self.shadow.capture(touched).await.unwrap();
        if let Some(captured) = &captured {
            self.commit(captured).await;
        }
        captured
    }

    pub(super) async fn all(&mut self) -> Captured {
        self.capture(&Touched::Anything).await.expect("something changed")
    }

    pub(super) async fn commit(&mut self, captured: &Captured) {
        self.options.packs.push(captured.pack_ref());
        self.shadow.committed(captured).await;
    }

    /// Returns the committed packs, oldest first.
    pub(super) fn pack_names(&self) -> Vec<String> {
        self.options.packs.iter().filter_map(|row| row.pack.clone()).collect()
    }

    /// Simulates a restarted worker: only rows, blobs and the stat index remain.
    pub(super) async fn reopen(&mut self) {
        self.shadow = Shadow::open(self.options.clone()).await.unwrap();
    }

    /// Simulates a worker that stops after `steps` more steps.
    pub(super) async fn crashing(&mut self, steps: i64) -> Result<(), SnapshotError> {
        let steps = Steps { left: Some(Arc::new(AtomicI64::new(steps))) };
        self.shadow = Shadow::open_with(self.options.clone(), steps).await?;
        Ok(())
    }

    pub(super) async fn restore(&self, tree: &TreeId, paths: Option<&[&str]>) -> Restored {
        let paths: Option<BTreeSet<String>> =
            paths.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
        self.shadow.restore(tree, paths.as_ref(), Unsaved::Keep).await.unwrap()
    }

    /// Returns the files that another worker restores from a tree into an empty directory.
    pub(super) async fn elsewhere(&self, tree: &TreeId) -> Files {
        let other = folder();
        let (root, cache) = (other.path().join("root"), other.path().join("cache"));
        fs::create_dir(&root).unwrap();
        let options = ShadowOptions { root: root.clone(), cache, ..self.options.clone() };
        let shadow = Shadow::open(options).await.unwrap();
        let restored = shadow.restore(tree, None, Unsaved::Overwrite).await.unwrap();
        assert_eq!(restored.left, Vec::<String>::new());
        files(&root)
    }
}
