use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use context::Registry;
use domain::{FencingToken, SessionError, SnapshotTree};
use sandbox::LocationLock;
use tools::ToolSet;

use crate::files::Files;
use crate::location_settings::LocationSettings;
use crate::observe::{ObservedAt, Sources};
use crate::toolbox::LocationTools;

/// A Location's files on this worker.
#[derive(Debug, Clone)]
pub struct Workspace {
    shown: String,
    place: Result<Place, SessionError>,
    restored: Option<Restored>,
    in_project: bool,
    /// Whether nobody has looked at these files yet, so that a look may be what killed the last worker.
    unproven: Arc<AtomicBool>,
    sources: Sources,
    tools: Arc<OnceLock<LocationTools>>,
    settings: LocationSettings,
}

/// A restore of the files, when this worker took the Location or earlier.
#[derive(Debug, Clone)]
struct Restored {
    token: FencingToken,
    tree: Option<SnapshotTree>,
}

#[derive(Debug, Clone)]
struct Place {
    root: PathBuf,
    lock: Option<LocationLock>,
    files: Option<Files>,
}

impl Workspace {
    /// Returns a workspace with files at `root`, which a model sees as `shown`.
    #[must_use]
    pub fn at(root: PathBuf, shown: String, lock: Option<LocationLock>) -> Self {
        Self::new(shown, Ok(Place { root, lock, files: None }))
    }

    /// Returns a workspace whose files are missing here. Drains record that durably and stop.
    #[must_use]
    pub fn missing(shown: String, error: SessionError) -> Self {
        Self::new(shown, Err(error))
    }

    fn new(shown: String, place: Result<Place, SessionError>) -> Self {
        let (sources, tools, unproven) = (Sources::core(), Arc::default(), Arc::default());
        let (restored, in_project, settings) = (None, false, LocationSettings::default());
        Self { shown, place, restored, in_project, unproven, sources, tools, settings }
    }

    /// Adds captures after calls that may have changed files.
    #[must_use]
    pub fn with_files(mut self, files: Files) -> Self {
        if let Ok(place) = &mut self.place {
            place.files = Some(files);
        }
        self
    }

    /// Notes that its files were restored under `token`, from `tree` if there was a Workspace Snapshot, so that
    /// changes in no row are lost. This stays true under later tokens, as long as these files exist. Each session is
    /// told once.
    #[must_use]
    pub fn restored(self, token: FencingToken, tree: Option<SnapshotTree>) -> Self {
        Self { restored: Some(Restored { token, tree }), ..self }
    }

    /// Lets instructions count from the Location up to the top of its project. Only for directories of the machine's
    /// user: nothing else may look above a Location.
    #[must_use]
    pub fn in_project(self) -> Self {
        Self { in_project: true, ..self }
    }

    /// Marks the files as just taken over. Until a drain has looked at them and survived, each drain claims its
    /// session before it looks. If the files kill a worker, the session records that, and two deaths in a row stop
    /// it.
    #[must_use]
    pub fn unproven(self) -> Self {
        self.unproven.store(true, Ordering::Release);
        self
    }

    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven.load(Ordering::Acquire)
    }

    /// Notes that a drain has looked at the files and its worker lives.
    pub(crate) fn proven(&self) {
        self.unproven.store(false, Ordering::Release);
    }

    /// Returns the token and the Workspace Snapshot of the last restore.
    #[must_use]
    pub fn made_anew(&self) -> Option<(FencingToken, Option<&SnapshotTree>)> {
        self.restored.as_ref().map(|restored| (restored.token, restored.tree.as_ref()))
    }

    pub(crate) fn is_in_project(&self) -> bool {
        self.in_project
    }

    /// Returns the Location's System Context Registry. Its contributions are told at its sessions' boundaries.
    #[must_use]
    pub fn sources(&self) -> &Registry<ObservedAt> {
        &self.sources.registry
    }

    /// Lets its sessions use `tools`. Without this they use those of the worker ([`Runtime::tools`](crate::Runtime::tools)).
    #[must_use]
    pub fn with_tools(self, tools: ToolSet) -> Self {
        Self { tools: Arc::new(OnceLock::from(LocationTools::of(tools))), ..self }
    }

    /// Returns the Location's tools: those that it was given, otherwise the worker's.
    pub(crate) fn tools(&self, of_worker: &ToolSet) -> &LocationTools {
        self.tools.get_or_init(|| LocationTools::of(of_worker.clone()))
    }

    /// Returns the settings of the Location.
    pub(crate) fn settings(&self) -> &LocationSettings {
        &self.settings
    }

    /// Returns the directory as a model sees it.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the real directory.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.place.as_ref().ok().map(|place| place.root.as_path())
    }

    /// Returns the lock that tool processes hold.
    #[must_use]
    pub fn lock(&self) -> Option<&LocationLock> {
        self.place.as_ref().ok().and_then(|place| place.lock.as_ref())
    }

    /// Returns the files for captures.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.place.as_ref().ok().and_then(|place| place.files.as_ref())
    }

    /// Returns why the files are missing.
    #[must_use]
    pub fn unavailable(&self) -> Option<&SessionError> {
        self.place.as_ref().err()
    }
}
