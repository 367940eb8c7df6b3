//! Stopping what revoked keys and people have admitted.

use domain::{MessageId, OrgId, SessionId, TimestampMs};

use crate::pool::Tx;
use crate::{Store, StoreError};

/// How long after a revocation a gateway may admit something for it still: its belief ends after this.
pub const STILL_ADMITTED: TimestampMs = 10_000;

/// A key, person or service account whose admitted work is to be stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Its organisation.
    pub org: OrgId,
    /// The id of the key, person or service account.
    pub subject: String,
    /// Since when.
    pub at_ms: TimestampMs,
}

/// The work that a session still does for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdmittedWork {
    /// The session.
    pub session: SessionId,
    /// Inputs that wait.
    pub waiting: Vec<MessageId>,
    /// Whether its drain works on a prompt of theirs, or may.
    pub is_running: bool,
}

/// Asks for the work of a key, person or service account to be stopped.
pub(crate) async fn ask(
    tx: &mut Tx,
    org: OrgId,
    subject: &str,
    now: TimestampMs,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO revocation (org_id, subject, at_ms) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        org.0,
        subject,
        now,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Stops nothing more of a person or service account that is enabled again.
pub(crate) async fn forget(tx: &mut Tx, org: OrgId, subject: &str) -> Result<(), StoreError> {
    sqlx::query!("DELETE FROM revocation WHERE org_id = $1 AND subject = $2", org.0, subject)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

impl Store {
    /// Returns the revocations whose work is not known to have stopped, at most 100.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn open_revocations(&self) -> Result<Vec<Revocation>, StoreError> {
        self.sched()
            .run(|connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        "SELECT org_id, subject, at_ms FROM revocation WHERE done_ms IS NULL
                        ORDER BY at_ms LIMIT 100"
                    );
                    let rows = rows.fetch_all(&mut *connection).await?;
                    let all = rows.into_iter().map(|row| Revocation {
                        org: OrgId(row.org_id),
                        subject: row.subject,
                        at_ms: row.at_ms,
                    });
                    Ok(all.collect())
                })
            })
            .await
    }

    /// Notes that the work of a revocation has stopped.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_revocation(&self, of: Revocation, now: TimestampMs) -> Result<(), StoreError> {
        self.in_tenant(of.org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE revocation SET done_ms = $4 WHERE org_id = $1 AND subject = $2 AND at_ms = $3",
                    of.org.0,
                    of.subject,
                    of.at_ms,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Returns what sessions still do for a key, person or service account, at most 1,000 inputs.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn admitted_work(
        &self,
        org: OrgId,
        subject: String,
    ) -> Result<Vec<AdmittedWork>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT h.id AS "session!", i.id AS "input?", i.promoted_seq
                    FROM session_head h
                    CROSS JOIN LATERAL (
                        (SELECT id, promoted_seq, admitted_seq FROM session_input
                         WHERE incarnation = h.incarnation::integer AND status = 'admitted')
                        UNION ALL
                        (SELECT id, promoted_seq, admitted_seq FROM session_input
                         WHERE incarnation = h.incarnation::integer AND status = 'promoted' AND h.open
                         ORDER BY admitted_seq DESC LIMIT 1)) AS i
                    JOIN session_event e ON e.incarnation = h.incarnation::integer AND e.seq = i.admitted_seq
                    WHERE h.org_id = $1 AND (h.ready OR h.open OR h.asleep OR h.pending > 0)
                        AND (e.payload::jsonb -> 'by' ->> 'key' = $2 OR e.payload::jsonb -> 'by' ->> 'actor' = $2)
                    LIMIT 1000"#,
                    org.0,
                    subject,
                )
                .fetch_all(&mut *connection)
                .await?;
                let mut work: Vec<AdmittedWork> = Vec::new();
                for row in rows {
                    let session: SessionId = row.session.parse()?;
                    let known = work.iter().position(|of| of.session == session);
                    let at = known.unwrap_or_else(|| {
                        work.push(AdmittedWork { session, waiting: Vec::new(), is_running: false });
                        work.len() - 1
                    });
                    match (row.promoted_seq, row.input) {
                        (None, Some(input)) => work[at].waiting.push(input.parse()?),
                        _ => work[at].is_running = true,
                    }
                }
                Ok(work)
            })
        })
        .await
    }
}
