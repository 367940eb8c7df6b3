//! Patches and bundles of sessions that somebody has asked for.

use domain::{IdMint, LocationId, OrgId, OutId, SessionId, SessionRef, Stamp, TimestampMs};
use uuid::Uuid;

use crate::{Store, StoreError};

/// A patch or a bundle, as its row has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutRow {
    /// Its id.
    pub id: OutId,
    /// The session.
    pub session: SessionId,
    /// The session's Location when it was asked for.
    pub location: LocationId,
    /// `patch` or `bundle`.
    pub kind: String,
    /// `asked`, `made`, `nothing` or `failed`.
    pub state: String,
    /// Its blob and bytes, once it is made.
    pub blob: Option<(String, i64)>,
    /// The first commit.
    pub base: Option<String>,
    /// The newest commit.
    pub head: Option<String>,
    /// The commit of what was not committed.
    pub wip: Option<String>,
    /// Why it could not be made.
    pub fault: Option<String>,
}

/// How the making of a patch or a bundle ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutMade {
    /// `made`, `nothing` or `failed`.
    pub state: &'static str,
    /// Its blob and bytes.
    pub blob: Option<(String, i64)>,
    /// The first commit.
    pub base: Option<String>,
    /// The newest commit.
    pub head: Option<String>,
    /// The commit of what was not committed.
    pub wip: Option<String>,
    /// Why it could not be made.
    pub fault: Option<String>,
}

impl Store {
    /// Asks for a patch or a bundle.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ask_out(
        &self,
        of: SessionRef,
        kind: &'static str,
        now: TimestampMs,
    ) -> Result<OutId, StoreError> {
        let id = OutId::mint(&mut IdMint::after(Stamp::default(), now));
        let made = id.clone();
        self.in_tenant(of.org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "INSERT INTO session_out (org_id, id, session_id, location_id, kind, state, asked_ms)
                     VALUES ($1, $2, $3, $4, $5, 'asked', $6)",
                    of.org.0,
                    id.as_str(),
                    of.session.as_str(),
                    of.location.as_str(),
                    kind,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await?;
        Ok(made)
    }

    /// A patch or bundle that was asked for.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without it.
    pub async fn session_out(&self, org: OrgId, id: OutId) -> Result<OutRow, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, session_id, location_id, kind, state, blob, bytes, base, head, wip, fault
                     FROM session_out WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                Ok(OutRow {
                    id: row.id.parse()?,
                    session: row.session_id.parse()?,
                    location: row.location_id.parse()?,
                    kind: row.kind,
                    state: row.state,
                    blob: row.blob.zip(row.bytes),
                    base: row.base,
                    head: row.head,
                    wip: row.wip,
                    fault: row.fault,
                })
            })
        })
        .await
    }

    /// Those that nobody makes: asked for in the last hour, and not claimed, or by a worker that has not ended in time.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn asked_outs(
        &self,
        now: TimestampMs,
        limit: i64,
    ) -> Result<Vec<(OrgId, OutId)>, StoreError> {
        let oldest = now.saturating_sub(3_600_000);
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "SELECT org_id, id FROM session_out
                         WHERE state = 'asked' AND asked_ms >= $1 AND (claimed_ms IS NULL OR claimed_ms < $2)
                         ORDER BY asked_ms LIMIT $3",
                        oldest,
                        now,
                        limit,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let read = |org: Uuid, id: &str| Ok((OrgId(org), id.parse()?));
                    rows.into_iter().map(|row| read(row.org_id, &row.id)).collect()
                })
            })
            .await
    }

    /// Takes one up until `until`. False if another worker has.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn claim_out(
        &self,
        org: OrgId,
        id: OutId,
        now: TimestampMs,
        until: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let claimed = sqlx::query!(
                    "UPDATE session_out SET claimed_ms = $4 WHERE org_id = $1 AND id = $2 AND state = 'asked'
                         AND (claimed_ms IS NULL OR claimed_ms < $3)",
                    org.0,
                    id.as_str(),
                    now,
                    until,
                )
                .execute(&mut **tx)
                .await?;
                Ok(claimed.rows_affected() == 1)
            })
        })
        .await
    }

    /// Ends one. Rows of more than a day ago are forgotten with it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_out(
        &self,
        org: OrgId,
        id: OutId,
        made: OutMade,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let (blob, bytes) = made.blob.unzip();
                sqlx::query!(
                    "UPDATE session_out SET state = $3, blob = $4, bytes = $5, base = $6, head = $7, wip = $8, fault = $9
                     WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    made.state,
                    blob,
                    bytes,
                    made.base,
                    made.head,
                    made.wip,
                    made.fault,
                )
                .execute(&mut **tx)
                .await?;
                sqlx::query!(
                    "DELETE FROM session_out WHERE org_id = $1 AND asked_ms < $2",
                    org.0,
                    now.saturating_sub(86_400_000),
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }
}
