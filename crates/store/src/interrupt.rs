use domain::{
    Author, EventId, Feature, IdMint, LocationId, OrgId, Seq, SessionId, Stamp, TimestampMs,
};

use crate::{Store, StoreError};

/// The effect of an interrupt.
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

/// The effect of an interrupt that lets the session go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumed {
    /// Where the session runs.
    pub location: LocationId,
    /// The interrupt's place in the log; `None` when there was nothing to interrupt.
    pub interrupt: Option<Seq>,
    /// The wake's; `None` when nothing is to go on.
    pub wake: Option<Seq>,
}

impl Store {
    /// Asks a session to stop, and to go on with what steers it or with a control that is next; other queued
    /// input stays parked. Wakes an idle session for these too. One statement, one commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session; [`StoreError::Feature`].
    pub async fn interrupt_and_resume(
        &self,
        org: OrgId,
        session: SessionId,
        by: Option<Author>,
        now: TimestampMs,
    ) -> Result<Resumed, StoreError> {
        self.require(Feature::Controls).await?;
        let by = written(by)?;
        self.at_head(org, &session.to_string(), move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), now);
                let (event, wake) = (EventId::mint(&mut mint), EventId::mint(&mut mint));
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location, wake
                           FROM interrupt_and_resume($1, $2, $3, $4, $5, $6, $7)"#,
                    org.0,
                    session.as_str(),
                    event.as_str(),
                    wake.as_str(),
                    mint.last().0,
                    now,
                    by,
                )
                .fetch_one(&mut *connection)
                .await?;
                match (row.outcome.as_str(), row.location) {
                    ("applied" | "idle", Some(location)) => Ok(Resumed {
                        location: location.parse()?,
                        interrupt: row.seq.map(Seq),
                        wake: row.wake.map(Seq),
                    }),
                    ("missing", _) => Err(StoreError::NotFound),
                    (other, _) => Err(StoreError::Unreadable(format!("outcome {other}"))),
                }
            })
        })
        .await
    }

    /// Asks a session to stop (I6). Durable when it returns; the hint to the owner is the caller's.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn interrupt(
        &self,
        org: OrgId,
        session: SessionId,
        by: Option<Author>,
        now: TimestampMs,
    ) -> Result<Interrupted, StoreError> {
        let by = written(by)?;
        self.at_head(org, &session.to_string(), move |connection| {
            Box::pin(async move {
                let mut mint = IdMint::after(Stamp::default(), now);
                let event = EventId::mint(&mut mint);
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq, location
                   FROM interrupt_session($1, $2, $3, $4, $5, $6)"#,
                    org.0,
                    session.as_str(),
                    event.as_str(),
                    mint.last().0,
                    now,
                    by,
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

/// The JSON of an interrupt's author.
fn written(by: Option<Author>) -> Result<Option<String>, StoreError> {
    let json = by.map(|by| serde_json::to_string(&by)).transpose();
    json.map_err(|error| StoreError::Unreadable(error.to_string()))
}
