//! The worker role, assembled for both `up` and `opencode-cloud worker`.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use blobs::Blobs;
use catalog::Feed;
use checkouts::Checkouts;
use credentials::Credentials;
use domain::Clock;
use egress::Egress;
use llm_client::{Client, Secret};
use placement_api::Placement;
use sandbox::HiddenPaths;
use session::{ConfiguredModels, DrainSettings, ProviderHub, Runtime, StoredComponents};
use signals::Signals;
use store::Store;
use tasks::TaskGroup;
use worker::{Fills, RunningWorker, WorkerOptions, WorkerParts, WorkspaceDisk};

use super::ServeError;
use super::network::Ways;
use super::tool_policy::{CommandPolicy, Guarded};

/// A folder beside the workspaces that is none itself. No organisation has this name.
const SNAPSHOTS: &str = ".snapshots";
/// Another one: the packs of repositories.
const REPOSITORIES: &str = ".repositories";

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
    /// The way of fills into the network.
    pub(crate) egress: Egress,
    /// The way of `webfetch` into the network.
    pub(crate) pages: Egress,
    pub(crate) settings: DrainSettings,
    pub(crate) blobs: Blobs,
    pub(crate) folders: Folders,
    pub(crate) disk: WorkspaceDisk,
    pub(crate) blob_retention: Option<Duration>,
    /// In bytes.
    pub(crate) repository_copies: u64,
    pub(crate) node: String,
    pub(crate) url: String,
    pub(crate) slots: usize,
    /// In which sandbox commands run here, if at all.
    pub(crate) commands: CommandPolicy,
    /// The ways of commands into networks, if they have any.
    pub(crate) ways: Option<Ways>,
    pub(crate) allow_local_paths: bool,
    /// The paths that sessions in directories of this machine do not see.
    pub(crate) hidden: HiddenPaths,
}

/// The folders for what is not in Postgres.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) workspaces: PathBuf,
    pub(crate) locks: PathBuf,
    pub(crate) spool: PathBuf,
}

impl Folders {
    /// Returns the folders of a data folder; workspaces and locks may be elsewhere.
    pub(crate) fn in_data(
        data: &Path,
        workspaces: Option<&PathBuf>,
        locks: Option<&PathBuf>,
    ) -> Self {
        Self {
            workspaces: workspaces.cloned().unwrap_or_else(|| data.join("workspaces")),
            locks: locks.cloned().unwrap_or_else(|| data.join("locks")),
            spool: data.join("spool"),
        }
    }

    /// Returns all of them, for [`WorkerSetup::hidden`].
    pub(crate) fn all(&self) -> [PathBuf; 3] {
        [self.workspaces.clone(), self.locks.clone(), self.spool.clone()]
    }

    /// Returns the real paths of folders that were made: workspaces are not looked for through links.
    fn real(self) -> Self {
        let real = |path: PathBuf| path.canonicalize().unwrap_or(path);
        Self { workspaces: real(self.workspaces), locks: real(self.locks), spool: real(self.spool) }
    }

    pub(crate) fn make(&self) -> Result<(), ServeError> {
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

/// A worker that runs.
pub(crate) struct StartedWorker {
    pub(crate) worker: RunningWorker,
    /// In which sandbox it runs commands, for people.
    pub(crate) told: String,
    /// The directories of this machine, with the worker's sandbox.
    pub(crate) checkouts: Checkouts,
}

/// Starts a worker in the role's group.
pub(crate) async fn start(
    mut setup: WorkerSetup,
    role: &TaskGroup,
) -> Result<StartedWorker, ServeError> {
    setup.folders.make()?;
    setup.folders = setup.folders.real();
    setup.settings.hidden = setup.hidden;
    let (spool, workspaces) = (&setup.folders.spool, &setup.folders.workspaces);
    let exits = setup.ways.map(|ways| ways.within(role));
    let found = setup.commands.find(spool, workspaces, exits).await;
    let told = setup.commands.told(&found);
    let guarded = Guarded::new(found, setup.store.clone(), setup.commands);
    let sandbox: Arc<dyn sandbox::Sandbox> = Arc::new(guarded);
    let checkouts = Checkouts::new(
        setup.settings.hidden.clone(),
        Some(sandbox.clone()),
        setup.settings.project_instructions,
    );
    let repositories = setup.folders.workspaces.join(REPOSITORIES);
    let fills = Fills::new(sandbox.clone(), setup.egress.clone(), repositories);
    let runtime = Runtime {
        store: setup.store,
        signals: setup.signals,
        llm: setup.llm,
        tools: tools::ToolSet::with_web(sandbox, &setup.pages),
        blobs: setup.blobs,
        models: ProviderHub::new(setup.models, Some(setup.catalog), setup.env)
            .with_credentials(setup.credentials),
        clock: setup.clock,
        settings: Arc::new(setup.settings),
        stored: StoredComponents::default(),
        spending: session::Spending::default(),
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
        repository_copies: setup.repository_copies,
    };
    let parts = WorkerParts { runtime, placement: setup.placement, fills: Some(fills) };
    let started = worker::start(options, parts, role);
    let worker = started.map_err(|error| ServeError::stopped("the worker cannot start", &error))?;
    Ok(StartedWorker { worker, told, checkouts })
}
