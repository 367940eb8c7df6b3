//! How much sessions changed in files: of many at once, and without the patches that most of their changes is.

use domain::{FileChange, OrgId, Seq, SessionId};

use crate::{Store, StoreError};

/// The changes of one step of a session in files, counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedChange {
    /// The session.
    pub session: SessionId,
    /// Its number in the session's log.
    pub seq: Seq,
    /// The files, without their patches.
    pub files: Vec<FileChange>,
    /// Files beyond those that are listed.
    pub more: i64,
}

impl Store {
    /// The changes of sessions in files, without those that were reverted for good: session by session, oldest first, in
    /// one statement. A session that does not exist, or changed nothing, has none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn counted_changes(
        &self,
        org: OrgId,
        sessions: Vec<SessionId>,
    ) -> Result<Vec<CountedChange>, StoreError> {
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let sessions: Vec<String> = sessions.into_iter().map(String::from).collect();
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    r#"SELECT s.id AS session_id, c.seq, c.more, (
                           SELECT coalesce(json_strip_nulls(json_agg(f))::text, '[]')
                           FROM json_to_recordset(c.files::json)
                               AS f (path text, status text, additions bigint, deletions bigint)
                       ) AS "files!"
                       FROM session s JOIN workspace_change c ON c.org_id = $1 AND c.incarnation = s.incarnation
                       WHERE s.org_id = $1 AND s.id = ANY ($2) AND NOT c.base
                           AND (c.turn_id IS NULL OR EXISTS (
                               SELECT FROM provider_turn t
                               JOIN message m ON m.org_id = t.org_id AND m.id = t.message_id
                               WHERE t.org_id = $1 AND t.id = c.turn_id))
                       ORDER BY s.id, c.seq"#,
                    org.0,
                    &sessions,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter()
                    .map(|row| {
                        Ok(CountedChange {
                            session: row.session_id.parse()?,
                            seq: Seq(row.seq),
                            files: serde_json::from_str(&row.files)
                                .map_err(|error| StoreError::Unreadable(error.to_string()))?,
                            more: row.more,
                        })
                    })
                    .collect()
            })
        })
        .await
    }
}
