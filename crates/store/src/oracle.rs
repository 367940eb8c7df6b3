//! The invariants that rows alone can show, checked after every fault run and by `rebuild --check`.
//!
//! `oracle.sql` selects what must not be, each named by its invariant. It looks at some sessions at a time, so that its
//! work grows with what is stored and no statement's does. Absent: I7, which [`Store::rebuild`] proves, and I10, which
//! only placement's log can show.

use domain::OrgId;

use crate::connections::{Limit, bounded};
use crate::pool::Tx;
use crate::{Store, StoreError};

/// Violations in one answer.
const MOST: usize = 100;
/// Events that one statement looks at, unless one session has more.
const EVENTS: i64 = 20_000;
/// Sessions that one statement looks at.
const SESSIONS: usize = 500;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one, such as `I5`.
    pub invariant: String,
    /// The session.
    pub session: String,
    /// The finding.
    pub found: String,
}

impl Store {
    /// Every violation that the rows of an organisation show, at most 100, by session. `settled` adds what must
    /// hold once faults have stopped and nothing runs (I11).
    ///
    /// # Errors
    /// When the database fails, or does not finish the check of one session in two minutes.
    pub async fn violations(
        &self,
        org: OrgId,
        settled: bool,
    ) -> Result<Vec<Violation>, StoreError> {
        let mut found = Vec::new();
        for page in paged(self.logs(org).await?) {
            found.extend(self.violations_of(org, settled, page).await?);
            if found.len() >= MOST {
                break;
            }
        }
        found.truncate(MOST);
        Ok(found)
    }

    /// Every session that has a row, with the number of its events.
    async fn logs(&self, org: OrgId) -> Result<Vec<(String, i64)>, StoreError> {
        let store = self.clone();
        bounded(Limit::Long, async move {
            let mut tx = store.long_tx(org).await?;
            // A log or an input without a head is a violation too, unless its session is deleted in pages.
            let rows = sqlx::query!(
                r#"SELECT id AS "id!", max(events) AS "events!" FROM (
                       SELECT id, next_seq AS events FROM session_head WHERE org_id = $1
                       UNION ALL
                       SELECT 'incarnation ' || e.incarnation, e.seq FROM session_event e
                       WHERE e.org_id = $1 AND NOT EXISTS (
                           SELECT FROM session_head h WHERE h.org_id = $1 AND h.incarnation = e.incarnation)
                         AND NOT EXISTS (
                           SELECT FROM gone_session g WHERE g.org_id = $1 AND g.incarnation = e.incarnation)
                       UNION ALL
                       SELECT 'incarnation ' || i.incarnation, 1 FROM session_input i
                       WHERE i.org_id = $1 AND NOT EXISTS (
                           SELECT FROM session_head h WHERE h.org_id = $1 AND h.incarnation = i.incarnation)
                         AND NOT EXISTS (
                           SELECT FROM gone_session g WHERE g.org_id = $1 AND g.incarnation = i.incarnation)
                   ) AS log GROUP BY id ORDER BY id"#,
                org.0,
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(rows.into_iter().map(|row| (row.id, row.events)).collect())
        })
        .await
    }

    async fn violations_of(
        &self,
        org: OrgId,
        settled: bool,
        sessions: Vec<String>,
    ) -> Result<Vec<Violation>, StoreError> {
        let store = self.clone();
        bounded(Limit::Check, async move {
            let mut tx = store.long_tx(org).await?;
            let found = violations_in(&mut tx, org, settled, &sessions).await?;
            tx.commit().await?;
            Ok(found)
        })
        .await
    }
}

/// The violations of some sessions, as this transaction sees their rows. It changes settings of the transaction.
pub(crate) async fn violations_in(
    tx: &mut Tx,
    org: OrgId,
    settled: bool,
    sessions: &[String],
) -> Result<Vec<Violation>, StoreError> {
    // The planner knows nothing of the size of a common table expression. It would loop over a whole log for each of
    // its events, or merge by the session alone, which is the same.
    sqlx::query!(
        "SELECT set_config('enable_nestloop', 'off', true) AS loops,
                     set_config('enable_mergejoin', 'off', true) AS merges,
                     set_config('statement_timeout', $1, true) AS limits",
        Limit::CHECK_STATEMENT,
    )
    .fetch_one(&mut **tx)
    .await?;
    let rows =
        sqlx::query_file!("src/oracle.sql", org.0, settled, sessions).fetch_all(&mut **tx).await?;
    let violation = |invariant, session, found| Violation { invariant, session, found };
    Ok(rows.into_iter().map(|row| violation(row.invariant, row.session, row.found)).collect())
}

/// The sessions in pages that a statement can look at.
fn paged(logs: Vec<(String, i64)>) -> Vec<Vec<String>> {
    let mut pages: Vec<Vec<String>> = Vec::new();
    let mut left = 0;
    for (session, events) in logs {
        match pages.last_mut() {
            Some(page) if events <= left && page.len() < SESSIONS => page.push(session),
            _ => {
                pages.push(vec![session]);
                left = EVENTS;
            }
        }
        left -= events;
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_few_events_or_one_session() {
        let logs = |events: &[i64]| events.iter().map(|n| (n.to_string(), *n)).collect();
        let pages = |events: &[i64]| paged(logs(events)).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(pages(&[]), [0; 0]);
        assert_eq!(pages(&[10_000, 10_000, 1, 100_000, 20_000, 1]), [2, 1, 1, 1, 1]);
        assert_eq!(pages(&[1; SESSIONS + 1]), [SESSIONS, 1]);
    }
}
