//! Reads which changes of files count for a session.

use std::collections::BTreeSet;

use domain::{MessageId, Seq, SnapshotTree};
use store::{SessionRow, Store};

use crate::error::ApiError;
use crate::view::{AddedSteps, DiffView};

/// The most changes in one query.
const CHANGES: i64 = 1_000;

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
pub(crate) fn is_shown(row: &SessionRow, seq: Seq) -> bool {
    row.revert.as_ref().is_none_or(|staged| seq < staged.from)
}
