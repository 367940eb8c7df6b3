use std::collections::{BTreeMap, BTreeSet};

use domain::{Generation, Incarnation};
use placement_api::{Lease, Worker};
use serde::{Deserialize, Serialize};

use super::command::VERSION;
use super::state::{Standing, State};

/// The reason why a stored state cannot be read. The member must not start from it.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A newer build wrote it.
    #[error("the state has version {0}, this build reads {VERSION}; upgrade this member")]
    UnknownVersion(u32),
    /// It is damaged.
    #[error("the state cannot be read; remove this member's data folder and add it again")]
    Unreadable(#[from] serde_json::Error),
}

/// The stored and sent form of the state. It has lists, because JSON has no maps keyed by Location.
#[derive(Serialize, Deserialize)]
struct Image {
    version: u32,
    generation: Generation,
    workers: Vec<StandingImage>,
    retired: Vec<Incarnation>,
    drained: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct StandingImage {
    worker: Worker,
    version: u64,
    leases: Vec<Lease>,
    /// Missing in images of older builds; then no ended lease before `version` is known.
    #[serde(default)]
    ended: Vec<(u64, Lease)>,
    #[serde(default)]
    ended_from: Option<u64>,
}

/// The version, read first so that a newer image is refused by its version and not by its shape.
#[derive(Deserialize)]
struct Header {
    version: u32,
}

impl State {
    /// Returns the state as JSON text.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let standing = |standing: &Standing| StandingImage {
            worker: standing.worker.clone(),
            version: standing.version,
            leases: standing.leases(),
            ended: standing.ended.iter().cloned().collect(),
            ended_from: Some(standing.ended_from),
        };
        let image = Image {
            version: VERSION,
            generation: self.generation,
            workers: self.workers().map(standing).collect(),
            retired: self.retired.iter().copied().collect(),
            drained: self.drained.clone(),
        };
        serde_json::to_vec(&image).expect("an image holds only strings, numbers and lists")
    }

    /// Reads a state from JSON text.
    ///
    /// # Errors
    /// [`ImageError`] if it comes from a newer build or is damaged.
    pub fn from_image(bytes: &[u8]) -> Result<Self, ImageError> {
        let Header { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return Err(ImageError::UnknownVersion(version));
        }
        let image: Image = serde_json::from_slice(bytes)?;
        let mut state = Self {
            generation: image.generation,
            gone: image.retired.iter().copied().collect(),
            retired: image.retired.into(),
            drained: image.drained,
            ..Self::default()
        };
        for StandingImage { worker, version, leases, ended, ended_from } in image.workers {
            let incarnation = worker.incarnation;
            let leases: BTreeMap<_, _> =
                leases.into_iter().map(|lease| (lease.location, lease.token)).collect();
            for location in leases.keys() {
                state.holders.insert(location.clone(), incarnation);
            }
            let ended_from = ended_from.unwrap_or(version);
            let standing = Standing { worker, version, leases, ended: ended.into(), ended_from };
            state.workers.insert(incarnation, standing);
        }
        Ok(state)
    }
}
