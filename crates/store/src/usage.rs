//! Sums of usage: what sessions used, counted once from their logs, behind them (docs/decisions/0076).
//!
//! ```text
//! session_change ─position─▶ sessions that may have new events ─roll_up_usage─▶ sums, and how far each session is counted
//! ```
//!
//! The position only says where to look. That an event is counted once is kept by `usage_through`, in the transaction
//! that adds its sums. So a caller may end anywhere, and several may do the same work.

use domain::{OrgId, TimestampMs};
use tracing::warn;
use uuid::Uuid;

use crate::connections::Limit;
use crate::{Store, StoreError};

/// The most sessions of one statement.
const AT_ONCE: usize = 200;

/// Where an organisation's sessions may have events that are not counted.
#[derive(Debug, Clone)]
pub struct UsageDue {
    org: OrgId,
    /// The sessions.
    pub sessions: Vec<String>,
    next_xid: String,
    running: Vec<String>,
    read: TimestampMs,
    /// Names the rows of `session_change` that were read: all of them, since no crash lost any.
    epoch: Uuid,
}

impl Store {
    /// The organisations whose sessions have changed since they were last counted, or that nobody has looked at for
    /// twenty minutes or since a crash of Postgres: a position that is older than the rows of `session_change` costs a
    /// look at all sessions.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn uncounted_organisations(&self) -> Result<Vec<OrgId>, StoreError> {
        self.sched()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query_scalar!(
                        r#"SELECT o.org_id FROM organisation o LEFT JOIN usage_cursor c ON c.org_id = o.org_id
                           WHERE c.org_id IS NULL
                               OR c.read_ms NOT BETWEEN (extract(epoch FROM now()) * 1000)::bigint - 1200000
                                   AND (extract(epoch FROM now()) * 1000)::bigint
                               OR NOT EXISTS (SELECT FROM change_epoch e WHERE e.id = c.epoch)
                               OR EXISTS (SELECT FROM session_change s WHERE s.org_id = o.org_id AND s.xid >= c.next_xid)
                               OR EXISTS (SELECT FROM session_change s
                                   WHERE s.org_id = o.org_id AND s.xid = ANY (c.running))"#
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    Ok(rows.into_iter().map(OrgId).collect())
                })
            })
            .await
    }

    /// Counts what is new of an organisation's sessions. Returns how many had something new, perhaps.
    ///
    /// # Errors
    /// When the database fails: what is counted stays counted, and the next call goes on.
    pub async fn count_usage(&self, org: OrgId) -> Result<usize, StoreError> {
        let due = self.due_usage(org).await?;
        for sessions in due.sessions.chunks(AT_ONCE) {
            if self.count_sessions(org, sessions.to_vec()).await.is_err() {
                // A log that cannot be counted holds up no other.
                for session in sessions {
                    match self.count_sessions(org, vec![session.clone()]).await {
                        Err(error) if is_of_data(&error) => {
                            warn!(%error, session, "the log of a session cannot be counted");
                        }
                        counted => counted?,
                    }
                }
            }
        }
        let sessions = due.sessions.len();
        self.keep_usage_position(due).await?;
        Ok(sessions)
    }

    /// Counts all that is new of these sessions.
    async fn count_sessions(&self, org: OrgId, sessions: Vec<String>) -> Result<(), StoreError> {
        while self.roll_up_usage(org, sessions.clone()).await? {}
        Ok(())
    }

    /// Finds the sessions that may have events which are not counted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn due_usage(&self, org: OrgId) -> Result<UsageDue, StoreError> {
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"SELECT sessions AS "sessions!", next_xid AS "next_xid!", running AS "running!", read_ms AS "read_ms!",
                               epoch AS "epoch!"
                           FROM changed_sessions($1)"#,
                        org.0
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(UsageDue {
                        org,
                        sessions: row.sessions,
                        next_xid: row.next_xid,
                        running: row.running,
                        read: row.read_ms,
                        epoch: row.epoch,
                    })
                })
            })
            .await
    }

    /// Counts what is new of these sessions, at most some 20,000 events. Returns whether more is left.
    ///
    /// # Errors
    /// When the database fails; then nothing of it is counted, or all of it.
    pub async fn roll_up_usage(
        &self,
        org: OrgId,
        sessions: Vec<String>,
    ) -> Result<bool, StoreError> {
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let is_more = sqlx::query_scalar!(
                        r#"SELECT roll_up_usage($1, $2) AS "is_more!""#,
                        org.0,
                        &sessions
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(is_more)
                })
            })
            .await
    }

    /// Keeps the position of `due`, after all its sessions were counted. An older one that comes late only makes work again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_usage_position(&self, due: UsageDue) -> Result<(), StoreError> {
        self.in_tenant(due.org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "INSERT INTO usage_cursor (org_id, next_xid, running, read_ms, epoch)
                     VALUES ($1, $2::text::xid8, $3::text[]::xid8[], $4, $5)
                     ON CONFLICT (org_id) DO UPDATE
                     SET next_xid = excluded.next_xid, running = excluded.running, read_ms = excluded.read_ms,
                         epoch = excluded.epoch",
                    due.org.0,
                    due.next_xid,
                    &due.running,
                    due.read,
                    due.epoch,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }
}

/// Whether Postgres could not make sense of what is stored: it would say the same again.
fn is_of_data(error: &StoreError) -> bool {
    let StoreError::Database(error) = error else { return false };
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
}
