use std::io;
use std::path::PathBuf;
use std::time::Duration;

use domain::{ErrorCode, FencingToken, LocationRef, SessionError};
use sandbox::lock::LockError;
use sandbox::{HiddenPaths, LocationLock};
use session::{Files, FilesOptions, Runtime, Workspace};
use store::{LocationKind, LocationRow, OriginRow, StoreError};
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use crate::disk::{self, Anew, Directory, WorkspaceDisk};
use crate::executor::chain;
use crate::fill::{Fault, Fill, Fills, of_repositories};
use crate::options::WorkerOptions;
use crate::setbacks::Patience;

/// The path that models see instead of a managed workspace's real one.
const SHOWN: &str = "/workspace";

/// How long an earlier owner's tools may take to stop before they are killed.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How often a restore is tried, and the pause in between: object storage may fail for a moment.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The restores that a worker makes at once. After the death of another one it gets hundreds of Locations in a second, and each
/// restore has files in memory.
const AT_ONCE: usize = 48;
static RESTORES: Semaphore = Semaphore::const_new(AT_ONCE);

/// The reason why a takeover failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    /// The store failed, or a later token has acted there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its lock or its files are unavailable now, but may be there in a moment, here or on another worker.
    #[error("{}", error.message)]
    Away {
        /// The directory as models see it.
        shown: String,
        /// The error for its sessions if this lasts.
        error: SessionError,
        /// How long it may last before they are told.
        patience: Patience,
    },
}

impl TakeoverError {
    fn away(shown: String, error: SessionError) -> Self {
        Self::Away { shown, error, patience: Patience::FILES }
    }
}

/// The place of a Location's files, or the reason why they are missing.
type Found = Result<Place, Absence>;

/// The reason why files are missing.
enum Absence {
    /// They do not exist: somebody has to do something.
    Gone(SessionError),
    /// They may be there in a moment, or on another worker.
    Away(SessionError),
}

struct Place {
    root: PathBuf,
    /// Whether its files are complete.
    whole: bool,
    /// Their last restore.
    anew: Option<Anew>,
}

impl Place {
    fn of(Directory { root, whole, anew }: Directory) -> Self {
        Self { root, whole, anew }
    }
}

/// Takes a Location over: finds or creates its files, raises its fence, and stops tools of earlier owners. Nothing
/// may start at the Location before this returns.
pub(crate) async fn take_over(
    runtime: &Runtime,
    options: &WorkerOptions,
    fills: Option<&Fills>,
    at: &LocationRef,
    token: FencingToken,
) -> Result<Workspace, TakeoverError> {
    let store = &runtime.store;
    let row = store.location(at.org, at.location.clone()).await?;
    let shown = match row.kind {
        LocationKind::Local => row.directory.clone(),
        LocationKind::Managed => SHOWN.to_owned(),
    };
    let origin = match row.kind {
        LocationKind::Local => None,
        LocationKind::Managed => store.origin(at.clone()).await?,
    };
    let hidden = &runtime.settings.hidden;
    let own = row.kind == LocationKind::Managed && options.disk == WorkspaceDisk::Own;
    // On a shared disk the files come before the fence, as `disk::shared` explains. A worker that does not see the
    // files must not fence the owner.
    let mut found = if own {
        None
    } else {
        Some(find_files(options, at, &row, origin.is_some(), hidden).await)
    };
    if let Some(Err(Absence::Away(error))) = found {
        return Err(TakeoverError::away(shown, error));
    }
    let last = store.raise_fence(at.clone(), token).await?;
    let lock = match lock(options.locks(row.kind), at, token).await {
        Ok(lock) => lock,
        Err(LockFailure::Superseded) => return Err(StoreError::Superseded.into()),
        Err(LockFailure::Held(message)) => {
            let error = SessionError { code: ErrorCode::WorkspaceLocked.into(), message };
            return Err(TakeoverError::away(shown, error));
        }
    };
    if own {
        found = Some(own_files(runtime, options, at, token, last).await?);
    }
    let place = match found {
        Some(Ok(place)) => place,
        Some(Err(Absence::Gone(error))) => return Ok(Workspace::missing(shown, error)),
        Some(Err(Absence::Away(error))) => return Err(TakeoverError::away(shown, error)),
        None => unreachable!("it was looked for above or below the fence"),
    };
    let mut snapshots = runtime.settings.snapshots.clone();
    if origin.is_some() {
        snapshots = of_repositories(snapshots);
    }
    let files = Files::new(FilesOptions {
        at: at.clone(),
        token,
        root: place.root.clone(),
        lock: Some(lock.clone()),
        git: row.kind == LocationKind::Managed,
        hidden: match row.kind {
            LocationKind::Local => runtime.settings.hidden.clone(),
            LocationKind::Managed => HiddenPaths::default(),
        },
        cache: options.snapshot_dir.clone(),
        store: store.clone(),
        blobs: runtime.blobs.clone(),
        clock: runtime.clock.clone(),
        settings: snapshots,
    });
    let mut workspace = Workspace::at(place.root.clone(), shown.clone(), Some(lock.clone()));
    let mut anew = place.anew;
    if !place.whole {
        let (root, seeded) = (place.root.clone(), row.seed.is_some());
        let unfilled = Unfilled { runtime, fills, at, token, lock, root, seeded };
        match unfilled.make_whole(&files, origin.as_ref(), last).await {
            Ok(made) => {
                debug!(location.id = %at.location, ?made, "the workspace is made anew");
                anew = made;
            }
            Err(Unmade::Restore(message)) => {
                warn!(location.id = %at.location, %message, "the workspace cannot be restored");
                let error =
                    SessionError { code: ErrorCode::WorkspaceRestoreFailed.into(), message };
                return Ok(Workspace::missing(shown, error));
            }
            Err(Unmade::Away(message)) => {
                let error =
                    SessionError { code: ErrorCode::WorkspaceRestoreFailed.into(), message };
                return Err(TakeoverError::Away { shown, error, patience: Patience::STORAGE });
            }
            Err(Unmade::Fill(Fault::Store(error))) => return Err(error.into()),
            Err(Unmade::Fill(Fault::Later(text))) => {
                return Err(TakeoverError::away(shown, Fault::for_sessions(text)));
            }
            Err(Unmade::Fill(Fault::Ends { text, .. })) => {
                return Ok(Workspace::missing(shown, Fault::for_sessions(text)));
            }
        }
    }
    // Told as long as these files exist, so that a session that slept meanwhile learns of it when it wakes.
    if let Some(Anew { token, tree }) = anew {
        workspace = workspace.restored(token, tree);
    }
    if row.kind == LocationKind::Local {
        workspace = workspace.in_project();
    }
    Ok(workspace.with_files(files).unproven())
}

/// A directory that is not whole.
struct Unfilled<'a> {
    runtime: &'a Runtime,
    fills: Option<&'a Fills>,
    at: &'a LocationRef,
    token: FencingToken,
    lock: LocationLock,
    root: PathBuf,
    /// Whether it begins with another Location's files.
    seeded: bool,
}

/// Why it is still not whole.
enum Unmade {
    /// The snapshot is lost or damaged.
    Restore(String),
    /// The snapshot cannot be read now.
    Away(String),
    Fill(Fault),
}

impl From<Fault> for Unmade {
    fn from(fault: Fault) -> Self {
        Self::Fill(fault)
    }
}

impl Unfilled<'_> {
    /// Makes the files whole and marks them so: from the Location's repository if nothing was captured since, otherwise from
    /// the newest snapshot. `last` is the token that was there before. Returns how, if that may have lost changes.
    async fn make_whole(
        self,
        files: &Files,
        origin: Option<&OriginRow>,
        last: FencingToken,
    ) -> Result<Option<Anew>, Unmade> {
        // If nobody held the Location before, nothing can be lost.
        let mut loses = last.0 != 0;
        let mut tree = None;
        match origin {
            None => tree = restore(files).await?,
            Some(origin) => {
                let fill = self.fill()?;
                let packs = self.runtime.store.workspace_packs(self.at.clone()).await;
                let has_files_of_seed = self.seeded && !origin.shares_base;
                let is_captured = has_files_of_seed || !packs.map_err(Fault::from)?.is_empty();
                if is_captured {
                    tree = restore(files).await?;
                    fill.give_packs(origin).await?;
                    let limit = self.runtime.settings.snapshots.limits.file_bytes;
                    if let Err(fault) = fill.large_files(limit).await {
                        // A `.git` that commands have broken is the session's to mend.
                        warn!(location.id = %self.at.location, %fault, "large files are not made again");
                    }
                } else {
                    loses &= origin.is_filled;
                    fill.anew(origin).await?;
                }
            }
        }
        files.save().await;
        let made = loses.then_some(Anew { token: self.token, tree });
        let (root, kept) = (self.root, made.clone());
        blocking(move || disk::whole(&root, kept.as_ref())).await.map_err(|error| {
            Unmade::Restore(format!("the workspace's folder cannot be written: {error}"))
        })?;
        Ok(made)
    }

    fn fill(&self) -> Result<Fill<'_>, Fault> {
        let fills = self.fills.ok_or_else(|| {
            Fault::ends(
                "no_fills",
                "this worker reads no repositories; start it again with the defaults",
            )
        })?;
        let (runtime, at, token) = (self.runtime, self.at, self.token);
        let (lock, root) = (Some(self.lock.clone()), self.root.clone());
        Ok(Fill { fills, runtime, at, token, lock, root })
    }
}

/// Restores the newest Workspace Snapshot, and returns its tree if there is one.
async fn restore(files: &Files) -> Result<Option<domain::SnapshotTree>, Unmade> {
    let mut tried = 1;
    loop {
        let turn = RESTORES.acquire().await;
        let restored = files.restore_newest().await;
        drop(turn);
        match restored {
            Ok(tree) => return Ok(tree),
            Err(error) if tried < TRIES => {
                warn!(error = %chain(&error), tried, "a restore is tried again");
                tokio::time::sleep(PAUSE * tried).await;
                tried += 1;
            }
            Err(error) if error.is_lost() => {
                return Err(Unmade::Restore(format!(
                    "the workspace's newest snapshot cannot be restored ({}); check object storage, then send a prompt \
                     to try again",
                    chain(&error)
                )));
            }
            Err(error) => {
                return Err(Unmade::Away(format!(
                    "the workspace's newest snapshot cannot be read now ({}); check object storage, then send a prompt \
                     to try again",
                    chain(&error)
                )));
            }
        }
    }
}

/// Finds the directory that all workers see.
async fn find_files(
    options: &WorkerOptions,
    at: &LocationRef,
    row: &LocationRow,
    has_origin: bool,
    hidden: &HiddenPaths,
) -> Found {
    match row.kind {
        // Created while it was allowed, or at a gateway that allows it.
        LocationKind::Local if !options.allow_local_paths => {
            Err(Absence::Gone(unavailable(format!(
                "the session runs in {}, and this worker runs none in directories of its machine: start it with \
             --allow-local-paths, or move the session to a managed workspace",
                row.directory
            ))))
        }
        LocationKind::Local => {
            let root = PathBuf::from(&row.directory);
            let shown = &row.directory;
            if let Some(why) = refuse_local(hidden.clone(), root.clone()).await {
                return Err(Absence::Gone(unavailable(why)));
            }
            match tokio::fs::metadata(&root).await {
                Ok(found) if found.is_dir() => Ok(Place { root, whole: true, anew: None }),
                Ok(_) => Err(Absence::Gone(unavailable(format!(
                    "{shown} is not a directory on this worker; make it one, or use another"
                )))),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                    ) =>
                {
                    Err(Absence::Gone(unavailable(format!(
                        "the directory {shown} does not exist on this worker; create it, or use another"
                    ))))
                }
                Err(error) => Err(Absence::Away(unavailable(format!(
                    "the directory {shown} cannot be read on this worker: {error}; check its file system"
                )))),
            }
        }
        LocationKind::Managed => {
            let folder = options.workspace_dir.join(at.org.to_string());
            let (location, first, seeded) =
                (at.location.clone(), row.fence == 0, row.seed.is_some() || has_origin);
            match blocking(move || disk::shared(&folder, &location, first, seeded)).await {
                Ok(Some(found)) => Ok(Place::of(found)),
                // A file system that is not mounted yet looks the same. The worker that has it may be asked next.
                Ok(None) => Err(Absence::Away(unavailable(
                    "the workspace is on another worker's disk and cannot be taken over \
                     without a shared --workspace-dir; start that worker again, give all workers \
                     one folder, or let them restore snapshots with --workspace-disk own"
                        .to_owned(),
                ))),
                Err(error) => Err(Absence::Away(unmade(options, &error))),
            }
        }
    }
}

/// Returns why no session works in a directory of this machine, if that is so. Its row has the real path: if a link leads there
/// now, it was put there since, and by a session perhaps.
async fn refuse_local(hidden: HiddenPaths, root: PathBuf) -> Option<String> {
    let shown = root.display().to_string();
    let look = move || {
        if let Some(own) = hidden.around(&root) {
            return Some(format!(
                "a session cannot work in {}: {} holds the service's own data or somebody's credentials; choose a \
                 project's directory",
                root.display(),
                own.display()
            ));
        }
        // One that is not there has a sentence of its own.
        let real = root.canonicalize().ok().filter(|real| *real != root)?;
        Some(format!(
            "the directory {} was replaced by a link to {} since the session began; put it back, or begin a session there",
            root.display(),
            real.display()
        ))
    };
    let looked = tokio::task::spawn_blocking(look).await;
    looked.unwrap_or_else(|_ended| Some(format!("{shown} cannot be looked at; try again")))
}

/// Returns this token's directory on this worker's own disk. `last` is the token that was there before.
async fn own_files(
    runtime: &Runtime,
    options: &WorkerOptions,
    at: &LocationRef,
    token: FencingToken,
    last: FencingToken,
) -> Result<Found, StoreError> {
    let packs = runtime.store.workspace_packs(at.clone()).await?;
    let newest = packs.iter().map(|pack| pack.token).max();
    let last = Some(last).filter(|last| newest.is_none_or(|newest| newest <= *last));
    let folder = options.workspace_dir.join(at.org.to_string());
    let location = at.location.clone();
    Ok(match blocking(move || disk::own(&folder, &location, token, last)).await {
        Ok(found) => Ok(Place::of(found)),
        Err(error) => Err(Absence::Away(unmade(options, &error))),
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await?
}

fn unmade(options: &WorkerOptions, error: &io::Error) -> SessionError {
    let folder = options.workspace_dir.display();
    unavailable(format!("the workspace cannot be made in {folder}: {error}"))
}

fn unavailable(message: String) -> SessionError {
    SessionError { code: ErrorCode::WorkspaceUnavailable.into(), message }
}

/// The reason why a Location's lock was not taken.
enum LockFailure {
    /// A later token holds it.
    Superseded,
    /// It is unavailable; the reason.
    Held(String),
}

impl From<LockError> for LockFailure {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Superseded { .. } => Self::Superseded,
            LockError::StillHeld { .. } | LockError::Io { .. } => Self::Held(chain(&error)),
        }
    }
}

async fn lock(
    folder: PathBuf,
    at: &LocationRef,
    token: FencingToken,
) -> Result<LocationLock, LockFailure> {
    let path = folder.join(format!("{}-{}.lock", at.org, at.location));
    let lock = LocationLock { path, token: token.0 };
    let held = lock.clone();
    let taken = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&folder).map_err(|error| LockFailure::Held(error.to_string()))?;
        Ok(sandbox::lock::acquire_or_kill(&held, LOCK_WAIT)?)
    });
    let killed = taken.await.unwrap_or_else(|error| Err(LockFailure::Held(error.to_string())))?;
    if !killed.is_empty() {
        warn!(location.id = %at.location, ?killed, "ended the tools of the Location's earlier owner");
    }
    Ok(lock)
}

#[cfg(test)]
pub(crate) mod tests;
