//! The complete outputs of a session's calls, which are kept beside their bounded results.

use domain::{OrgId, SessionId};

use crate::Store;
use crate::error::StoreError;

impl Store {
    /// Returns the names of a session's complete outputs, the newest first, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn kept_outputs(
        &self,
        org: OrgId,
        session: SessionId,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let names = sqlx::query_scalar!(
                    r#"SELECT substr(t.managed_path, length('/tool-output/') + 1) AS "name!"
                     FROM session s
                         JOIN tool_result t ON t.org_id = s.org_id AND t.incarnation = s.incarnation
                     WHERE s.org_id = $1 AND s.id = $2 AND t.managed_path IS NOT NULL
                     ORDER BY t.called_seq DESC
                     LIMIT $3"#,
                    org.0,
                    session.as_str(),
                    limit,
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(names)
            })
        })
        .await
    }

    /// Returns whether a result of the session names that complete output.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_kept_output(
        &self,
        org: OrgId,
        session: SessionId,
        name: String,
    ) -> Result<bool, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let has = sqlx::query_scalar!(
                    r#"SELECT EXISTS (SELECT FROM session s
                         JOIN tool_result t ON t.org_id = s.org_id AND t.incarnation = s.incarnation
                     WHERE s.org_id = $1 AND s.id = $2 AND t.managed_path = '/tool-output/' || $3) AS "has!""#,
                    org.0,
                    session.as_str(),
                    name,
                )
                .fetch_one(&mut *connection)
                .await?;
                Ok(has)
            })
        })
        .await
    }
}
