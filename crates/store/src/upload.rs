//! Packs that people send from their own machines, and which commits they need not send.

use domain::{IdMint, OrgId, RepositoryId, Stamp, TimestampMs, UploadId};

use crate::{Store, StoreError};

impl Store {
    /// Returns an id for an upload. Its blob is stored under it before [`Store::add_upload`] names it.
    #[must_use]
    pub fn mint_upload(now: TimestampMs) -> UploadId {
        UploadId::mint(&mut IdMint::after(Stamp::default(), now))
    }

    /// Notes an upload whose blob is stored.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn add_upload(
        &self,
        org: OrgId,
        id: UploadId,
        bytes: i64,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "INSERT INTO upload (org_id, id, bytes, created_ms) VALUES ($1, $2, $3, $4)",
                    org.0,
                    id.as_str(),
                    bytes,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Of these commits, those whose whole history the repository's packs have.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn known_commits(
        &self,
        org: OrgId,
        repository: RepositoryId,
        of: Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let known = sqlx::query_scalar!(
                    "SELECT DISTINCT commit FROM repository_pack
                     WHERE org_id = $1 AND repository_id = $2 AND commit = ANY($3)",
                    org.0,
                    repository.as_str(),
                    &of,
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(known)
            })
        })
        .await
    }
}
