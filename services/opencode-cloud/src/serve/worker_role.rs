//! The worker role, assembled for both `up` and `opencode-cloud worker`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catalog::Feed;
use credentials::Credentials;
use domain::Clock;
use llm_client::{Client, Secret};
use placement_api::Placement;
use sandbox::{Environment, ProcessSandbox};
use session::{ConfiguredModels, DrainSettings, ProviderHub, Runtime, StoredComponents};
use signals::Signals;
use store::Store;
use tasks::TaskGroup;
use worker::{RunningWorker, WorkerOptions, WorkerParts, WorkspaceDisk};

use super::ServeError;
use super::tool_policy::{Reach, Unisolated};

/// A folder beside the workspaces that is none itself. No organisation has this name.
const SNAPSHOTS: &str = ".snapshots";

/// The parts of a worker.
pub(crate) struct WorkerSetup {
    pub(crate) store: Store,
    pub(crate) signals: Arc<dyn Signals>,
    pub(crate) placement: Arc<dyn Placement>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) llm: Client,
    pub(crate) models: ConfiguredModels,
    /// The catalog's other models.
    pub(crate) catalog: Arc<Feed>,
    /// The process's keys for their providers.
    pub(crate) env: BTreeMap<String, Secret>,
    pub(crate) credentials: Credentials,
    pub(crate) settings: DrainSettings,
    pub(crate) folders: Folders,
    pub(crate) disk: WorkspaceDisk,
    pub(crate) blob_retention: Option<Duration>,
    pub(crate) node: String,
    pub(crate) url: String,
    pub(crate) slots: usize,
    /// The clients that can have commands run here.
    pub(crate) reach: Reach,
    pub(crate) allow_local_paths: bool,
}

/// The folders for what is not in Postgres.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) blobs: PathBuf,
    pub(crate) workspaces: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) spool: PathBuf,
}

impl Folders {
    /// Returns the folders of a data folder; `workspaces` may be elsewhere.
    pub(crate) fn in_data(data: &Path, workspaces: Option<&PathBuf>) -> Self {
        Self {
            blobs: data.join("blobs"),
            workspaces: workspaces.cloned().unwrap_or_else(|| data.join("workspaces")),
            locks: data.join("locks"),
            spool: data.join("spool"),
        }
    }

    fn make(&self) -> Result<(), ServeError> {
        for folder in [&self.workspaces, &self.locks, &self.spool] {
            // Closed to other users, whatever the umask is.
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| {
                ServeError::Usage(format!(
                    "the folder {} cannot be made ({error}); choose another --data-dir or --workspace-dir",
                    folder.display()
                ))
            })?;
        }
        Ok(())
    }
}

/// Starts a worker in the role's group.
pub(crate) fn start(setup: WorkerSetup, role: &TaskGroup) -> Result<RunningWorker, ServeError> {
    setup.folders.make()?;
    let blobs = blobs::Blobs::in_folder(&setup.folders.blobs)
        .map_err(|error| ServeError::stopped("blobs cannot be kept", &error))?;
    let sandbox = ProcessSandbox::new(
        PathBuf::from("/proc/self/exe"),
        vec![OsString::from(crate::TOOL_SUPERVISOR)],
        Environment::from_vars(std::env::vars_os()),
        setup.folders.spool.clone(),
    );
    let sandbox = Unisolated::new(sandbox, setup.store.clone(), setup.reach);
    let runtime = Runtime {
        store: setup.store,
        signals: setup.signals,
        llm: setup.llm,
        tools: Arc::new(tools::Registry::standard(Arc::new(sandbox))),
        blobs,
        models: ProviderHub::new(setup.models, Some(setup.catalog), setup.env)
            .with_credentials(setup.credentials),
        clock: setup.clock,
        settings: Arc::new(setup.settings),
        stored: StoredComponents::default(),
    };
    let options = WorkerOptions {
        node: setup.node,
        url: setup.url,
        slots: setup.slots,
        // On the workspaces' disk, because the snapshots' index describes that disk's files.
        snapshot_dir: setup.folders.workspaces.join(SNAPSHOTS),
        workspace_dir: setup.folders.workspaces,
        disk: setup.disk,
        lock_dir: setup.folders.locks,
        allow_local_paths: setup.allow_local_paths,
        idle_release: Duration::from_mins(10),
        sweep: Duration::from_secs(1),
        blob_retention: setup.blob_retention,
    };
    let parts = WorkerParts { runtime, placement: setup.placement };
    worker::start(options, parts, role)
        .map_err(|error| ServeError::stopped("the worker cannot start", &error))
}
