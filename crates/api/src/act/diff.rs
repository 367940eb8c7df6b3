//! Computes which files a session, or the work on one of its messages, changed.
//!
//! The rows only count a file that several steps changed. If this gateway can read the blobs, it compares the trees
//! before and after instead.

use domain::{FileStatus, LocationId, LocationRef, MessageId, OrgId, SnapshotTree};
use schemars::JsonSchema;
use serde::Deserialize;
use snapshots::{ChangeStatus, FileChanges, PackRef, SnapshotLimits, TreeId};
use store::SessionRow;

use crate::ApiState;
use crate::changes::{SessionChanges, changes};
use crate::error::ApiError;
use crate::text::id;
use crate::view::{DiffView, FileView};

/// The longest chain of Locations whose packs are read: a Location may begin with a copy of another's files.
const MAX_SEEDS: usize = 16;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct DiffQuery {
    #[serde(rename = "messageID")]
    message_id: Option<String>,
}

/// Returns the changes that no staged Revert has taken back.
pub(crate) async fn diff(
    state: &ApiState,
    row: &SessionRow,
    query: DiffQuery,
) -> Result<DiffView, ApiError> {
    let message = query.message_id.as_deref().map(id::<MessageId>).transpose()?;
    let changes = changes(state.store(), row, message).await?;
    let is_partial = changes.diff.is_partial();
    let Some(blobs) = state.blobs().filter(|_| is_partial) else { return Ok(changes.diff) };
    let Some((from, to)) = ends(&changes) else { return Ok(changes.diff) };
    let packs = packs(state, row.at.org, &row.at.location).await?;
    let org = row.at.org.to_string();
    let limits = SnapshotLimits::default();
    match snapshots::diff(blobs, &org, &packs, &from, &to, &limits).await {
        Ok(whole) => Ok(only(&changes, whole)),
        Err(error) => {
            tracing::warn!(%error, session.id = %row.at.session, "a diff is made of its steps");
            Ok(changes.diff)
        }
    }
}

/// Returns the trees before the first change and after the last.
fn ends(changes: &SessionChanges) -> Option<(TreeId, TreeId)> {
    Some((tree(changes.from.as_ref()?)?, tree(changes.to.as_ref()?)?))
}

fn tree(tree: &SnapshotTree) -> Option<TreeId> {
    tree.as_str().parse().ok()
}

/// Keeps the session's own files of a comparison of the whole Location, because other sessions work there too.
fn only(changes: &SessionChanges, whole: FileChanges) -> DiffView {
    let all = changes.unlisted;
    let ours = |file: &FileView| all || changes.paths.contains(&file.file);
    let files = whole.files.into_iter().map(|file| FileView {
        file: file.path,
        patch: file.patch,
        additions: i64::try_from(file.additions).unwrap_or(i64::MAX),
        deletions: i64::try_from(file.deletions).unwrap_or(i64::MAX),
        status: match file.status {
            ChangeStatus::Added => FileStatus::Added,
            ChangeStatus::Modified => FileStatus::Modified,
            ChangeStatus::Deleted => FileStatus::Deleted,
        },
        partial: false,
    });
    let more = if all { i64::try_from(whole.more).unwrap_or(i64::MAX) } else { 0 };
    DiffView { files: files.filter(ours).collect(), more }
}

/// Returns the packs of a Location, and those of the Locations whose files it began with.
pub(crate) async fn packs(
    state: &ApiState,
    org: OrgId,
    location: &LocationId,
) -> Result<Vec<PackRef>, ApiError> {
    let mut packs = Vec::new();
    let mut next = Some(location.clone());
    for _ in 0..MAX_SEEDS {
        let Some(location) = next else { break };
        let at = LocationRef { org, location: location.clone() };
        let rows = state.store().workspace_packs(at).await?;
        packs.extend(rows.into_iter().filter_map(|row| {
            Some(PackRef {
                token: row.token,
                ordinal: row.ordinal,
                tree: tree(&row.tree)?,
                pack: row.pack,
            })
        }));
        let seed = state.store().location(org, location.clone()).await?.seed;
        // An imported session's Location begins with its own first snapshot.
        next = seed.map(|seed| seed.location).filter(|from| *from != location);
    }
    Ok(packs)
}
