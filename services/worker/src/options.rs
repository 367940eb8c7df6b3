use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use placement_api::Placement;
use session::Runtime;
use store::LocationKind;

use crate::disk::WorkspaceDisk;
use crate::fill::Fills;

/// The settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The machine's name, for people.
    pub node: String,
    /// The URL of its internal listener, for the status of placement.
    pub url: String,
    /// The most drains at once. More wait in a queue that is fair between organisations.
    pub slots: usize,
    /// The folder of managed workspaces.
    pub workspace_dir: PathBuf,
    /// Whether workers that may take over from each other share `workspace_dir`.
    pub disk: WorkspaceDisk,
    /// The folder of this worker's caches for snapshots. It has no workspaces.
    pub snapshot_dir: PathBuf,
    /// Whether sessions may run in directories of this machine outside `workspace_dir`.
    pub allow_local_paths: bool,
    /// The folder of the Locations' lock files, shared like the directories that they are for. On a disk of its own, a
    /// worker has those of managed Locations beside their workspaces.
    pub lock_dir: PathBuf,
    /// How long a Location may have no drains before it is given back.
    pub idle_release: Duration,
    /// How often the worker looks for ready sessions, changed claims and interrupts without a hint.
    pub sweep: Duration,
    /// The most bytes of this worker's copies of repositories' packs, but for those that fills use.
    pub repository_copies: u64,
    /// How long a blob without a row is kept, and a Location without a use; `None` keeps them for ever.
    pub blob_retention: Option<Duration>,
}

/// The lock files of managed Locations on a worker's own disk. No organisation has this name.
const OWN_LOCKS: &str = ".locks";

impl WorkerOptions {
    /// Returns the folder of the lock files of a kind of Location: where everybody sees it who sees the files.
    pub(crate) fn locks(&self, kind: LocationKind) -> PathBuf {
        match (kind, self.disk) {
            (LocationKind::Managed, WorkspaceDisk::Own) => self.workspace_dir.join(OWN_LOCKS),
            (LocationKind::Managed, WorkspaceDisk::Shared) | (LocationKind::Local, _) => {
                self.lock_dir.clone()
            }
        }
    }
}

/// The parts of a worker.
#[derive(Clone)]
pub struct WorkerParts {
    /// The state that its drains share.
    pub runtime: Runtime,
    /// The placement that leases Locations to it.
    pub placement: Arc<dyn Placement>,
    /// How workspaces are filled from repositories; without, sessions with one fail.
    pub fills: Option<Fills>,
}
