//! One Location's snapshots on the worker that holds it: capture, restore, diff.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blobs::Blobs;
use bytes::Bytes;
use domain::{Clock, FencingToken, LocationRef};
use sandbox::{HiddenPaths, LocationLock, lock};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tracing::warn;

use crate::captured::{Captured, PackRef};
use crate::change::{FileChanges, show};
use crate::compare::{Change, compare};
use crate::contents;
use crate::directory::{Dir, Node, Vouch};
use crate::error::SnapshotError;
use crate::index;
use crate::keep_in_pack::KeepInPack;
use crate::large::{self, LargeFiles};
use crate::limits::{LARGE_FILES, SnapshotLimits};
use crate::object::{Kind, ObjectId, TreeId};
use crate::objects::Objects;
use crate::pack::{Pack, PackWriter};
use crate::place;
use crate::restore::{Apply, Progress, Restored, Unsaved, select};
use crate::scan::{Keep, KeepNothing, LeftOut, Scan, Skipped};
use crate::steps::Steps;
use crate::touched::Touched;

/// The most times that a file is read again because it changes while it is packed.
const ROUNDS: usize = 4;
/// The number of files read by a scan above which the stat index is saved.
const SAVE_AFTER: usize = 256;

/// The parts of a Location's snapshots.
#[derive(Clone)]
pub struct ShadowOptions {
    /// The Location's directory on this worker.
    pub root: PathBuf,
    /// A folder outside the Location, for the stat index and growing packs. Created if missing.
    pub cache: PathBuf,
    /// The storage of packs.
    pub blobs: Blobs,
    /// The Location.
    pub at: LocationRef,
    /// The token under which this worker holds it.
    pub token: FencingToken,
    /// The lock, checked before each file is restored.
    pub lock: Option<LocationLock>,
    /// All committed rows of the Location, in any order.
    pub packs: Vec<PackRef>,
    /// The committed packs of the Locations that its files came from, after a Fork or Move, oldest first. Their content is
    /// not packed again.
    pub seed: Vec<String>,
    /// Includes `.git`. For managed Locations, whose directory a takeover must rebuild.
    pub git: bool,
    /// Paths that are in no snapshot.
    pub hidden: HiddenPaths,
    /// Bounds.
    pub limits: SnapshotLimits,
    /// The clock, for the age of files' times.
    pub clock: Arc<dyn Clock>,
}

/// One Location's snapshots. Cheap to clone. Runs one operation at a time; others wait.
#[derive(Clone)]
pub struct Shadow {
    held: Arc<Held>,
    state: Arc<Mutex<State>>,
}

struct Held {
    options: ShadowOptions,
    objects: Objects,
    steps: Steps,
}

/// The known state of the files.
struct State {
    dir: Dir,
    /// `dir` was compared with all files since the Shadow was opened, and every change since was reported.
    seen: bool,
    /// Changes that the next Capture must look at.
    owed: Touched,
    /// The last captured tree.
    tree: Option<TreeId>,
    /// The newest tree with a committed row, and its number.
    committed: Option<(TreeId, i64)>,
    ordinal: i64,
    /// The left-out files that committed Captures have reported.
    told: HashMap<String, Option<Vouch>>,
    /// The left-out files of Captures that are not committed yet, by number.
    telling: Vec<(i64, Vec<LeftOut>)>,
    /// The files outside of `.git` that are too large.
    large: LargeFiles,
    /// The pack since the last committed Capture. A Capture that nobody waited for, that could not be stored or that got
    /// no row leaves it to the next one, which reads and compresses nothing of it again.
    packed: Option<PackWriter>,
    /// The number of files read.
    #[cfg(test)]
    read: usize,
}

type Guard = OwnedMutexGuard<State>;

/// The result of a scan.
struct Found {
    tree: TreeId,
    pack: Option<Pack>,
    /// The id of the tree's contents list in the pack, if it has one.
    contents: Option<ObjectId>,
    /// Left-out files that were not reported before.
    left_out: Vec<LeftOut>,
}

impl Shadow {
    /// Reads the places of objects, and this worker's stat index if it has one. Does not read the Location's
    /// files.
    pub async fn open(options: ShadowOptions) -> Result<Self, SnapshotError> {
        Self::open_with(options, Steps::default()).await
    }

    pub(crate) async fn open_with(
        options: ShadowOptions,
        steps: Steps,
    ) -> Result<Self, SnapshotError> {
        let (cache, saved) = (options.cache.clone(), index_path(&options));
        let dir = blocking(move || {
            let failed = SnapshotError::io("make", &cache);
            std::fs::create_dir_all(&cache).map_err(failed)?;
            Ok(index::load(&saved))
        });
        let dir = dir.await?;
        let newest = options.packs.iter().max_by_key(|pack| (pack.token, pack.ordinal));
        let ours = options.packs.iter().filter(|pack| pack.token == options.token);
        let ordinal = ours.map(|pack| pack.ordinal).max().unwrap_or(0);
        let state = State {
            dir,
            seen: false,
            owed: Touched::Nothing,
            tree: newest.map(|pack| pack.tree),
            committed: newest.map(|pack| (pack.tree, 0)),
            ordinal,
            told: HashMap::new(),
            telling: Vec::new(),
            large: LargeFiles::default(),
            packed: None,
            #[cfg(test)]
            read: 0,
        };
        let own = oldest_first(&options.packs);
        let begins = own.is_empty();
        let names = options.seed.iter().cloned().chain(own).collect();
        let org = options.at.org.to_string();
        let objects = Objects::open(options.blobs.clone(), org, names).await?;
        if begins {
            objects.list_soon();
        }
        let held = Arc::new(Held { options, objects, steps });
        Ok(Self { held, state: Arc::new(Mutex::new(state)) })
    }

    /// Returns the last captured tree; `None` before the first.
    pub async fn tree(&self) -> Option<TreeId> {
        self.state.lock().await.tree
    }

    /// Captures the files that calls may have touched, and those that failed Captures still owe. When it
    /// returns, the pack is durable. `None` if the files equal the newest committed tree.
    ///
    /// `Nothing` costs nothing. `Paths` scans only those; anything else, and the first Capture, reads the
    /// stat of all files. Write the result as a row, then call [`Shadow::committed`] or
    /// [`Shadow::abandoned`]. After an error or a dropped future, the next Capture covers this one's files
    /// again. What a dropped one was reading is read to the end meanwhile, so a Capture that takes longer than
    /// anybody waits comes to its end in several ones.
    pub async fn capture(&self, touched: &Touched) -> Result<Option<Captured>, SnapshotError> {
        let mut state = self.state.clone().lock_owned().await;
        state.owed = std::mem::take(&mut state.owed).and(touched.clone());
        if state.owed == Touched::Nothing {
            return Ok(None);
        }
        let held = self.held.clone();
        let is_first = !state.seen;
        let (mut state, found) = blocking(move || held.find(state)).await?;
        let Found { tree, pack, contents, left_out } = found;
        let recorded = state.committed.map(|(tree, _)| tree) == Some(tree);
        if recorded && state.tree == Some(tree) && (is_first || left_out.is_empty()) {
            // On the first scan: the process that captured the recorded tree has reported its left-out files.
            state.told(left_out);
            state.owed = Touched::Nothing;
            state.packed = None;
            return Ok(None);
        }
        // A number is used only once, so that no pack ever replaces another.
        state.ordinal += 1;
        let (ordinal, token) = (state.ordinal, self.held.options.token);
        let bytes = pack.as_ref().map_or(0, |pack| pack.bytes);
        let name = match pack {
            None => None,
            Some(pack) => {
                let name = self.held.pack_name(ordinal, &pack);
                let name = contents.map_or(name.clone(), |id| contents::name_with(&name, id));
                self.held.steps.pass()?;
                self.held.objects.store(&name, pack).await?;
                self.held.steps.pass()?;
                Some(name)
            }
        };
        let parent = state.tree;
        let changes = match parent {
            None => FileChanges::default(),
            Some(parent) => self.held.changes(parent, tree).await?,
        };
        self.held.steps.pass()?;
        state.tree = Some(tree);
        state.owed = Touched::Nothing;
        let skipped = Skipped::of(&left_out);
        state.telling.push((ordinal, left_out));
        let captured =
            Captured { token, ordinal, tree, parent, pack: name, bytes, changes, skipped };
        Ok(Some(captured))
    }

    /// Records that the row of `captured` is committed. From now on its objects are not packed again.
    pub async fn committed(&self, captured: &Captured) {
        let mut state = self.state.lock().await;
        if let Some(name) = &captured.pack {
            self.held.objects.committed(name);
        }
        let newer = state.committed.is_none_or(|(_, ordinal)| ordinal < captured.ordinal);
        if newer {
            state.committed = Some((captured.tree, captured.ordinal));
        }
        if captured.ordinal >= state.ordinal {
            state.packed = None;
        }
        let told = state.take_telling(captured.ordinal);
        state.told(told);
    }

    /// Records that the row of `captured` will not be written. The next Capture reports its changes again.
    pub async fn abandoned(&self, captured: &Captured) {
        let mut state = self.state.lock().await;
        state.take_telling(captured.ordinal);
        if state.tree == Some(captured.tree) {
            state.tree = captured.parent;
            state.owed = Touched::Anything;
        }
    }

    /// Makes the files equal to `tree`: all tracked ones, or those at `paths` and beneath (never `.git`).
    ///
    /// Each file is replaced in one step. After a crash some files are restored and others not; repeating the
    /// restore does the rest. Ignored files stay. The next Capture covers the restored files. Fails with
    /// [`SnapshotError::Superseded`] if the Location has a newer owner.
    pub async fn restore(
        &self,
        tree: &TreeId,
        paths: Option<&BTreeSet<String>>,
        unsaved: Unsaved,
    ) -> Result<Restored, SnapshotError> {
        let (done, left) = self.restore_unlisted(tree, paths, unsaved).await?;
        let FileChanges { files, more, .. } = self.held.shown(done).await?;
        let left = left.iter().map(|path| crate::change::shown(path)).collect();
        Ok(Restored { files, more, left })
    }

    /// Like [`restore`](Self::restore) of everything, whatever is lost. Lists no change: that would read each file once more.
    ///
    /// # Errors
    /// As there.
    pub async fn restore_all(&self, tree: &TreeId) -> Result<(), SnapshotError> {
        self.restore_unlisted(tree, None, Unsaved::Overwrite).await?;
        Ok(())
    }

    /// Makes the files equal to `tree`. Returns the changes that were made, and the paths that differ from the tree.
    async fn restore_unlisted(
        &self,
        tree: &TreeId,
        paths: Option<&BTreeSet<String>>,
        unsaved: Unsaved,
    ) -> Result<(Vec<Change>, BTreeSet<PathBuf>), SnapshotError> {
        let mut state = self.state.clone().lock_owned().await;
        let owed = paths.map_or(Touched::Anything, |paths| Touched::Paths(paths.clone()));
        state.owed = std::mem::take(&mut state.owed).and(owed);
        let held = self.held.clone();
        let (mut state, root, known) = blocking(move || {
            if let Some(lock) = &held.options.lock {
                lock::prove(lock)?;
            }
            let touched = if state.seen { state.owed.clone() } else { Touched::Anything };
            held.look(&mut state, &touched, &mut KeepNothing)?;
            let root = state.dir.seal();
            let known = state.dir.all_entries();
            Ok((state, root, known))
        })
        .await?;
        let changes = compare(&self.held.objects, &known, Some(root), Some(tree.0)).await?;
        drop(known);
        let changes: Arc<[Change]> = select(changes, paths).into();
        let mut progress = Progress::default();
        let (held, todo) = (self.held.clone(), changes.clone());
        (state, progress) =
            blocking(move || held.apply(state, progress, unsaved, |apply| apply.clear(&todo)))
                .await?;
        let mut wanted: HashMap<ObjectId, Vec<usize>> = HashMap::new();
        for (at, change) in changes.iter().enumerate() {
            if let Some(to) = change.to.filter(|to| to.kind != Kind::Directory) {
                wanted.entry(to.id).or_default().push(at);
            }
        }
        let objects = &self.held.objects;
        let mut runs = objects.runs(wanted.keys().copied().collect()).await?;
        let mut read = objects.read_next(&mut runs).await?;
        while let Some(contents) = read {
            let contents: HashMap<ObjectId, Bytes> = contents.into_iter().collect();
            let mut here: Vec<usize> =
                contents.keys().filter_map(|id| wanted.remove(id)).flatten().collect();
            here.sort_unstable();
            let (held, all) = (self.held.clone(), changes.clone());
            let applied = blocking(move || {
                held.apply(state, progress, unsaved, |apply| {
                    let here: Vec<&Change> = here.into_iter().map(|at| &all[at]).collect();
                    apply.fill(&here, &contents)
                })
            });
            // The next contents are read while these are written, and whatever comes of that, these are written to the end.
            let (applied, next) = tokio::join!(applied, objects.read_next(&mut runs));
            (state, progress) = applied?;
            read = next?;
        }
        drop(state);
        let left = progress.left;
        let done = changes.iter().filter(|change| !left.contains(&change.path)).cloned().collect();
        Ok((done, left))
    }

    /// Returns the differences between two trees of the Location: all of them, or those at `paths` and
    /// beneath.
    pub async fn diff(
        &self,
        from: &TreeId,
        to: &TreeId,
        paths: Option<&BTreeSet<String>>,
    ) -> Result<FileChanges, SnapshotError> {
        let known = HashMap::new();
        let changes = compare(&self.held.objects, &known, Some(from.0), Some(to.0)).await?;
        show(&self.held.objects, select(changes, paths), &self.held.options.limits).await
    }

    /// Returns the number of committed packs whose indexes are not read.
    #[cfg(test)]
    pub(crate) async fn unread(&self) -> usize {
        self.held.objects.unread().await
    }

    /// Returns the number of files read.
    #[cfg(test)]
    pub(crate) async fn read(&self) -> usize {
        self.state.lock().await.read
    }

    /// Saves the stat index for this worker's next scan after a restart. Call it when the Location is
    /// released.
    pub async fn save(&self) -> Result<(), SnapshotError> {
        let state = self.state.clone().lock_owned().await;
        let held = self.held.clone();
        blocking(move || index::save(&state.dir, &index_path(&held.options), &held.steps)).await
    }
}

impl Held {
    fn now_ns(&self) -> i64 {
        self.options.clock.now_ms().saturating_mul(1_000_000)
    }

    fn pack_name(&self, ordinal: i64, pack: &Pack) -> String {
        let hash = hex::encode(&pack.hash[..8]);
        format!("{}-{}-{ordinal}-{hash}", self.options.at.location, self.options.token)
    }

    /// Scans the owed files, and packs objects that no committed pack has.
    fn find(&self, mut state: Guard) -> Result<(Guard, Found), SnapshotError> {
        let limit = self.options.limits.capture_bytes;
        // After an error it is given up: it may be what was too large.
        let mut pack = match state.packed.take() {
            Some(pack) => pack,
            None => PackWriter::new(&self.options.cache, limit)?,
        };
        let touched =
            if state.seen && state.tree.is_some() { state.owed.clone() } else { Touched::Anything };
        let mut keep = KeepInPack { objects: &self.objects, pack: &mut pack };
        let mut left_out = self.look(&mut state, &touched, &mut keep)?;
        self.list_large(&mut state, &mut keep)?;
        left_out.retain(|left| state.told.get(&left.path) != Some(&left.vouch));
        for _ in 0..ROUNDS {
            let root = state.dir.seal();
            // Read files again that the index proves unchanged but whose content is in no committed pack.
            let mut missing = Vec::new();
            self.collect(&state.dir, &mut PathBuf::new(), &mut pack, &mut missing)?;
            if missing.is_empty() {
                if self.objects.is_kept(root) {
                    let found = Found { tree: TreeId(root), pack: None, contents: None, left_out };
                    return Ok((state, found));
                }
                let mut contents = None;
                if self.objects.wants_contents() {
                    let bytes = self.objects.contents(state.dir.ids()).bytes();
                    let id = ObjectId::of(&bytes);
                    pack.add(id, &bytes)?;
                    contents = Some(id);
                }
                let finished = pack.finish()?;
                state.packed = Some(pack);
                let found = Found { tree: TreeId(root), pack: finished, contents, left_out };
                return Ok((state, found));
            }
            let mut keep = KeepInPack { objects: &self.objects, pack: &mut pack };
            self.look_again(&mut state, &missing, &mut keep)?;
            self.list_large(&mut state, &mut keep)?;
        }
        Err(SnapshotError::Changing { path: self.options.root.clone() })
    }

    fn look(
        &self,
        state: &mut State,
        touched: &Touched,
        keep: &mut dyn Keep,
    ) -> Result<Vec<LeftOut>, SnapshotError> {
        let Self { options, .. } = self;
        let root = place::open_root(&options.root)?;
        let mut scan = Scan::new(&options.limits, options.git, self.now_ns(), keep);
        scan.hidden = options.hidden.identities();
        let was_seen = std::mem::replace(&mut state.seen, false);
        match touched {
            Touched::Nothing => {}
            Touched::Anything => scan.everything(&root, &mut state.dir)?,
            Touched::Paths(paths) => {
                for path in paths {
                    scan.path(&root, &mut state.dir, Path::new(path))?;
                }
            }
        }
        state.seen = was_seen || *touched == Touched::Anything;
        let (read, left_out) = (scan.read, scan.left_out);
        #[cfg(test)]
        {
            state.read += read;
        }
        state.large.note(touched, &left_out);
        if read >= SAVE_AFTER {
            index::save(&state.dir, &index_path(options), &self.steps)?;
        }
        Ok(left_out)
    }

    fn look_again(
        &self,
        state: &mut State,
        paths: &[PathBuf],
        keep: &mut dyn Keep,
    ) -> Result<(), SnapshotError> {
        let root = place::open_root(&self.options.root)?;
        let now_ns = self.now_ns();
        let mut scan = Scan::new(&self.options.limits, self.options.git, now_ns, keep);
        scan.hidden = self.options.hidden.identities();
        for path in paths {
            state.dir.doubt(path);
            scan.path(&root, &mut state.dir, path)?;
        }
        #[cfg(test)]
        {
            state.read += scan.read;
        }
        Ok(())
    }

    /// Puts the list of large files into the tree, which the scan has left without one.
    fn list_large(&self, state: &mut State, keep: &mut dyn Keep) -> Result<(), SnapshotError> {
        let has_git = matches!(state.dir.nodes.get(OsStr::new(".git")), Some(Node::Dir(_)));
        if self.options.limits.lists_large && has_git {
            let bytes = Bytes::from(state.large.bytes());
            let leaf = large::leaf(&bytes);
            keep.keep(leaf.entry.id, bytes)?;
            state.dir.set(Path::new(LARGE_FILES), Some(Node::Leaf(leaf)));
        }
        Ok(())
    }

    /// Adds the trees that no committed pack has, children first, and lists the files that are in none.
    fn collect(
        &self,
        dir: &Dir,
        at: &mut PathBuf,
        pack: &mut PackWriter,
        missing: &mut Vec<PathBuf>,
    ) -> Result<(), SnapshotError> {
        let Some(id) = dir.id else { return Ok(()) };
        if self.objects.is_kept(id) {
            return Ok(()); // everything in it is stored too
        }
        for (name, node) in &dir.nodes {
            at.push(name);
            match node {
                Node::Dir(child) => self.collect(child, at, pack, missing)?,
                Node::Leaf(leaf) => {
                    let id = leaf.entry.id;
                    if !pack.has(id) && !self.objects.is_kept(id) {
                        missing.push(at.clone());
                    }
                }
            }
            at.pop();
        }
        let bytes = Bytes::from(dir.bytes());
        self.objects.remember(id, &bytes);
        pack.add(id, &bytes)
    }

    /// Returns the changes since the previous tree. If a content is lost, the list fails, but not the
    /// snapshot.
    async fn changes(&self, parent: TreeId, tree: TreeId) -> Result<FileChanges, SnapshotError> {
        let known = HashMap::new();
        let listed = async {
            let changes = compare(&self.objects, &known, Some(parent.0), Some(tree.0)).await?;
            show(&self.objects, changes, &self.options.limits).await
        };
        match listed.await {
            Err(error) if error.is_lost() => {
                warn!(location.id = %self.options.at.location, %error, "a snapshot's changes cannot be listed");
                Ok(FileChanges::default())
            }
            listed => listed,
        }
    }

    async fn shown(&self, changes: Vec<Change>) -> Result<FileChanges, SnapshotError> {
        show(&self.objects, changes, &self.options.limits).await
    }

    fn apply(
        &self,
        mut state: Guard,
        progress: Progress,
        unsaved: Unsaved,
        work: impl FnOnce(&mut Apply<'_>) -> Result<(), SnapshotError>,
    ) -> Result<(Guard, Progress), SnapshotError> {
        let root = place::open_root(&self.options.root)?;
        let mut apply = Apply {
            root: &root,
            lock: self.options.lock.as_ref(),
            unsaved,
            is_kept: &|id| self.objects.is_kept(id),
            now_ns: self.now_ns(),
            steps: &self.steps,
            dir: &mut state.dir,
            progress,
        };
        work(&mut apply)?;
        let progress = apply.progress;
        Ok((state, progress))
    }
}

/// Returns the packs of a Location's rows in the order of their Captures.
fn oldest_first(rows: &[PackRef]) -> Vec<String> {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.pack.is_some()).collect();
    rows.sort_by_key(|row| (row.token, row.ordinal));
    rows.into_iter().filter_map(|row| row.pack.clone()).collect()
}

impl State {
    fn told(&mut self, left_out: Vec<LeftOut>) {
        self.told.extend(left_out.into_iter().map(|left| (left.path, left.vouch)));
    }

    /// Takes the report of a Capture that has ended.
    fn take_telling(&mut self, ordinal: i64) -> Vec<LeftOut> {
        let at = self.telling.iter().position(|(telling, _)| *telling == ordinal);
        at.map(|at| self.telling.remove(at).1).unwrap_or_default()
    }
}

fn index_path(options: &ShadowOptions) -> PathBuf {
    options.cache.join(format!("{}-{}.index", options.at.org, options.at.location))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    tokio::task::spawn_blocking(work).await?
}
