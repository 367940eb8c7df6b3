use domain::{EventId, IdMint, LocationId, OrgId, Seq, SessionId, Stamp, TimestampMs};

use crate::{Store, StoreError};

/// What an interrupt did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interrupted {
    /// It is durable: the open turn or drain will end, or the wakes before it stay parked.
    Applied {
        /// Its place in the log.
        seq: Seq,
        /// Where the session runs.
        location: LocationId,
    },
    /// There was nothing to interrupt; nothing changed.
    Idle,
}

impl Store {
    /// Asks a session to stop (I6). Durable when it returns; the hint to the owner is the caller's.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn interrupt(
        &self,
        org: OrgId,
        session: SessionId,
        now: TimestampMs,
    ) -> Result<Interrupted, StoreError> {
        self.lane()
            .run(move |connection| {
                Box::pin(async move {
                    let mut mint = IdMint::after(Stamp::default(), now);
                    let event = EventId::mint(&mut mint);
                    let row = sqlx::query!(
                        r#"SELECT outcome AS "outcome!", seq, location
                   FROM interrupt_session($1, $2, $3, $4, $5)"#,
                        org.0,
                        session.as_str(),
                        event.as_str(),
                        mint.last().0,
                        now,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    match (row.outcome.as_str(), row.seq, row.location) {
                        ("applied", Some(seq), Some(location)) => {
                            Ok(Interrupted::Applied { seq: Seq(seq), location: location.parse()? })
                        }
                        ("idle", ..) => Ok(Interrupted::Idle),
                        ("missing", ..) => Err(StoreError::NotFound),
                        (other, ..) => Err(StoreError::Unreadable(format!("outcome {other}"))),
                    }
                })
            })
            .await
    }
}
