//! Reads which changes of files count for a session.

use std::collections::{BTreeSet, HashMap};

use domain::{FileChange, MessageId, Seq, SessionId, SnapshotTree};
use store::{SessionRow, Store};

use crate::error::ApiError;
use crate::view::{AddedSteps, DiffView, SummaryView};

/// The most changes in one query.
const CHANGES: i64 = 1_000;

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

/// The changes that calls of a session made, added up.
#[derive(Debug, Default)]
pub(crate) struct SessionChanges {
    pub(crate) diff: DiffView,
    /// The files before the first change.
    pub(crate) from: Option<SnapshotTree>,
    /// The files after the last change.
    pub(crate) to: Option<SnapshotTree>,
    /// Every path that a change lists.
    pub(crate) paths: BTreeSet<String>,
    /// Whether a change has files that it does not list.
    pub(crate) unlisted: bool,
}

/// Returns the changes that calls of the session made, without those that a staged Revert has taken back. Reads them page
/// by page, and keeps one page at a time.
pub(crate) async fn changes(
    store: &Store,
    row: &SessionRow,
    message: Option<MessageId>,
) -> Result<SessionChanges, ApiError> {
    let mut all = SessionChanges::default();
    let mut steps = AddedSteps::default();
    let mut after = Seq(0);
    loop {
        let (org, session) = (row.at.org, row.at.session.clone());
        let page = store.changes(org, session, message.clone(), after, CHANGES).await?;
        after = page.items.last().map_or(after, |change| change.seq);
        for change in page.items {
            if change.base || !is_shown(row, change.seq) {
                continue;
            }
            if all.to.replace(change.tree).is_none() {
                all.from = change.parent;
            }
            all.unlisted |= change.more > 0;
            all.paths.extend(change.files.iter().map(|file| file.path.clone()));
            steps.add(change.files, change.more);
        }
        if !page.more {
            break;
        }
    }
    all.diff = steps.into_diff();
    Ok(all)
}

/// Returns whether a change at `seq` still stands: no staged Revert has taken it back.
fn is_shown(row: &SessionRow, seq: Seq) -> bool {
    row.revert.as_ref().is_none_or(|staged| seq < staged.from)
}
