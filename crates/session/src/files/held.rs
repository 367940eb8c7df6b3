use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blobs::Blobs;
use domain::{Clock, Feature, FencingToken, LocationRef, SnapshotTree};
use sandbox::{HiddenPaths, LocationLock};
use snapshots::{
    Captured, FileChanges, PackRef, Restored, Shadow, ShadowOptions, SnapshotError, SnapshotLimits,
    Touched, TreeId, Unsaved,
};
use store::{PackRow, Store, StoreError};
use tokio::sync::OnceCell;
use tracing::warn;

use super::capture::{Capture, Looked, Recorded};

/// The most captures in a row that nobody waited for, after which a drain that ends continues one.
const LATE_TRIES: u32 = 4;

/// How often the pause after a failed capture doubles.
const MAX_DOUBLINGS: u32 = 5;

/// The needs of a Location's captures and restores.
#[derive(Clone)]
pub struct FilesOptions {
    /// The Location.
    pub at: LocationRef,
    /// The token under which this worker holds it.
    pub token: FencingToken,
    /// Its directory on this worker.
    pub root: PathBuf,
    /// The lock that proves that it is still ours.
    pub lock: Option<LocationLock>,
    /// Whether its snapshots include `.git`, which a takeover needs. True for the Location's own directory, false for
    /// one that people work in.
    pub git: bool,
    /// Paths that are in no snapshot.
    pub hidden: HiddenPaths,
    /// A folder of this worker for caches. Not in the Location.
    pub cache: PathBuf,
    /// The store of its rows.
    pub store: Store,
    /// The store of its packs.
    pub blobs: Blobs,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The settings of its snapshots.
    pub settings: SnapshotSettings,
}

/// The time limits of Workspace Snapshots, and their bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotSettings {
    /// How long calls that may change files, and a drain's end, wait for a capture.
    pub wait: Duration,
    /// How long a drain that ends then waits for what is left of that capture, while no new input is there: nobody captures
    /// after it. Only where a takeover needs the snapshot.
    pub last_wait: Duration,
    /// How long nothing is captured after a failed capture. It doubles after each further failure, up to 32 times
    /// this. The missing changes are not forgotten.
    pub back_off: Duration,
    /// Bounds.
    pub limits: SnapshotLimits,
}

impl Default for SnapshotSettings {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(30),
            last_wait: Duration::from_mins(3),
            back_off: Duration::from_secs(30),
            limits: SnapshotLimits::default(),
        }
    }
}

/// The reason why a Location's files could not be captured or restored.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The rows could not be read.
    #[error("the rows of the workspace's snapshots cannot be read")]
    Store(#[from] StoreError),
    /// The files or the packs failed.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The Location's files are not captured here.
    #[error("they are not captured by this worker")]
    Off,
    /// A capture failed; the log has the reason.
    #[error("they cannot be captured now")]
    Uncaptured,
    /// A row is damaged. Restore it from a backup.
    #[error("a tree in a row is damaged")]
    Tree,
}

impl FilesError {
    /// Returns whether something that was stored is permanently unavailable. Otherwise a later try may succeed.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Snapshot(error) => error.is_lost(),
            Self::Tree => true,
            Self::Store(_) | Self::Off | Self::Uncaptured => false,
        }
    }
}

/// The numbers of events with a Location's files since this worker holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilesCounts {
    /// Looks at its files.
    pub looks: u64,
    /// Captures that failed.
    pub failed: u64,
    /// Captures that nobody waited for any longer.
    pub overdue: u64,
}

/// A Location's files, for the worker that holds it. All its sessions share one. It looks at no file and reads no row
/// before a call that may change files.
///
/// Cheap to clone. Call [`save`](Files::save) before dropping it, since it forgets what it knows of the files.
#[derive(Clone)]
pub struct Files {
    held: Arc<Held>,
}

struct Held {
    options: FilesOptions,
    opened: OnceCell<Opened>,
    /// Allows one look at a time.
    looking: tokio::sync::Mutex<()>,
    /// Whether all files were looked at once, and every change since was noted.
    seen: AtomicBool,
    state: Mutex<State>,
    looks: AtomicU64,
    failed: AtomicU64,
    overdue: AtomicU64,
}

struct Opened {
    shadow: Shadow,
    /// The tree of another Location that this one began with.
    began: Option<TreeId>,
}

#[derive(Default)]
struct State {
    /// Finished captures that the Shadow must learn of: their rows are written, or never will be.
    outcomes: Vec<(Captured, bool)>,
    /// The newest capture whose row is written.
    newest: Option<Recorded>,
    /// Whether something may have changed that no finished capture has.
    dirty: bool,
    /// The paths to look at, besides those that the Shadow knows of.
    owed: Touched,
    /// The (monotonic) time before which nothing is captured.
    not_before: Duration,
    /// Captures in a row that failed or that nobody waited for any longer.
    in_vain: u32,
    /// Whether a warning about calls that did not wait was logged.
    warned: bool,
    /// Whether nobody waited for the last capture any longer, and the next one continues its work.
    late: bool,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let FilesOptions { at, token, root, .. } = &self.held.options;
        f.debug_struct("Files")
            .field("location", &at.location)
            .field("token", token)
            .field("root", root)
            .finish_non_exhaustive()
    }
}

impl Files {
    /// Returns the files of a held Location. Does nothing yet.
    #[must_use]
    pub fn new(options: FilesOptions) -> Self {
        let held = Held {
            options,
            opened: OnceCell::new(),
            looking: tokio::sync::Mutex::default(),
            seen: AtomicBool::new(false),
            state: Mutex::default(),
            looks: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
        };
        Self { held: Arc::new(held) }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> FilesCounts {
        let Held { looks, failed, overdue, .. } = &*self.held;
        FilesCounts {
            looks: looks.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            overdue: overdue.load(Ordering::Relaxed),
        }
    }

    /// Saves the knowledge of the files for this worker's next look. Never fails, because it is only a cache.
    pub async fn save(&self) {
        let Some(Opened { shadow, .. }) = self.held.opened.get() else { return };
        if let Err(error) = shadow.save().await {
            warn!(location.id = %self.held.options.at.location, %error, "what is known of the workspace is not saved");
        }
    }

    /// Restores the newest snapshot, or the one that the Location began with. Returns `None` if there is neither, and
    /// nothing was done.
    ///
    /// # Errors
    /// Some files may be restored and others not; a repetition does the rest.
    pub async fn restore_newest(&self) -> Result<Option<SnapshotTree>, FilesError> {
        let Opened { shadow, began } = self.opened().await?;
        let Some(tree) = shadow.tree().await.or(*began) else { return Ok(None) };
        shadow.restore_all(&tree).await?;
        Ok(Some(super::tree(&tree)))
    }

    pub(crate) fn settings(&self) -> &SnapshotSettings {
        &self.held.options.settings
    }

    /// Returns whether the files must be looked at before a call changes any, because nobody has since this worker
    /// holds them.
    pub(crate) fn wants_base(&self) -> bool {
        !self.held.seen.load(Ordering::Acquire)
    }

    /// Returns whether people also change these files, because it is their directory.
    pub(crate) fn is_peoples(&self) -> bool {
        !self.held.options.git
    }

    /// Notes possible changes that are not captured now.
    pub(crate) fn owe(&self, touched: Touched) {
        let mut state = self.held.state();
        state.dirty |= touched != Touched::Nothing;
        state.owed = std::mem::take(&mut state.owed).and(touched);
    }

    /// Returns whether a capture failed or did not finish, and no later one has made up for it.
    pub(crate) fn is_dirty(&self) -> bool {
        self.held.state().dirty
    }

    /// Returns whether a drain that ends should continue a capture that nobody waited for any longer. After a few in vain,
    /// such as of a workspace that is too large to look at, it should not.
    pub(crate) fn is_left_late(&self) -> bool {
        let state = self.held.state();
        state.late && state.in_vain <= LATE_TRIES && !self.is_peoples()
    }

    /// Captures possible changes, and those that earlier captures missed. Returns `None` if it is unknown whether
    /// anything has changed. Logs a failure and leaves its changes to the next capture.
    pub(crate) async fn capture(&self, touched: Touched) -> Option<Capture> {
        self.owe(touched);
        let now = self.held.options.clock.monotonic();
        if self.held.state().not_before > now {
            return None;
        }
        Box::pin(self.capture_now()).await
    }

    /// Like [`capture`](Self::capture) of what is owed, however soon after one that nobody waited for.
    pub(crate) async fn capture_now(&self) -> Option<Capture> {
        if !self.may_be_read().await {
            return None;
        }
        match self.look().await {
            Ok(looked) => {
                self.held.seen.store(true, Ordering::Release);
                telemetry::metrics().capture(true);
                self.held.state().ends_well();
                Some(Capture::new(self.clone(), looked?))
            }
            Err(error) => {
                self.held.failed.fetch_add(1, Ordering::Relaxed);
                telemetry::metrics().capture(false);
                let mut state = self.held.state();
                state.late = false;
                self.back_off(&mut state);
                drop(state);
                let location = &self.held.options.at.location;
                warn!(location.id = %location, error = &error as &dyn std::error::Error, "the workspace is not captured");
                None
            }
        }
    }

    /// Returns whether every running build can read the events of captures.
    async fn may_be_read(&self) -> bool {
        let level = self.held.options.store.feature_level().await;
        level.is_ok_and(|level| level.has(Feature::Controls))
    }

    async fn look(&self) -> Result<Option<Looked>, FilesError> {
        let _in_turn = self.held.looking.lock().await;
        let Opened { shadow, .. } = self.opened().await?;
        self.tell(shadow).await;
        self.held.looks.fetch_add(1, Ordering::Relaxed);
        let owed = {
            let mut state = self.held.state();
            state.dirty = false;
            std::mem::take(&mut state.owed)
        };
        // If this is dropped midway, the Shadow may not know of the changes.
        let mut owing = Owing { files: self, owed };
        let captured = shadow.capture(&owing.owed).await?;
        owing.owed = Touched::Nothing;
        if let Some(captured) = captured {
            return Ok(Some(Looked::Changed(captured)));
        }
        // Another session's capture without a written row does not count.
        let (tree, newest) = (shadow.tree().await, self.held.state().newest.clone());
        Ok(newest.filter(|newest| Some(newest.tree) == tree).map(Looked::AsBefore))
    }

    /// Tells the Shadow the outcomes of captures. Must not run twice at once.
    async fn tell(&self, shadow: &Shadow) {
        loop {
            let Some((captured, written)) = self.held.state().outcomes.first().cloned() else {
                return;
            };
            if written {
                shadow.committed(&captured).await;
            } else {
                shadow.abandoned(&captured).await;
            }
            self.held.state().outcomes.remove(0);
        }
    }

    /// Returns the files of the last capture; `None` before the Location's first one.
    pub(crate) async fn tree(&self) -> Result<Option<SnapshotTree>, FilesError> {
        let Opened { shadow, .. } = self.opened().await?;
        Ok(shadow.tree().await.as_ref().map(super::tree))
    }

    /// Restores the files at `paths` and below from `tree`, or all but `.git`. Files with changes that no row has
    /// stay. The next capture reports the result.
    pub(crate) async fn put_back(
        &self,
        tree: &SnapshotTree,
        paths: Option<&BTreeSet<String>>,
    ) -> Result<Restored, FilesError> {
        let _in_turn = self.held.looking.lock().await;
        let Opened { shadow, .. } = self.opened().await?;
        self.tell(shadow).await;
        self.held.state().dirty = true;
        // An empty path stands for everything in the directory.
        let all = BTreeSet::from([String::new()]);
        let paths = paths.unwrap_or(&all);
        Ok(shadow.restore(&tree_id(tree)?, Some(paths), Unsaved::Keep).await?)
    }

    /// Returns the differences between two trees at `paths` and below, or everywhere.
    pub(crate) async fn diff(
        &self,
        from: &SnapshotTree,
        to: &SnapshotTree,
        paths: Option<&BTreeSet<String>>,
    ) -> Result<FileChanges, FilesError> {
        let Opened { shadow, .. } = self.opened().await?;
        Ok(shadow.diff(&tree_id(from)?, &tree_id(to)?, paths).await?)
    }

    /// Notes that work continues although no earlier capture is durable. What that capture reads is read to its end meanwhile.
    pub(crate) fn overdue(&self) {
        self.held.overdue.fetch_add(1, Ordering::Relaxed);
        let mut state = self.held.state();
        state.late = true;
        self.back_off(&mut state);
        if !std::mem::replace(&mut state.warned, true) {
            let (location, wait) = (&self.held.options.at.location, self.settings().wait);
            warn!(
                location.id = %location,
                "the workspace is not captured within {} s, and calls go on without; name folders that need no snapshot \
                 in a .gitignore",
                wait.as_secs()
            );
        }
    }

    /// Delays the next capture, so that a large workspace is not read again and again in vain.
    fn back_off(&self, state: &mut State) {
        let pause = self.settings().back_off * (1 << state.in_vain.min(MAX_DOUBLINGS));
        state.in_vain += 1;
        state.not_before = self.held.options.clock.monotonic() + pause;
    }

    /// Notes the outcome of a capture.
    pub(super) fn ended(&self, captured: Captured, written: bool) {
        let mut state = self.held.state();
        let place = (captured.token, captured.ordinal);
        let newer = |newest: &Recorded| (newest.token, newest.ordinal) < place;
        if written && state.newest.as_ref().is_none_or(newer) {
            state.newest = Some(Recorded::of(&captured.pack_ref()));
        }
        state.outcomes.push((captured, written));
    }

    async fn opened(&self) -> Result<&Opened, FilesError> {
        self.held.opened.get_or_try_init(|| self.open()).await
    }

    async fn open(&self) -> Result<Opened, FilesError> {
        let options = self.held.options.clone();
        let store = &options.store;
        let packs = refs(store.workspace_packs(options.at.clone()).await?)?;
        self.held.state().newest = packs.last().map(Recorded::of);
        let from = store.location(options.at.org, options.at.location.clone()).await?.seed;
        let began = from.as_ref().map(|seed| tree_id(&seed.tree)).transpose()?;
        // An imported session's Location begins with its own first snapshot.
        let other = from.filter(|seed| seed.location != options.at.location);
        // The trees may name packs of the seed's own seed, and so on.
        let seed = match other {
            Some(seed) => store.pack_names(options.at.org, vec![seed.location]).await?,
            None => Vec::new(),
        };
        let FilesOptions {
            at, token, root, lock, git, hidden, cache, blobs, clock, settings, ..
        } = options;
        let limits = settings.limits;
        let options = ShadowOptions {
            root,
            cache,
            blobs,
            at,
            token,
            lock,
            packs,
            seed,
            git,
            hidden,
            limits,
            clock,
        };
        Ok(Opened { shadow: Shadow::open(options).await?, began })
    }
}

impl State {
    /// Notes that a capture has come to its end, so that the next one need not pause.
    fn ends_well(&mut self) {
        self.in_vain = 0;
        self.late = false;
        self.not_before = Duration::ZERO;
    }
}

impl Held {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The changes that an unfinished look still owes.
struct Owing<'f> {
    files: &'f Files,
    owed: Touched,
}

impl Drop for Owing<'_> {
    fn drop(&mut self) {
        self.files.owe(std::mem::take(&mut self.owed));
    }
}

/// Converts a Location's rows for its Shadow.
fn refs(rows: Vec<PackRow>) -> Result<Vec<PackRef>, FilesError> {
    let as_ref = |row: PackRow| {
        let PackRow { token, ordinal, pack, .. } = row;
        Ok(PackRef { token, ordinal, tree: tree_id(&row.tree)?, pack })
    };
    rows.into_iter().map(as_ref).collect()
}

/// Parses the tree of a row or an event.
pub(super) fn tree_id(tree: &SnapshotTree) -> Result<TreeId, FilesError> {
    tree.as_str().parse().map_err(|_| FilesError::Tree)
}
