//! Reads which changes of files count for a session.

use std::collections::HashMap;

use domain::{FileChange, MessageId, Seq, SessionId};
use store::{ChangeRow, SessionRow, Store};

use crate::error::ApiError;
use crate::view::{DiffView, SummaryView};

/// Returns how much each session of one organisation changed, counted step by step. Sessions without changes are left
/// out.
pub(crate) async fn summaries(
    store: &Store,
    rows: &[SessionRow],
) -> Result<HashMap<SessionId, SummaryView>, ApiError> {
    let Some(first) = rows.first() else { return Ok(HashMap::new()) };
    let known: HashMap<&SessionId, &SessionRow> =
        rows.iter().map(|row| (&row.at.session, row)).collect();
    let ids = known.keys().map(|id| (*id).clone()).collect();
    let mut steps: HashMap<SessionId, Vec<(Vec<FileChange>, i64)>> = HashMap::new();
    for change in store.counted_changes(first.at.org, ids).await? {
        if known.get(&change.session).is_some_and(|row| is_shown(row, change.seq)) {
            steps.entry(change.session).or_default().push((change.files, change.more));
        }
    }
    let summed = steps.into_iter().map(|(id, steps)| (id, DiffView::of_steps(steps).summary()));
    Ok(summed.collect())
}

/// Returns the changes that calls of the session made, without those that a staged Revert has taken back.
pub(crate) async fn changes(
    store: &Store,
    row: &SessionRow,
    message: Option<MessageId>,
) -> Result<Vec<ChangeRow>, ApiError> {
    let (org, session) = (row.at.org, row.at.session.clone());
    let mut changes = store.changes(org, session, message).await?;
    changes.retain(|change| !change.base && is_shown(row, change.seq));
    Ok(changes)
}

/// Returns whether a change at `seq` still stands: no staged Revert has taken it back.
fn is_shown(row: &SessionRow, seq: Seq) -> bool {
    row.revert.as_ref().is_none_or(|staged| seq < staged.from)
}
