//! The rows that say which sessions each commit has changed, for feeds of a whole organisation. The functions that write
//! the log write them too, and the sums of usage read them (docs/decisions/0058, 0085).

use domain::{LocationId, OrgId, Seq, SessionId, SessionIncarnation, TimestampMs};
use uuid::Uuid;

use crate::connections::Limit;
use crate::{Store, StoreError};

/// How far a reader has read the changes of an organisation's sessions: a snapshot of Postgres.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePosition {
    epoch: Uuid,
    next_xid: String,
    running: Vec<String>,
    read_ms: TimestampMs,
}

/// A session that commits have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChange {
    /// Its id.
    pub session: SessionId,
    /// Which session with this id.
    pub incarnation: SessionIncarnation,
    /// Its Location now; `None` if it is gone now.
    pub location: Option<LocationId>,
    /// The first new event; 0 if there is none, or nobody knows.
    pub first: Seq,
    /// The last new event; 0 without one.
    pub last: Seq,
    /// It was deleted.
    pub gone: bool,
}

/// The changes since a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionChanges {
    /// The position behind them.
    pub position: ChangePosition,
    /// Whether the position before was not believed. Then these are the newest sessions as they are now, and one that
    /// is missing may be gone.
    pub is_list: bool,
    /// The sessions, of one id the older first.
    pub sessions: Vec<SessionChange>,
}

impl Store {
    /// Returns the sessions of an organisation that commits have changed since `after`: each commit and each deletion
    /// that is visible now and was not then. Without a position, or with one that is too old or from before a crash of
    /// Postgres, it lists the `most` newest sessions.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn session_changes(
        &self,
        org: OrgId,
        after: Option<ChangePosition>,
        most: i64,
    ) -> Result<SessionChanges, StoreError> {
        let (epoch, next_xid, running, read_ms) = match after {
            Some(it) => (Some(it.epoch), Some(it.next_xid), Some(it.running), Some(it.read_ms)),
            None => (None, None, None, None),
        };
        self.lane(org)
            .run(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"SELECT epoch AS "epoch!", next_xid AS "next_xid!", running AS "running!", read_ms AS "read_ms!",
                               listed AS "listed!", sessions AS "sessions!", incarnations AS "incarnations!",
                               locations AS "locations!: Vec<Option<String>>", firsts AS "firsts!", lasts AS "lasts!",
                               gone AS "gone!"
                           FROM read_session_changes($1, $2, $3, $4, $5, $6)"#,
                        org.0,
                        epoch,
                        next_xid,
                        running.as_deref(),
                        read_ms,
                        most,
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    let marks = row.incarnations.into_iter().zip(row.locations);
                    let events = row.firsts.into_iter().zip(row.lasts).zip(row.gone);
                    let sessions = row.sessions.into_iter().zip(marks).zip(events).map(
                        |((session, (incarnation, location)), ((first, last), gone))| {
                            Ok(SessionChange {
                                session: session.parse()?,
                                incarnation: SessionIncarnation(incarnation),
                                location: location.map(|id| id.parse()).transpose()?,
                                first: Seq(first),
                                last: Seq(last),
                                gone,
                            })
                        },
                    );
                    Ok(SessionChanges {
                        sessions: sessions.collect::<Result<_, StoreError>>()?,
                        is_list: row.listed,
                        position: ChangePosition {
                            epoch: row.epoch,
                            next_xid: row.next_xid,
                            running: row.running,
                            read_ms: row.read_ms,
                        },
                    })
                })
            })
            .await
    }

    /// Forgets the changes of sessions that are three hours old, of all organisations. Returns whether there were any.
    ///
    /// # Errors
    /// When the database fails, or a reader of them takes longer than a second.
    pub async fn forget_changes(&self) -> Result<bool, StoreError> {
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let forgot = sqlx::query_scalar!(r#"SELECT forget_changes() AS "forgot!""#)
                        .fetch_one(&mut *connection)
                        .await?;
                    Ok(forgot)
                })
            })
            .await
    }
}
