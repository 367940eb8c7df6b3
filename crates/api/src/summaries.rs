//! How much sessions changed in files, for lists of them.
//!
//! A sum goes over every step of a session, and a list has many sessions: so what was summed is kept for as long as the
//! session's log is the same, and what is new is read in small statements.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use domain::{FileChange, OrgId, Seq, SessionId, TimestampMs};
use store::{SessionRow, Store};

use crate::changes::is_shown;
use crate::error::ApiError;
use crate::view::{DiffView, SummaryView};

/// The most sums that are kept.
const KEPT: usize = 20_000;
/// The most sessions of one statement.
const AT_ONCE: usize = 50;

/// A sum, and the log that it is of: its length and the time of its session, which may be another one under the same id.
#[derive(Debug, Clone, Copy)]
struct Sum {
    created: TimestampMs,
    seq: Seq,
    summary: SummaryView,
}

/// The sums that are known.
#[derive(Debug, Default)]
pub(crate) struct Summaries(Mutex<HashMap<(OrgId, SessionId), Sum>>);

impl Summaries {
    /// Returns how much each session of one organisation changed, counted step by step.
    pub(crate) async fn read_for(
        &self,
        store: &Store,
        rows: &[SessionRow],
    ) -> Result<HashMap<SessionId, SummaryView>, ApiError> {
        let known = |row: &&SessionRow| Some((row.at.session.clone(), self.known(row)?));
        let mut all: HashMap<_, _> = rows.iter().filter_map(|row| known(&row)).collect();
        let new: Vec<_> = rows.iter().filter(|row| !all.contains_key(&row.at.session)).collect();
        for rows in new.chunks(AT_ONCE) {
            let read = read(store, rows).await?;
            self.keep(rows, &read);
            all.extend(read);
        }
        Ok(all)
    }

    fn known(&self, row: &SessionRow) -> Option<SummaryView> {
        let sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = sums.get(&(row.at.org, row.at.session.clone()))?;
        (sum.created == row.created_ms && sum.seq == row.seq).then_some(sum.summary)
    }

    fn keep(&self, rows: &[&SessionRow], read: &HashMap<SessionId, SummaryView>) {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sums.len() + rows.len() > KEPT {
            sums.clear();
        }
        for row in rows {
            let summary = read.get(&row.at.session).copied().unwrap_or_default();
            let sum = Sum { created: row.created_ms, seq: row.seq, summary };
            sums.insert((row.at.org, row.at.session.clone()), sum);
        }
    }
}

/// Reads the sums of sessions of one organisation. Those without changes are left out.
async fn read(
    store: &Store,
    rows: &[&SessionRow],
) -> Result<HashMap<SessionId, SummaryView>, ApiError> {
    let Some(first) = rows.first() else { return Ok(HashMap::new()) };
    let known: HashMap<_, _> = rows.iter().map(|row| (&row.at.session, *row)).collect();
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
