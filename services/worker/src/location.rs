use std::path::PathBuf;
use std::time::Duration;

use domain::{FencingToken, LocationRef, SessionError};
use sandbox::LocationLock;
use session::Workspace;
use store::{LocationKind, LocationRow, Store, StoreError};
use tracing::warn;

use crate::options::WorkerOptions;

/// What models are shown instead of a managed workspace's real path.
const SHOWN: &str = "/workspace";

/// How long an earlier owner's tools may take to let go before they are killed.
const LOCK_WAIT: Duration = Duration::from_secs(1);

/// Takes a Location over: makes or finds its files, raises its fence, and ends what an earlier owner's
/// tools still do there. Nothing may start at the Location before this returns.
pub(crate) async fn take_over(
    store: &Store,
    options: &WorkerOptions,
    at: &LocationRef,
    token: FencingToken,
) -> Result<Workspace, StoreError> {
    let row = store.location(at.org, at.location.clone()).await?;
    let found = find_files(options, at, &row).await;
    store.raise_fence(at.clone(), token).await?;
    let (root, shown) = match found {
        Ok(found) => found,
        Err((shown, error)) => return Ok(Workspace::missing(shown, error)),
    };
    match lock(options, at, token).await {
        Ok(lock) => {
            let workspace = Workspace::at(root, shown, Some(lock));
            Ok(match row.kind {
                LocationKind::Local => workspace.in_project(),
                LocationKind::Managed => workspace,
            })
        }
        Err(message) => {
            warn!(location.id = %at.location, %message, "the Location's lock cannot be had");
            let error = SessionError { code: "workspace.locked".into(), message };
            Ok(Workspace::missing(shown, error))
        }
    }
}

/// The real directory and what it is shown as.
async fn find_files(
    options: &WorkerOptions,
    at: &LocationRef,
    row: &LocationRow,
) -> Result<(PathBuf, String), (String, SessionError)> {
    match row.kind {
        LocationKind::Local => {
            let root = PathBuf::from(&row.directory);
            if is_directory(&root).await {
                Ok((root, row.directory.clone()))
            } else {
                let message = format!(
                    "the directory {} does not exist on this worker; create it, or use another",
                    row.directory
                );
                Err((row.directory.clone(), unavailable(message)))
            }
        }
        LocationKind::Managed => {
            let root = options.workspace_dir.join(at.org.to_string()).join(at.location.as_str());
            // The first holder makes the folder before it raises the fence, so that a later one that
            // does not see it knows that it is on another disk.
            if row.fence == 0
                && let Err(error) = tokio::fs::create_dir_all(&root).await
            {
                let message =
                    format!("the workspace cannot be made at {}: {error}", root.display());
                return Err((SHOWN.into(), unavailable(message)));
            }
            if is_directory(&root).await {
                Ok((root, SHOWN.into()))
            } else {
                let message = "the workspace is on another worker's disk and cannot be taken over \
                    without a shared --workspace-dir; start that worker again, or give all workers \
                    one folder"
                    .to_owned();
                Err((SHOWN.into(), unavailable(message)))
            }
        }
    }
}

async fn is_directory(path: &PathBuf) -> bool {
    tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir())
}

fn unavailable(message: String) -> SessionError {
    SessionError { code: "workspace.unavailable".into(), message }
}

async fn lock(
    options: &WorkerOptions,
    at: &LocationRef,
    token: FencingToken,
) -> Result<LocationLock, String> {
    let folder = options.lock_dir.clone();
    let path = folder.join(format!("{}-{}.lock", at.org, at.location));
    let lock = LocationLock { path, token: token.0 };
    let held = lock.clone();
    let taken = tokio::task::spawn_blocking(move || {
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        sandbox::lock::acquire_or_kill(&held, LOCK_WAIT).map_err(|error| error.to_string())
    });
    let killed = taken.await.map_err(|error| error.to_string())??;
    if !killed.is_empty() {
        warn!(location.id = %at.location, ?killed, "ended the tools of the Location's earlier owner");
    }
    Ok(lock)
}
