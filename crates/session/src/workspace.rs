use std::path::{Path, PathBuf};

use domain::SessionError;
use sandbox::LocationLock;

/// Where a Location's files are for this worker.
#[derive(Debug, Clone)]
pub struct Workspace {
    shown: String,
    place: Result<Place, SessionError>,
}

#[derive(Debug, Clone)]
struct Place {
    root: PathBuf,
    lock: Option<LocationLock>,
}

impl Workspace {
    /// The files are at `root`; a model is shown `shown`.
    #[must_use]
    pub fn at(root: PathBuf, shown: String, lock: Option<LocationLock>) -> Self {
        Self { shown, place: Ok(Place { root, lock }) }
    }

    /// The files cannot be had here. Drains say so durably and stop.
    #[must_use]
    pub fn missing(shown: String, error: SessionError) -> Self {
        Self { shown, place: Err(error) }
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

    /// Why the files cannot be had.
    #[must_use]
    pub fn unavailable(&self) -> Option<&SessionError> {
        self.place.as_ref().err()
    }
}
