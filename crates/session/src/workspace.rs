use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use context::Registry;
use domain::{FencingToken, SessionError, SnapshotTree};
use sandbox::LocationLock;
use session_rules::ToolFacts;

use crate::files::Files;
use crate::observe::{ObservedAt, Sources};

/// Where a Location's files are for this worker.
#[derive(Debug, Clone)]
pub struct Workspace {
    shown: String,
    place: Result<Place, SessionError>,
    restored: Option<Restored>,
    in_project: bool,
    /// Nobody has looked at these files yet, and to look at them may be what killed the last worker.
    unproven: Arc<AtomicBool>,
    sources: Sources,
    tools: Arc<OnceLock<ToolFacts>>,
}

/// The files were made anew when this worker took the Location, or earlier and are there still.
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
    /// The files are at `root`; a model is shown `shown`.
    #[must_use]
    pub fn at(root: PathBuf, shown: String, lock: Option<LocationLock>) -> Self {
        Self::new(shown, Ok(Place { root, lock, files: None }))
    }

    /// The files cannot be had here. Drains say so durably and stop.
    #[must_use]
    pub fn missing(shown: String, error: SessionError) -> Self {
        Self::new(shown, Err(error))
    }

    fn new(shown: String, place: Result<Place, SessionError>) -> Self {
        let (sources, tools, unproven) = (Sources::core(), Arc::default(), Arc::default());
        Self { shown, place, restored: None, in_project: false, unproven, sources, tools }
    }

    /// Its files are captured after calls that may have changed them.
    #[must_use]
    pub fn with_files(mut self, files: Files) -> Self {
        if let Ok(place) = &mut self.place {
            place.files = Some(files);
        }
        self
    }

    /// Its files were made anew under `token`, from `tree` if there was a Workspace Snapshot: what no row had is gone.
    /// This holds as long as these files are there, under later tokens too: each session is told of it once.
    #[must_use]
    pub fn restored(self, token: FencingToken, tree: Option<SnapshotTree>) -> Self {
        Self { restored: Some(Restored { token, tree }), ..self }
    }

    /// The directory may be below the top of its project, whose instructions then count too. Only for
    /// directories of the machine's user: nothing else may look above a Location.
    #[must_use]
    pub fn in_project(self) -> Self {
        Self { in_project: true, ..self }
    }

    /// The files were just taken over. Until a drain has looked at them once and lived, each drain claims its session
    /// before it looks: a worker that they kill leaves a session that says so, and two in a row stop it.
    #[must_use]
    pub fn unproven(self) -> Self {
        self.unproven.store(true, Ordering::Release);
        self
    }

    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven.load(Ordering::Acquire)
    }

    /// A drain has looked at the files, and its worker lives.
    pub(crate) fn proven(&self) {
        self.unproven.store(false, Ordering::Release);
    }

    /// Under which token its files were made anew, and of which Workspace Snapshot.
    #[must_use]
    pub fn made_anew(&self) -> Option<(FencingToken, Option<&SnapshotTree>)> {
        self.restored.as_ref().map(|restored| (restored.token, restored.tree.as_ref()))
    }

    pub(crate) fn is_in_project(&self) -> bool {
        self.in_project
    }

    /// The Location's System Context Registry: what it contributes is told at its sessions' boundaries.
    #[must_use]
    pub fn sources(&self) -> &Registry<ObservedAt> {
        &self.sources.registry
    }

    /// Its tools as decisions see them, made once: nothing adds any.
    pub(crate) fn tools(&self, make: impl FnOnce() -> ToolFacts) -> &ToolFacts {
        self.tools.get_or_init(make)
    }

    /// What a model is shown.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The real directory.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.place.as_ref().ok().map(|place| place.root.as_path())
    }

    /// The lock that tool processes hold.
    #[must_use]
    pub fn lock(&self) -> Option<&LocationLock> {
        self.place.as_ref().ok().and_then(|place| place.lock.as_ref())
    }

    /// What captures them.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.place.as_ref().ok().and_then(|place| place.files.as_ref())
    }

    /// Why the files cannot be had.
    #[must_use]
    pub fn unavailable(&self) -> Option<&SessionError> {
        self.place.as_ref().err()
    }
}
