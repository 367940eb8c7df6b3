use std::collections::BTreeSet;

use domain::{OrgId, RecordedEvent, Seq, SessionId};

use crate::connections::{Limit, bounded};
use crate::events::read_events;
use crate::{Store, StoreError};

/// The findings of a rebuild of one session's projections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildReport {
    /// The session.
    pub session: SessionId,
    /// Events folded.
    pub events: usize,
    /// Rows that were there and are not rebuilt, `table: row`, at most 20.
    pub missing: Vec<String>,
    /// Rows that are rebuilt and were not there, at most 20.
    pub added: Vec<String>,
}

impl RebuildReport {
    /// Whether the live projections were byte for byte what the events give.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.missing.is_empty() && self.added.is_empty()
    }
}

/// Differences that a report carries per side.
const SHOWN: usize = 20;

/// Events that one statement folds.
const PAGE: i64 = 256;

impl Store {
    /// Folds a session's events into its projections anew, under the head's lock. With `check`, only
    /// compares: the transaction is rolled back.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session; [`StoreError::Unreadable`] when an event is newer
    /// than this build.
    pub async fn rebuild(
        &self,
        org: OrgId,
        session: SessionId,
        check: bool,
    ) -> Result<RebuildReport, StoreError> {
        let store = self.clone();
        bounded(Limit::Long, async move {
            let mut tx = store.long_tx(org).await?;
            let number = sqlx::query_scalar!(
                "SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2 FOR UPDATE",
                org.0,
                session.as_str(),
            )
            .fetch_optional(&mut *tx)
            .await?
            .ok_or(StoreError::NotFound)?;
            let before = rows(&mut tx, org, &session).await?;
            sqlx::query!("SELECT drop_projections($1, $2, $3)", org.0, session.as_str(), number)
                .execute(&mut *tx)
                .await?;
            let mut folded = 0;
            let mut known = Seq(0);
            loop {
                let page = read_events(&mut tx, org, &session, known, PAGE).await?.items;
                if page.is_empty() {
                    break;
                }
                known = project(&mut tx, org, (&session, number), known, &page).await?;
                folded += page.len();
            }
            let after = rows(&mut tx, org, &session).await?;
            if check {
                tx.rollback().await?;
            } else {
                tx.commit().await?;
            }
            let differs = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
                a.difference(b).take(SHOWN).cloned().collect()
            };
            Ok(RebuildReport {
                session,
                events: folded,
                missing: differs(&before, &after),
                added: differs(&after, &before),
            })
        })
        .await
    }
}

/// Folds the page of the log after `known`, as this build writes its events; the last number of it.
async fn project(
    tx: &mut crate::pool::Tx,
    org: OrgId,
    (session, number): (&SessionId, i64),
    known: Seq,
    page: &[RecordedEvent],
) -> Result<Seq, StoreError> {
    let mut last = known;
    for event in page {
        if event.seq.0 != last.0 + 1 {
            return Err(StoreError::Unreadable(format!("the log has no event {}", last.0 + 1)));
        }
        last = event.seq;
    }
    let times: Vec<i64> = page.iter().map(|event| event.time).collect();
    let kinds: Vec<String> = page.iter().map(|event| event.event.kind().to_owned()).collect();
    let payloads: Vec<String> = page.iter().map(|event| event.event.payload()).collect();
    sqlx::query!(
        "SELECT project_events($1, $2, $3, $4, $5, $6, $7)",
        org.0,
        &vec![session.as_str().to_owned(); page.len()],
        &vec![number; page.len()],
        &page.iter().map(|event| event.seq.0).collect::<Vec<_>>(),
        &times,
        &kinds,
        &payloads,
    )
    .execute(&mut **tx)
    .await?;
    Ok(last)
}

async fn rows(
    tx: &mut crate::pool::Tx,
    org: OrgId,
    session: &SessionId,
) -> Result<BTreeSet<String>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT name AS "name!", line AS "line!" FROM projection_rows($1, $2)"#,
        org.0,
        session.as_str(),
    )
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows.into_iter().map(|row| format!("{}: {}", row.name, row.line)).collect())
}
