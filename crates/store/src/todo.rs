//! A session's list of tasks: the result of the newest call of `todowrite`.

use domain::{OrgId, SessionId, ToolOutcomeKind};

use crate::Store;
use crate::error::StoreError;

impl Store {
    /// Returns the validated result of a session's newest completed call of `todowrite`, as JSON text; `None` without one.
    /// A Revert takes calls away, and so the list goes back with it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn todos(
        &self,
        org: OrgId,
        session: SessionId,
    ) -> Result<Option<String>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let structured = sqlx::query_scalar!(
                    "SELECT t.structured
                     FROM session s
                         JOIN tool_result t ON t.org_id = s.org_id AND t.incarnation = s.incarnation
                     WHERE s.org_id = $1 AND s.id = $2 AND t.tool = 'todowrite' AND t.outcome = $3
                     ORDER BY t.called_seq DESC
                     LIMIT 1",
                    org.0,
                    session.as_str(),
                    ToolOutcomeKind::Completed.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?;
                Ok(structured.flatten())
            })
        })
        .await
    }
}
