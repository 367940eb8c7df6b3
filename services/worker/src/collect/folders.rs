//! Removes what this worker has on disk of Locations that were deleted: workspaces, lock files and caches; and its copies of
//! packs of repositories that were forgotten.
//!
//! Only Locations that the database knows to be deleted count. With a database that is empty, restored or somebody
//! else's, nothing is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use domain::{LocationId, OrgId, RepositoryId};
use store::{LocationKind, Store, StoreError};

use crate::options::WorkerOptions;

/// The most Locations in one query.
const PAGE: usize = 500;
/// The length of an organisation's id in names.
const ORG_LENGTH: usize = 36;

#[derive(Debug, thiserror::Error)]
pub(super) enum FolderError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the worker's folders cannot be read or changed")]
    Disk(#[from] io::Error),
}

/// The Locations of each organisation that have something on disk.
type Places = BTreeMap<OrgId, BTreeSet<LocationId>>;

/// Removes what is left of deleted Locations. Returns their number.
pub(super) async fn collect(store: &Store, options: &WorkerOptions) -> Result<u64, FolderError> {
    let of = options.clone();
    let places = blocking(move || places(&of)).await?;
    let mut removed = 0;
    for (org, locations) in places {
        let locations: Vec<_> = locations.into_iter().collect();
        for page in locations.chunks(PAGE) {
            for gone in store.gone_locations(org, page).await? {
                let of = options.clone();
                removed += count(blocking(move || remove(&of, org, &gone)).await);
            }
        }
    }
    Ok(removed)
}

/// Removes this worker's copies of the packs of repositories that are forgotten: all are in storage, if there is a row. Returns
/// the number of repositories.
pub(super) async fn collect_repositories(store: &Store, folder: &Path) -> Result<u64, FolderError> {
    let of = folder.to_owned();
    let copies = blocking(move || {
        let mut copies: BTreeMap<OrgId, Vec<RepositoryId>> = BTreeMap::new();
        for name in names(&of)? {
            let Some(org) = organisation(&name) else { continue };
            let parsed = names(&of.join(&name))?.into_iter().filter_map(|name| name.parse().ok());
            copies.entry(org).or_default().extend(parsed);
        }
        Ok(copies)
    });
    let mut removed = 0;
    for (org, repositories) in copies.await? {
        for page in repositories.chunks(PAGE) {
            let known: BTreeSet<_> =
                store.known_repositories(org, page).await?.into_iter().collect();
            for gone in page.iter().filter(|id| !known.contains(*id)) {
                let copy = folder.join(org.to_string()).join(gone.as_str());
                removed += count(blocking(move || sandbox::remove_tree(&copy)).await);
            }
        }
    }
    Ok(removed)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn places(options: &WorkerOptions) -> io::Result<Places> {
    let mut places = Places::new();
    for name in names(&options.workspace_dir)? {
        let Some(org) = organisation(&name) else { continue };
        for name in names(&options.workspace_dir.join(&name))? {
            // `LOC`, or `LOC.TOKEN`, and files beside them.
            let location = name.split('.').next().unwrap_or_default();
            if let Ok(location) = location.parse() {
                places.entry(org).or_default().insert(location);
            }
        }
    }
    for folder in named(options) {
        for name in names(&folder)? {
            // `ORG-LOC.lock`, `ORG-LOC.index`.
            let Some((org, rest)) = name.split_at_checked(ORG_LENGTH) else { continue };
            let location = rest.strip_prefix('-').and_then(|rest| rest.split('.').next());
            let location = location.and_then(|location| location.parse().ok());
            if let Some((org, location)) = organisation(org).zip(location) {
                places.entry(org).or_default().insert(location);
            }
        }
    }
    Ok(places)
}

/// Returns the folders whose files name their Location.
fn named(options: &WorkerOptions) -> BTreeSet<PathBuf> {
    let locks = [LocationKind::Managed, LocationKind::Local].map(|kind| options.locks(kind));
    [options.snapshot_dir.clone()].into_iter().chain(locks).collect()
}

/// Parses an id as we write it: anything else is not ours.
fn organisation(name: &str) -> Option<OrgId> {
    name.parse().ok().filter(|org: &OrgId| org.to_string() == name)
}

/// Returns the names in a folder; none without the folder.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is not UTF-8 is not ours.
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

/// Counts what was removed. What cannot be removed is told, and keeps nothing else from being removed.
fn count(removed: io::Result<()>) -> u64 {
    match removed {
        Ok(()) => 1,
        Err(error) => {
            tracing::warn!(%error, "what is left of something deleted cannot be removed now");
            0
        }
    }
}

/// Removes everything of one Location, as far as that can be. Other workers may do the same at the same time.
fn remove(options: &WorkerOptions, org: OrgId, gone: &LocationId) -> io::Result<()> {
    let mut all = Ok(());
    let workspaces = options.workspace_dir.join(org.to_string());
    let (whole, token) = (gone.to_string(), format!("{gone}."));
    for name in names(&workspaces)? {
        if name == whole || name.starts_with(&token) {
            all = all.and(sandbox::remove_tree(&workspaces.join(name)));
        }
    }
    let prefix = format!("{org}-{gone}.");
    for folder in named(options) {
        for name in names(&folder)? {
            if name.starts_with(&prefix) {
                all = all.and(sandbox::remove_tree(&folder.join(name)));
            }
        }
    }
    all
}
