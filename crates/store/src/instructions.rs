use domain::{OrgId, TimestampMs};

use crate::{Store, StoreError};

/// Instructions of an organisation to the models of all its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrganisationInstructions {
    /// The text.
    pub text: String,
    /// When it was set.
    pub updated_ms: TimestampMs,
}

impl Store {
    /// An organisation's instructions; `None` without any. One round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn organisation_instructions(
        &self,
        org: OrgId,
    ) -> Result<Option<OrganisationInstructions>, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"SELECT text AS "text!", updated_ms AS "updated_ms!"
                           FROM read_organisation_instructions($1)"#,
                        org.0,
                    )
                    .fetch_optional(&mut *connection)
                    .await?;
                    Ok(row.map(|row| OrganisationInstructions {
                        text: row.text,
                        updated_ms: row.updated_ms,
                    }))
                })
            })
            .await
    }

    /// Sets an organisation's instructions; `None` removes them. Sessions are told at their next
    /// boundaries.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_organisation_instructions(
        &self,
        org: OrgId,
        text: Option<String>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                match text {
                    Some(text) => sqlx::query!(
                        "INSERT INTO organisation_instructions (org_id, text, updated_ms) VALUES ($1, $2, $3)
                         ON CONFLICT (org_id) DO UPDATE SET text = excluded.text,
                             updated_ms = excluded.updated_ms",
                        org.0,
                        text,
                        now,
                    )
                    .execute(&mut **tx)
                    .await?,
                    None => sqlx::query!(
                        "DELETE FROM organisation_instructions WHERE org_id = $1",
                        org.0
                    )
                    .execute(&mut **tx)
                    .await?,
                };
                Ok(())
            })
        })
        .await
    }
}
