//! Queries of the feed of a whole organisation: how far its sessions have come.

use domain::{OrgId, Seq, SessionId, SessionRef, TimestampMs};

use crate::{Store, StoreError};

/// How far a session has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgHead {
    /// The session.
    pub session: SessionRef,
    /// The highest number of its log.
    pub seq: Seq,
    /// Whether it has work or a drain has it.
    pub busy: bool,
}

impl Store {
    /// The heads of an organisation's `newest` newest sessions (by id) and of at most `busy` each that have
    /// work or sleep, in no order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn org_heads(
        &self,
        org: OrgId,
        newest: i64,
        busy: i64,
    ) -> Result<Vec<OrgHead>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"(SELECT id AS "id!", location_id AS "location_id!", next_seq AS "next_seq!",
                       (ready OR open) AS "ready!"
                    FROM session_head WHERE org_id = $1 ORDER BY id LIMIT $2)
                   UNION
                   (SELECT id, location_id, next_seq, true
                    FROM session_head WHERE org_id = $1 AND ready LIMIT $3)
                   UNION
                   (SELECT id, location_id, next_seq, true
                    FROM session_head WHERE org_id = $1 AND asleep LIMIT $3)"#,
                    org.0,
                    newest,
                    busy,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        Ok(OrgHead {
                            session: SessionRef {
                                org,
                                location: row.location_id.parse()?,
                                session: row.id.parse()?,
                            },
                            seq: Seq(row.next_seq - 1),
                            busy: row.ready,
                        })
                    })
                    .collect()
            })
        })
        .await
    }

    /// The highest number of a session's log that was written before `time`; 0 without one. Writers'
    /// clocks may differ.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn seq_before(
        &self,
        org: OrgId,
        session: SessionId,
        time: TimestampMs,
    ) -> Result<Seq, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let seq = sqlx::query_scalar!(
                    r#"SELECT coalesce(max(seq), 0)::bigint AS "seq!" FROM session_event
                   WHERE org_id = $1 AND time_ms < $3 AND incarnation =
                       (SELECT incarnation FROM session_head WHERE org_id = $1 AND id = $2)"#,
                    org.0,
                    session.as_str(),
                    time,
                )
                .fetch_one(&mut *connection)
                .await?;
                Ok(Seq(seq))
            })
        })
        .await
    }
}
