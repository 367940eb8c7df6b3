use access::Actor;
use domain::{KeyId, OrgId, TimestampMs};

use crate::connections::{Limit, bounded};
use crate::pool::Tx;
use crate::principal::read_actor;
use crate::{SeenRoles, Store, StoreError, revocation};

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

/// A key of a person or service account to be stored; only the hash of its secret ever is.
#[derive(Debug, Clone)]
pub struct NewOwnedKey {
    /// Its id, which is in its text.
    pub id: KeyId,
    /// SHA-256 of its text.
    pub hash: Vec<u8>,
    /// For people.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// Whose it is.
    pub owner: Actor,
    /// When it stops working.
    pub expires_ms: Option<TimestampMs>,
}

/// A key in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRow {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// Whose it is.
    pub owner: Actor,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_ms: TimestampMs,
    /// When it stops working.
    pub expires_ms: Option<TimestampMs>,
    /// Within a minute, when it was last used.
    pub used_ms: Option<TimestampMs>,
    /// When it was revoked.
    pub revoked_ms: Option<TimestampMs>,
}

struct Row {
    id: String,
    name: String,
    owner: String,
    scopes: Vec<String>,
    created_ms: TimestampMs,
    expires_ms: Option<TimestampMs>,
    used_ms: Option<TimestampMs>,
    revoked_ms: Option<TimestampMs>,
}

impl TryFrom<Row> for KeyRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id,
            name: row.name,
            owner: read_actor(&row.owner)?,
            scopes: row.scopes,
            created_ms: row.created_ms,
            expires_ms: row.expires_ms,
            used_ms: row.used_ms,
            revoked_ms: row.revoked_ms,
        })
    }
}

/// The most keys in one list: those that were made last.
const MOST: i64 = 500;
/// The most keys of one owner that are not over.
pub const MAX_KEYS: i64 = 100;
/// The most secrets of a key: its own, and replaced ones in their grace.
const MAX_SECRETS: i64 = 2;

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

    /// Stores a key of a person or service account. `seen` are the roles on which that was allowed; `None` for a key of
    /// one's own.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when its id is taken, or its owner has [`MAX_KEYS`]; [`StoreError::NotFound`] without
    /// such an owner; [`StoreError::RolesChanged`] when `seen` does not hold any more.
    pub async fn create_owned_key(
        &self,
        org: OrgId,
        key: NewOwnedKey,
        seen: Option<SeenRoles>,
        now: TimestampMs,
    ) -> Result<KeyRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                if let Some(seen) = seen {
                    seen.prove_maker(tx, org).await?;
                }
                // Keys of one owner are made one after the other, so that their bound holds.
                let owner = sqlx::query_scalar!(
                    "SELECT id FROM principal WHERE org_id = $1 AND id = $2 AND disabled_ms IS NULL FOR UPDATE",
                    org.0,
                    key.owner.id(),
                );
                owner.fetch_optional(&mut **tx).await?.ok_or(StoreError::NotFound)?;
                let count = sqlx::query_scalar!(
                    r#"SELECT count(*) AS "count!" FROM api_key WHERE org_id = $1 AND principal_id = $2
                        AND revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > $3)"#,
                    org.0,
                    key.owner.id(),
                    now,
                );
                if count.fetch_one(&mut **tx).await? >= MAX_KEYS {
                    return Err(StoreError::Conflict { what: "the most keys that one owner has" });
                }
                let added = sqlx::query!(
                    "INSERT INTO api_key (org_id, id, name, scopes, created_ms, expires_ms, principal_id)
                    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING",
                    org.0,
                    key.id.as_str(),
                    key.name,
                    &key.scopes,
                    now,
                    key.expires_ms,
                    key.owner.id(),
                )
                .execute(&mut **tx)
                .await?;
                if added.rows_affected() == 0 {
                    return Err(StoreError::Conflict { what: "a key with this id" });
                }
                add_secret(tx, org, &key.id, &key.hash, now).await?;
                find(tx, org, key.id.as_str()).await
            })
        })
        .await
    }

    /// Returns the keys of an organisation, the newest first, at most 500: those of one owner, or all.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keys(&self, org: OrgId, owner: Option<Actor>) -> Result<Vec<KeyRow>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    Row,
                    r#"SELECT id, name, coalesce(principal_id, 'svc_first') AS "owner!", scopes, created_ms, expires_ms,
                        used_ms, revoked_ms FROM api_key
                    WHERE org_id = $1 AND ($2::text IS NULL OR coalesce(principal_id, 'svc_first') = $2)
                    ORDER BY created_ms DESC, id LIMIT $3"#,
                    org.0,
                    owner.as_ref().map(Actor::id),
                    MOST,
                )
                .fetch_all(&mut *connection)
                .await?;
                rows.into_iter().map(KeyRow::try_from).collect()
            })
        })
        .await
    }

    /// Returns a key.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none.
    pub async fn key(&self, org: OrgId, id: KeyId) -> Result<KeyRow, StoreError> {
        self.in_tenant(org, move |tx| Box::pin(async move { find(tx, org, id.as_str()).await }))
            .await
    }

    /// Gives a key a second secret. The ones before it work until `until_ms`, and so do the logins and links that the key has
    /// begun: whoever has an old secret has them too. `seen` are the roles on which that was
    /// allowed; `None` for a key of one's own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such key that is valid; [`StoreError::Conflict`] when its rotation
    /// before is not over; [`StoreError::RolesChanged`] when `seen` does not hold any more.
    pub async fn rotate_key(
        &self,
        org: OrgId,
        id: KeyId,
        hash: Vec<u8>,
        until_ms: TimestampMs,
        seen: Option<SeenRoles>,
        now: TimestampMs,
    ) -> Result<KeyRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let known = sqlx::query_scalar!(
                    "SELECT id FROM api_key WHERE org_id = $1 AND id = $2 AND revoked_ms IS NULL
                        AND (expires_ms IS NULL OR expires_ms > $3) FOR UPDATE",
                    org.0,
                    id.as_str(),
                    now,
                );
                known.fetch_optional(&mut **tx).await?.ok_or(StoreError::NotFound)?;
                if let Some(seen) = seen {
                    seen.prove_maker(tx, org).await?;
                }
                sqlx::query!(
                    "DELETE FROM key_secret WHERE org_id = $1 AND key_id = $2 AND until_ms <= $3",
                    org.0,
                    id.as_str(),
                    now,
                )
                .execute(&mut **tx)
                .await?;
                let secrets = sqlx::query_scalar!(
                    r#"SELECT count(*) AS "count!" FROM key_secret WHERE org_id = $1 AND key_id = $2"#,
                    org.0,
                    id.as_str(),
                );
                let secrets = secrets.fetch_one(&mut **tx).await?;
                if secrets == 0 {
                    return Err(StoreError::NotFound); // it has no id in its text, so it can have no second one
                }
                if secrets >= MAX_SECRETS {
                    return Err(StoreError::Conflict { what: "a rotation of this key that is not over" });
                }
                sqlx::query!(
                    "UPDATE key_secret SET until_ms = $3 WHERE org_id = $1 AND key_id = $2 AND until_ms IS NULL",
                    org.0,
                    id.as_str(),
                    until_ms,
                )
                .execute(&mut **tx)
                .await?;
                end_begun_by_key(tx, org, &id, until_ms, now).await?;
                add_secret(tx, org, &id, &hash, now).await?;
                find(tx, org, id.as_str()).await
            })
        })
        .await
    }

    /// Revokes a key, and ends the logins that it began. With `stop_work`, what it admitted is stopped too. Revoking it again changes nothing but that.
    /// `seen` are the roles on which that was allowed; `None` for a key of one's own.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is none; [`StoreError::RolesChanged`] when `seen` does not hold any more.
    pub async fn revoke_key(
        &self,
        org: OrgId,
        id: KeyId,
        stop_work: bool,
        seen: Option<SeenRoles>,
        now: TimestampMs,
    ) -> Result<KeyRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE api_key SET revoked_ms = coalesce(revoked_ms, $3) WHERE org_id = $1 AND id = $2",
                    org.0,
                    id.as_str(),
                    now,
                )
                .execute(&mut **tx)
                .await?;
                sqlx::query!(
                    "UPDATE login SET ended_ms = $3 WHERE org_id = $1 AND key_id = $2 AND ended_ms IS NULL",
                    org.0,
                    id.as_str(),
                    now,
                )
                .execute(&mut **tx)
                .await?;
                let row = find(tx, org, id.as_str()).await?;
                // Last, since what notes when somebody was seen locks keys and logins before people.
                if let Some(seen) = seen {
                    seen.prove_maker(tx, org).await?;
                    seen.prove_target(tx, org, &row.owner).await?;
                }
                if stop_work {
                    revocation::ask(tx, org, id.as_str(), now).await?;
                }
                Ok(row)
            })
        })
        .await
    }

    /// Notes when keys, logins and their owners were last seen.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn note_seen(
        &self,
        org: OrgId,
        keys: Vec<String>,
        logins: Vec<String>,
        actors: Vec<String>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE api_key SET used_ms = greatest(used_ms, $3) WHERE org_id = $1 AND id = ANY ($2)",
                    org.0,
                    &keys,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                sqlx::query!(
                    "UPDATE login SET seen_ms = greatest(seen_ms, $3) WHERE org_id = $1 AND id = ANY ($2)",
                    org.0,
                    &logins,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                sqlx::query!(
                    "UPDATE principal SET seen_ms = greatest(seen_ms, $3) WHERE org_id = $1 AND id = ANY ($2)",
                    org.0,
                    &actors,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(())
            })
        })
        .await
    }
}

/// Ends the logins and links that a key has begun at `until_ms`: at once if that is now.
async fn end_begun_by_key(
    tx: &mut Tx,
    org: OrgId,
    key: &KeyId,
    until_ms: TimestampMs,
    now: TimestampMs,
) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE login_link SET expires_ms = least(expires_ms, $3), until_ms = least(until_ms, $3)
         WHERE org_id = $1 AND key_id = $2",
        org.0,
        key.as_str(),
        until_ms,
    )
    .execute(&mut **tx)
    .await?;
    sqlx::query!(
        "UPDATE login SET expires_ms = least(expires_ms, $3), ended_ms = CASE WHEN $3 <= $4::bigint THEN $4 END
         WHERE org_id = $1 AND key_id = $2 AND ended_ms IS NULL",
        org.0,
        key.as_str(),
        until_ms,
        now,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn add_secret(
    tx: &mut Tx,
    org: OrgId,
    id: &KeyId,
    hash: &[u8],
    now: TimestampMs,
) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO key_secret (org_id, key_id, hash, created_ms) VALUES ($1, $2, $3, $4)",
        org.0,
        id.as_str(),
        hash,
        now,
    )
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn find(tx: &mut Tx, org: OrgId, id: &str) -> Result<KeyRow, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"SELECT id, name, coalesce(principal_id, 'svc_first') AS "owner!", scopes, created_ms, expires_ms, used_ms,
            revoked_ms FROM api_key WHERE org_id = $1 AND id = $2"#,
        org.0,
        id,
    )
    .fetch_optional(&mut **tx)
    .await?;
    row.ok_or(StoreError::NotFound)?.try_into()
}
