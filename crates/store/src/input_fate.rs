//! The fate of an admitted prompt, for the answer to a client that sends it again.

use domain::{MessageId, OrgId, SessionId};

use crate::{Store, StoreError};

/// The fate of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputFate {
    /// It waits in the inbox. `awake`: somebody has woken the session for it, and no interrupt has parked that.
    Waiting {
        /// Whether it will be taken up by itself.
        awake: bool,
    },
    /// It is history.
    Promoted,
    /// It was taken out of the inbox, and will never run.
    Cancelled,
    /// It was history, and a Revert has taken it back.
    Reverted,
}

impl Store {
    /// Returns the fate of a session's prompt, in one statement.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the session has no prompt with this id.
    pub async fn input_fate(
        &self,
        org: OrgId,
        session: SessionId,
        prompt: MessageId,
    ) -> Result<InputFate, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT i.status AS "status!", i.wake_seq > h.parked_seq AS "awake!",
                           (m.id IS NULL OR coalesce(m.seq >= (s.revert::json->>'from')::bigint, false)) AS "reverted!"
                       FROM session_input i
                       JOIN session s ON s.org_id = i.org_id AND s.incarnation = i.incarnation
                       JOIN session_head h ON h.org_id = i.org_id AND h.id = s.id
                       LEFT JOIN message m ON m.org_id = i.org_id AND m.id = i.id
                       WHERE i.org_id = $1 AND s.id = $2 AND i.id = $3"#,
                    org.0,
                    session.as_str(),
                    prompt.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?
                .ok_or(StoreError::NotFound)?;
                match row.status.as_str() {
                    "admitted" => Ok(InputFate::Waiting { awake: row.awake }),
                    "promoted" if row.reverted => Ok(InputFate::Reverted),
                    "promoted" => Ok(InputFate::Promoted),
                    "cancelled" => Ok(InputFate::Cancelled),
                    other => Err(StoreError::Unreadable(format!("input status {other}"))),
                }
            })
        })
        .await
    }
}
