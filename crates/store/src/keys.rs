use domain::{OrgId, TimestampMs};

use crate::connections::{Limit, bounded};
use crate::{Store, StoreError};

/// A key to be stored; only its hash ever is.
#[derive(Debug, Clone)]
pub struct NewKey {
    /// Its id, shown in lists.
    pub id: String,
    /// SHA-256 of the key.
    pub hash: Vec<u8>,
    /// For people.
    pub name: String,
    /// Its permissions.
    pub scopes: Vec<String>,
    /// When it stops working.
    pub expires_ms: Option<TimestampMs>,
}

/// The identity and permissions that a key proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyGrant {
    /// Whose it is.
    pub org: OrgId,
    /// Its id.
    pub id: String,
    /// Its permissions.
    pub scopes: Vec<String>,
    /// When it stops working.
    pub expires_ms: Option<TimestampMs>,
}

impl Store {
    /// Creates an organisation if it is not there.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ensure_organisation(
        &self,
        org: OrgId,
        name: String,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.tenant(org).await?;
            sqlx::query!(
                "INSERT INTO organisation (org_id, name, created_ms) VALUES ($1, $2, $3)
                 ON CONFLICT DO NOTHING",
                org.0,
                name,
                now,
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// Stores a key. Storing the same one again changes nothing.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when its id or hash is another key's.
    pub async fn create_key(
        &self,
        org: OrgId,
        key: NewKey,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.tenant(org).await?;
            let added = sqlx::query!(
                "INSERT INTO api_key (org_id, id, hash, name, scopes, created_ms, expires_ms)
                 VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
                org.0,
                key.id,
                key.hash,
                key.name,
                &key.scopes,
                now,
                key.expires_ms,
            )
            .execute(&mut *tx)
            .await?;
            if added.rows_affected() == 0 {
                let same = sqlx::query_scalar!(
                    r#"SELECT EXISTS (SELECT FROM api_key WHERE org_id = $1 AND hash = $2) AS "same!""#,
                    org.0,
                    key.hash,
                )
                .fetch_one(&mut *tx)
                .await?;
                if !same {
                    return Err(StoreError::Conflict { what: "a key with this id" });
                }
            }
            tx.commit().await?;
            Ok(())
        })
        .await
    }

    /// How many keys an organisation has, revoked ones included.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn count_keys(&self, org: OrgId) -> Result<i64, StoreError> {
        let store = self.clone();
        bounded(Limit::Short, async move {
            let mut tx = store.tenant(org).await?;
            let count = sqlx::query_scalar!(
                r#"SELECT count(*) AS "count!" FROM api_key WHERE org_id = $1"#,
                org.0,
            )
            .fetch_one(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(count)
        })
        .await
    }

    /// Finds whose key has this hash; the one look-up that is made without a tenant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no valid key has it.
    pub async fn key_by_hash(
        &self,
        hash: Vec<u8>,
        now: TimestampMs,
    ) -> Result<KeyGrant, StoreError> {
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
            let row = sqlx::query!(
                "SELECT org_id, id, scopes, expires_ms FROM api_key
                 WHERE hash = $1 AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $2)",
                hash,
                now,
            )
            .fetch_optional(&mut *connection)
            .await?
            .ok_or(StoreError::NotFound)?;
            Ok(KeyGrant {
                org: OrgId(row.org_id),
                id: row.id,
                scopes: row.scopes,
                expires_ms: row.expires_ms,
            })
                })
            })
            .await
    }
}
