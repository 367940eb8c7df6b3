//! Packs that people send from their own machines, and which commits they need not send.

use domain::{IdMint, OrgId, RepositoryId, Stamp, TimestampMs, UploadId};

use sqlx::PgConnection;

use crate::{Store, StoreError};

/// The least that an upload counts for, in bytes: so their number has an end too.
const LEAST_BYTES: u64 = 64 * 1024;

/// An upload whose blob is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUpload {
    /// Its id, which its blob has too.
    pub id: UploadId,
    /// The size of its pack.
    pub bytes: u64,
    /// The gateway's time.
    pub now: TimestampMs,
}

/// The end of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadNote {
    /// A session may begin with it.
    Added,
    /// The organisation has no room for it, and nothing was noted.
    Full {
        /// The bytes that its uploads count for.
        stored: u64,
    },
}

impl Store {
    /// Returns an id for an upload. Its blob is stored under it before [`Store::add_upload`] names it.
    #[must_use]
    pub fn mint_upload(now: TimestampMs) -> UploadId {
        UploadId::mint(&mut IdMint::after(Stamp::default(), now))
    }

    /// Notes an upload whose blob is stored, unless the organisation's uploads would then have more than `most` bytes. They are
    /// asked for one upload after the other.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn add_upload(
        &self,
        org: OrgId,
        upload: NewUpload,
        most: u64,
    ) -> Result<UploadNote, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "SELECT pg_advisory_xact_lock(hashtextextended('upload ' || $1::uuid, 0))",
                    org.0,
                )
                .fetch_one(&mut **tx)
                .await?;
                let NewUpload { id, bytes, now } = upload;
                let stored = bytes_of_uploads(tx, org).await?;
                if stored.saturating_add(bytes.max(LEAST_BYTES)) > most {
                    return Ok(UploadNote::Full { stored });
                }
                sqlx::query!(
                    "INSERT INTO upload (org_id, id, bytes, created_ms) VALUES ($1, $2, $3, $4)",
                    org.0,
                    id.as_str(),
                    i64::try_from(bytes).unwrap_or(i64::MAX),
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(UploadNote::Added)
            })
        })
        .await
    }

    /// The bytes that an organisation's uploads count for: those of their packs, and of a small one 64 KiB.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn bytes_of_uploads(&self, org: OrgId) -> Result<u64, StoreError> {
        self.read(org, move |connection| Box::pin(bytes_of_uploads(connection, org))).await
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

async fn bytes_of_uploads(connection: &mut PgConnection, org: OrgId) -> Result<u64, StoreError> {
    let least = i64::try_from(LEAST_BYTES).unwrap_or(i64::MAX);
    let bytes = sqlx::query_scalar!(
        r#"SELECT least(coalesce(sum(greatest(bytes, $2)), 0), 9223372036854775807)::bigint AS "bytes!"
           FROM upload WHERE org_id = $1"#,
        org.0,
        least,
    );
    let bytes = bytes.fetch_one(connection).await?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
