//! Computes which files a session, or the work on one of its messages, changed.
//!
//! The rows only count a file that several steps changed. If this gateway can read the blobs, it compares the trees
//! before and after instead.

use domain::{FileStatus, MessageId, SnapshotTree};
use schemars::JsonSchema;
use serde::Deserialize;
use snapshots::{ChangeStatus, FileChanges, SnapshotLimits, TreeId};
use store::SessionRow;

use crate::ApiState;
use crate::changes::{SessionChanges, changes};
use crate::error::ApiError;
use crate::text::id;
use crate::view::{DiffView, FileView};

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
    let packs = state.store().pack_names(row.at.org, vec![row.at.location.clone()]).await?;
    let org = row.at.org.to_string();
    let limits = SnapshotLimits::default();
    match snapshots::diff(blobs, &org, packs, &from, &to, &limits).await {
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
