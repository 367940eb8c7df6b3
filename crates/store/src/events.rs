use domain::{Claim, OrgId, RecordedEvent, Seq, SessionEvent, SessionId};

use crate::pool::Tx;
use crate::tenant::missing;
use crate::{Store, StoreError};

/// An event from its row.
macro_rules! recorded {
    ($row:ident) => {
        Ok(RecordedEvent {
            seq: Seq($row.seq),
            id: $row.id.parse()?,
            time: $row.time_ms,
            claim: $row.claim.map(Claim),
            event: SessionEvent::read(&$row.kind, $row.version, &$row.payload)?,
        })
    };
}

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
    rows.into_iter().map(|row| recorded!(row)).collect()
}

impl Store {
    /// A page of a session's log, in order: one round trip, since gateways read on with every commit.
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
        self.lane()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                r#"SELECT seq AS "seq!", id AS "id!", kind AS "kind!", version AS "version!",
                       time_ms AS "time_ms!", claim, payload AS "payload!"
                   FROM read_log($1, $2, $3, $4)"#,
                org.0,
                session.as_str(),
                after.0,
                limit,
            )
            .fetch_all(&mut *connection)
            .await
            .map_err(missing)?;
                    rows.into_iter().map(|row| recorded!(row)).collect()
                })
            })
            .await
    }
}
