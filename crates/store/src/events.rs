use domain::{Claim, OrgId, RecordedEvent, Seq, SessionEvent, SessionId};

use crate::pool::Tx;
use crate::{Store, StoreError};

/// The log of a session after `after`, in order, at most `limit` events.
pub(crate) async fn read_events(
    tx: &mut Tx,
    org: OrgId,
    session: &SessionId,
    after: Seq,
    limit: i64,
) -> Result<Vec<RecordedEvent>, StoreError> {
    let rows = sqlx::query!(
        "SELECT seq, id, kind, version, time_ms, claim, payload FROM session_event
         WHERE org_id = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4",
        org.0,
        session.as_str(),
        after.0,
        limit,
    )
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(RecordedEvent {
                seq: Seq(row.seq),
                id: row.id.parse()?,
                time: row.time_ms,
                claim: row.claim.map(Claim),
                event: SessionEvent::read(&row.kind, row.version, &row.payload)?,
            })
        })
        .collect()
}

impl Store {
    /// A page of a session's log, in order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn events(
        &self,
        org: OrgId,
        session: SessionId,
        after: Seq,
        limit: i64,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let store = self.clone();
        tasks::detached(async move {
            let mut tx = store.tenant(org).await?;
            let events = read_events(&mut tx, org, &session, after, limit).await?;
            if events.is_empty() {
                // Every session has its first event, so only an empty tail needs the question.
                let there = sqlx::query_scalar!(
                    r#"SELECT EXISTS (SELECT FROM session_head WHERE org_id = $1 AND id = $2) AS "there!""#,
                    org.0,
                    session.as_str(),
                )
                .fetch_one(&mut *tx)
                .await?;
                if !there {
                    return Err(StoreError::NotFound);
                }
            }
            tx.commit().await?;
            Ok(events)
        })
        .await
    }
}
