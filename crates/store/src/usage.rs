//! Sums of usage: what sessions used, counted once from their logs, behind them (docs/decisions/0076).
//!
//! ```text
//! session_change ─position─▶ sessions that may have new events ─roll_up_usage─▶ sums, and how far each session is counted
//! ```
//!
//! The position only says where to look. That an event is counted once is kept by `usage_through`, in the transaction
//! that adds its sums. So a caller may end anywhere, and several may do the same work.

use domain::{OrgId, TimestampMs};
use uuid::Uuid;

use crate::connections::Limit;
use crate::{Store, StoreError, UsageCounter};

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

    /// Counts what is new of an organisation's sessions, once. Returns how many had something new, perhaps. Who counts again
    /// and again has a [`UsageCounter`].
    ///
    /// # Errors
    /// When the database fails: what is counted stays counted, and the next call goes on.
    pub async fn count_usage(&self, org: OrgId) -> Result<usize, StoreError> {
        UsageCounter::new(self.clone()).count(org).await
    }

    /// The sessions that have events which are not counted, whatever position is known: a look at all sessions.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) async fn uncounted_sessions(&self, org: OrgId) -> Result<Vec<String>, StoreError> {
        self.long_lane(org)
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    let sessions = sqlx::query_scalar!(
                        r#"SELECT sessions AS "sessions!" FROM due_usage($1)"#,
                        org.0
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(sessions)
                })
            })
            .await
    }

    /// Finds the sessions that may have events which are not counted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn due_usage(&self, org: OrgId) -> Result<UsageDue, StoreError> {
        self.long_lane(org)
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
        // Who has the sums of an organisation may be a while at them: a deletion, or another that counts.
        self.long_at_head(org, "usage", move |connection| {
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
