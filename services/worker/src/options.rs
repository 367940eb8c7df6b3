use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use placement_api::Placement;
use session::Runtime;

use crate::disk::WorkspaceDisk;

/// How a worker is set up.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The machine's name, for people.
    pub node: String,
    /// Where its internal listener answers; shown in the status of placement.
    pub url: String,
    /// How many drains run at once; more wait in a queue that is fair between organisations.
    pub slots: usize,
    /// Where managed workspaces are.
    pub workspace_dir: PathBuf,
    /// Whether workers that may take over from each other see one `workspace_dir`.
    pub disk: WorkspaceDisk,
    /// Where this worker keeps what makes snapshots faster; no workspace.
    pub snapshot_dir: PathBuf,
    /// Whether sessions run in directories of this machine that are not of `workspace_dir`.
    pub allow_local_paths: bool,
    /// Where the Locations' lock files are; shared like `workspace_dir`.
    pub lock_dir: PathBuf,
    /// A Location without drains for this long is given back.
    pub idle_release: Duration,
    /// How often the worker looks for ready sessions, changed claims and interrupts by itself.
    pub sweep: Duration,
    /// How long a blob is kept that no row names; `None`: for ever.
    pub blob_retention: Option<Duration>,
}

/// What a worker works with.
#[derive(Clone)]
pub struct WorkerParts {
    /// What its drains share.
    pub runtime: Runtime,
    /// Who leases Locations to it.
    pub placement: Arc<dyn Placement>,
}
