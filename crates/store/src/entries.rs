//! Context that clients set on a session, which the model is told at its next boundary.

use domain::{EntryRemoved, EntrySet, OrgId, Seq, SessionEvent, SessionId, TimestampMs};

use crate::{Store, StoreError};

/// Entries that one session may have.
pub const MAX_ENTRIES: usize = 64;

/// How a write of an entry went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryChange {
    /// It is durable, at this place in the log.
    Done(Seq),
    /// It was so already; nothing changed.
    Unchanged,
    /// The session has [`MAX_ENTRIES`] others; nothing changed.
    Full,
}

impl Store {
    /// A session's context entries by key, as JSON text, in the order of their keys.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn entries(
        &self,
        org: OrgId,
        session: SessionId,
    ) -> Result<Vec<(String, String)>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT e.key AS "key?", e.value AS "value?" FROM session_head h
                       LEFT JOIN session_entry e ON e.org_id = h.org_id
                           AND e.incarnation = h.incarnation
                       WHERE h.org_id = $1 AND h.id = $2 ORDER BY e.key"#,
                    org.0,
                    session.as_str(),
                )
                .fetch_all(&mut *connection)
                .await?;
                if rows.is_empty() {
                    return Err(StoreError::NotFound);
                }
                Ok(rows.into_iter().filter_map(|row| row.key.zip(row.value)).collect())
            })
        })
        .await
    }

    /// Sets a context entry. It wakes nobody: the next boundary tells it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn set_entry(
        &self,
        org: OrgId,
        session: SessionId,
        entry: EntrySet,
        now: TimestampMs,
    ) -> Result<EntryChange, StoreError> {
        self.log_one((org, &session.clone()), now, move |connection, minted| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq
                           FROM set_entry($1, $2, $3, $4, $5, $6, $7, $8, $9)"#,
                    org.0,
                    session.as_str(),
                    entry.key,
                    entry.value,
                    i32::try_from(MAX_ENTRIES).unwrap_or(i32::MAX),
                    minted.event.as_str(),
                    minted.stamp,
                    now,
                    SessionEvent::from(entry.clone()).payload(),
                )
                .fetch_one(&mut *connection)
                .await?;
                changed(&row.outcome, row.seq)
            })
        })
        .await
    }

    /// Removes a context entry. It wakes nobody: the next boundary tells that it no longer applies.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the session.
    pub async fn remove_entry(
        &self,
        org: OrgId,
        session: SessionId,
        key: String,
        now: TimestampMs,
    ) -> Result<EntryChange, StoreError> {
        self.log_one((org, &session.clone()), now, move |connection, minted| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT outcome AS "outcome!", seq
                           FROM remove_entry($1, $2, $3, $4, $5, $6, $7)"#,
                    org.0,
                    session.as_str(),
                    key,
                    minted.event.as_str(),
                    minted.stamp,
                    now,
                    SessionEvent::from(EntryRemoved { key: key.clone() }).payload(),
                )
                .fetch_one(&mut *connection)
                .await?;
                changed(&row.outcome, row.seq)
            })
        })
        .await
    }
}

fn changed(outcome: &str, seq: Option<i64>) -> Result<EntryChange, StoreError> {
    match (outcome, seq) {
        ("set" | "removed", Some(seq)) => Ok(EntryChange::Done(Seq(seq))),
        ("same" | "gone", _) => Ok(EntryChange::Unchanged),
        ("full", _) => Ok(EntryChange::Full),
        ("missing", _) => Err(StoreError::NotFound),
        (other, _) => Err(StoreError::Unreadable(format!("outcome {other}"))),
    }
}
