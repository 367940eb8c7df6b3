//! Directories of this machine that this gateway may look into.

use std::path::PathBuf;

use checkouts::Checkouts;
use store::LocationKind;
use tracing::debug;

use super::resolve::workspace;
use crate::ApiState;

/// Returns what looks into a directory, and its real path, if it is one of this machine.
pub(crate) async fn local_checkout<'s>(
    state: &'s ApiState,
    directory: &str,
) -> Option<(&'s Checkouts, PathBuf)> {
    let checkouts = state.checkouts()?;
    let place = workspace(state.settings(), Some(directory)).await.ok()?;
    (place.kind == LocationKind::Local).then(|| (checkouts, PathBuf::from(place.directory)))
}

/// Returns whether a directory belongs to a git checkout on this machine, as far as that can be told now.
pub(crate) async fn is_checkout(state: &ApiState, directory: &str) -> bool {
    let Some((checkouts, path)) = local_checkout(state, directory).await else { return false };
    match checkouts.read_branch(&path).await {
        Ok(branch) => branch.is_some(),
        Err(error) => {
            debug!(%error, "a directory does not say whether it is a checkout");
            false
        }
    }
}
