//! Data keys, wrapped: what secrets of an organisation are sealed with. Nothing here can open one.

use std::fmt;

use domain::{OrgId, TimestampMs};

use crate::{Store, StoreError};

/// A data key of an organisation, as it is kept: wrapped by a master key that the database never sees.
#[derive(Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// Its number within the organisation.
    pub id: i32,
    /// Which master key wraps it.
    pub key_id: String,
    /// The wrapped key.
    pub wrapped: Vec<u8>,
}

/// Something sealed by a data key.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The data key's number.
    pub secret: i32,
    /// The bytes that only that key opens.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for WrappedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, key_id, wrapped } = self;
        write!(f, "WrappedKey({id} by {key_id}, {} bytes)", wrapped.len())
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes by {})", self.bytes.len(), self.secret)
    }
}

impl Store {
    /// The newest data key of an organisation; `None` before its first secret.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn newest_secret(&self, org: OrgId) -> Result<Option<WrappedKey>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                Ok(sqlx::query_as!(
                    WrappedKey,
                    "SELECT id, key_id, wrapped FROM organisation_secret WHERE org_id = $1
                     ORDER BY id DESC LIMIT 1",
                    org.0,
                )
                .fetch_optional(&mut **tx)
                .await?)
            })
        })
        .await
    }

    /// A data key by its number.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none of this number.
    pub async fn secret(&self, org: OrgId, id: i32) -> Result<WrappedKey, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query_as!(
                    WrappedKey,
                    "SELECT id, key_id, wrapped FROM organisation_secret WHERE org_id = $1 AND id = $2",
                    org.0,
                    id,
                )
                .fetch_optional(&mut **tx)
                .await?
                .ok_or(StoreError::NotFound)
            })
        })
        .await
    }

    /// Keeps a new data key. `false`: there is one of this number already, which another process made first; read
    /// that one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn add_secret(
        &self,
        org: OrgId,
        key: WrappedKey,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let added = sqlx::query!(
                    "INSERT INTO organisation_secret (org_id, id, key_id, wrapped, created_ms)
                     VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
                    org.0,
                    key.id,
                    key.key_id,
                    key.wrapped,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(added.rows_affected() == 1)
            })
        })
        .await
    }

    /// Puts the same data key, wrapped anew, in the place of the one that `from` wraps. `false`: somebody else did.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn rewrap_secret(
        &self,
        org: OrgId,
        from: String,
        key: WrappedKey,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let changed = sqlx::query!(
                    "UPDATE organisation_secret SET key_id = $4, wrapped = $5
                     WHERE org_id = $1 AND id = $2 AND key_id = $3",
                    org.0,
                    key.id,
                    from,
                    key.key_id,
                    key.wrapped,
                )
                .execute(&mut **tx)
                .await?;
                Ok(changed.rows_affected() == 1)
            })
        })
        .await
    }

    /// Forgets a data key that seals nothing any more, unless it is the organisation's newest. `false`: it stays.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_unused_secret(&self, org: OrgId, id: i32) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                // A secret that is sealed meanwhile refers to it: then this fails, or the sealing.
                let removed = sqlx::query!(
                    "DELETE FROM organisation_secret s WHERE s.org_id = $1 AND s.id = $2
                         AND EXISTS (SELECT FROM organisation_secret n WHERE n.org_id = $1 AND n.id > $2)
                         AND NOT EXISTS (SELECT FROM credential c WHERE c.org_id = $1 AND c.secret_id = $2)
                         AND NOT EXISTS (SELECT FROM oauth_attempt o WHERE o.org_id = $1 AND o.secret_id = $2)
                         AND NOT EXISTS (SELECT FROM provider_setting p WHERE p.org_id = $1 AND p.secret_id = $2)
                         AND NOT EXISTS (SELECT FROM idp i WHERE i.org_id = $1 AND i.secret_id = $2)
                         AND NOT EXISTS (SELECT FROM idp_login l WHERE l.org_id = $1 AND l.secret_id = $2)
                         AND NOT EXISTS (SELECT FROM login_attempt a WHERE a.org_id = $1 AND a.secret_id = $2)",
                    org.0,
                    id,
                )
                .execute(&mut **tx)
                .await?;
                Ok(removed.rows_affected() == 1)
            })
        })
        .await
    }

    /// At most `limit` data keys, of all organisations, that another master key than `key_id` wraps.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn secrets_not_under(
        &self,
        key_id: String,
        limit: i64,
    ) -> Result<Vec<(OrgId, i32)>, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
            let rows = sqlx::query!(
                "SELECT org_id, id FROM organisation_secret WHERE key_id <> $1 ORDER BY org_id, id LIMIT $2",
                key_id,
                limit,
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(|row| (OrgId(row.org_id), row.id)).collect())
                })
            })
            .await
    }
}
