//! Credentials for model providers, sealed. One of an owner is active for a provider: turns use that one.

mod kind;

use std::time::Duration;

use domain::{OrgId, TimestampMs};

pub use self::kind::CredentialKind;
use crate::pool::Tx;
use crate::{Sealed, Store, StoreError, WrappedKey};

/// The most credentials that an organisation keeps.
pub const MAX_CREDENTIALS: i64 = 1_000;

/// A credential without its secret: what people see of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRow {
    /// Its id.
    pub id: String,
    /// Whose it is: a user's name, empty for the organisation's.
    pub owner: String,
    /// The provider it is for.
    pub provider: String,
    /// Its name for people; one of its kind for an owner and a provider.
    pub label: String,
    /// Its kind.
    pub kind: CredentialKind,
    /// Its last characters; empty when so much must not be shown.
    pub hint: String,
    /// Grows with every change of the secret.
    pub version: i64,
    /// When its access token ends, if that is known.
    pub expires_ms: Option<TimestampMs>,
    /// Whether turns of its owner use it.
    pub active: bool,
    /// Why the provider does not take it any more.
    pub fault: Option<String>,
    /// When it was added.
    pub created_ms: TimestampMs,
    /// When anything of it last changed.
    pub updated_ms: TimestampMs,
}

/// A credential with its secret, sealed, and the wrapped key that opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedCredential {
    /// The part that people see.
    pub row: CredentialRow,
    /// Its secret.
    pub sealed: Sealed,
    /// The data key that seals its secret.
    pub key: WrappedKey,
}

/// A credential to be kept. It becomes its owner's active one for the provider.
#[derive(Debug, Clone)]
pub struct NewCredential {
    /// Its id; that of the one it replaces when `version` is above 1.
    pub id: String,
    /// Whose it is; empty for the organisation's.
    pub owner: String,
    /// The provider.
    pub provider: String,
    /// Its name for people.
    pub label: String,
    /// Its kind.
    pub kind: CredentialKind,
    /// Its last characters.
    pub hint: String,
    /// Its secret, bound to this id and version.
    pub sealed: Sealed,
    /// 1 for a new one; else one more than the version it replaces.
    pub version: i64,
    /// When its access token ends.
    pub expires_ms: Option<TimestampMs>,
}

/// The outcome for a [`NewCredential`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    Kept,
    /// Another one has come in between, or has its label: look, and seal again.
    Changed,
    /// The organisation has [`MAX_CREDENTIALS`].
    Full,
}

/// A new secret for a credential that is there.
#[derive(Debug, Clone)]
pub struct Renewed {
    /// The version that it replaces.
    pub from: i64,
    /// The secret, bound to the version after.
    pub sealed: Sealed,
    /// Its last characters.
    pub hint: String,
    /// When its access token ends.
    pub expires_ms: Option<TimestampMs>,
}

/// Changes of what people decide about a credential.
#[derive(Debug, Clone, Default)]
pub struct CredentialChange {
    /// Another label.
    pub label: Option<String>,
    /// Whether turns use it; the owner's other ones for the provider are not used then.
    pub active: Option<bool>,
}

/// The columns of a [`CredentialRow`].
struct Columns {
    id: String,
    owner: String,
    provider: String,
    label: String,
    kind: String,
    hint: String,
    version: i64,
    expires_ms: Option<i64>,
    active: bool,
    fault: Option<String>,
    created_ms: i64,
    updated_ms: i64,
}

impl TryFrom<Columns> for CredentialRow {
    type Error = StoreError;

    fn try_from(columns: Columns) -> Result<Self, StoreError> {
        Ok(Self {
            kind: columns.kind.parse()?,
            id: columns.id,
            owner: columns.owner,
            provider: columns.provider,
            label: columns.label,
            hint: columns.hint,
            version: columns.version,
            expires_ms: columns.expires_ms,
            active: columns.active,
            fault: columns.fault,
            created_ms: columns.created_ms,
            updated_ms: columns.updated_ms,
        })
    }
}

/// The [`SealedCredential`] of a row that has all columns of both tables: each query has a type of its own.
macro_rules! sealed_credential {
    ($row:ident) => {{
        let columns = Columns {
            id: $row.id,
            owner: $row.owner,
            provider: $row.provider,
            label: $row.label,
            kind: $row.kind,
            hint: $row.hint,
            version: $row.version,
            expires_ms: $row.expires_ms,
            active: $row.active,
            fault: $row.fault,
            created_ms: $row.created_ms,
            updated_ms: $row.updated_ms,
        };
        let sealed = Sealed { secret: $row.secret_id, bytes: $row.sealed };
        let key = WrappedKey { id: $row.secret_id, key_id: $row.key_id, wrapped: $row.wrapped };
        CredentialRow::try_from(columns).map(|row| SealedCredential { row, sealed, key })
    }};
}

impl Store {
    /// The credential that a turn of `user` uses at `provider`: the user's active one, else the organisation's. One
    /// round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn credential_for(
        &self,
        org: OrgId,
        provider: String,
        user: Option<String>,
    ) -> Result<Option<SealedCredential>, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"SELECT id AS "id!", owner AS "owner!", provider AS "provider!", label AS "label!",
                               kind AS "kind!", hint AS "hint!", sealed AS "sealed!", secret_id AS "secret_id!",
                               version AS "version!", expires_ms, active AS "active!", fault,
                               created_ms AS "created_ms!", updated_ms AS "updated_ms!", key_id AS "key_id!",
                               wrapped AS "wrapped!"
                           FROM read_credential($1, $2, $3)"#,
                        org.0,
                        provider,
                        user.unwrap_or_default(),
                    )
                    .fetch_optional(&mut *connection)
                    .await?;
                    let Some(row) = row else { return Ok(None) };
                    sealed_credential!(row).map(Some)
                })
            })
            .await
    }

    /// A credential by its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none.
    pub async fn credential(&self, org: OrgId, id: String) -> Result<SealedCredential, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT c.id, c.owner, c.provider, c.label, c.kind, c.hint, c.sealed, c.secret_id, c.version,
                         c.expires_ms, c.active, c.fault, c.created_ms, c.updated_ms, s.key_id, s.wrapped
                     FROM credential c JOIN organisation_secret s ON s.org_id = c.org_id AND s.id = c.secret_id
                     WHERE c.org_id = $1 AND c.id = $2",
                    org.0,
                    id,
                )
                .fetch_optional(&mut **tx)
                .await?
                .ok_or(StoreError::NotFound)?;
                sealed_credential!(row)
            })
        })
        .await
    }

    /// An organisation's credentials as people see them, by provider, owner and label.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn credentials(&self, org: OrgId) -> Result<Vec<CredentialRow>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let rows = sqlx::query_as!(
                    Columns,
                    "SELECT id, owner, provider, label, kind, hint, version, expires_ms, active, fault,
                         created_ms, updated_ms
                     FROM credential WHERE org_id = $1 ORDER BY provider, owner, label LIMIT $2",
                    org.0,
                    MAX_CREDENTIALS,
                )
                .fetch_all(&mut **tx)
                .await?;
                rows.into_iter().map(TryInto::try_into).collect()
            })
        })
        .await
    }

    /// The same with their secrets, sealed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sealed_credentials(
        &self,
        org: OrgId,
    ) -> Result<Vec<SealedCredential>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT c.id, c.owner, c.provider, c.label, c.kind, c.hint, c.sealed, c.secret_id, c.version,
                         c.expires_ms, c.active, c.fault, c.created_ms, c.updated_ms, s.key_id, s.wrapped
                     FROM credential c JOIN organisation_secret s ON s.org_id = c.org_id AND s.id = c.secret_id
                     WHERE c.org_id = $1 ORDER BY c.provider, c.owner, c.label LIMIT $2",
                    org.0,
                    MAX_CREDENTIALS,
                )
                .fetch_all(&mut **tx)
                .await?;
                rows.into_iter().map(|row| sealed_credential!(row)).collect()
            })
        })
        .await
    }

    /// The id and version of the credential of this label, if there is one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn credential_labelled(
        &self,
        org: OrgId,
        provider: String,
        owner: String,
        label: String,
    ) -> Result<Option<(String, i64)>, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let row = sqlx::query!(
                    "SELECT id, version FROM credential
                     WHERE org_id = $1 AND provider = $2 AND owner = $3 AND label = $4",
                    org.0,
                    provider,
                    owner,
                    label,
                )
                .fetch_optional(&mut **tx)
                .await?;
                Ok(row.map(|row| (row.id, row.version)))
            })
        })
        .await
    }

    /// Keeps a credential and makes it its owner's active one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_credential(
        &self,
        org: OrgId,
        new: NewCredential,
        now: TimestampMs,
    ) -> Result<Kept, StoreError> {
        self.in_tenant(org, move |tx| Box::pin(async move { keep(tx, org, &new, now).await })).await
    }

    /// Replaces a credential's secret, if it still is of the version that `renewed` is from. It is in use again, if
    /// its provider refused the one before. `false`: another secret was there first, or the credential is gone.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn renew_credential(
        &self,
        org: OrgId,
        id: String,
        renewed: Renewed,
        now: TimestampMs,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let changed = sqlx::query!(
                    "UPDATE credential SET sealed = $4, secret_id = $5, hint = $6, expires_ms = $7,
                         version = version + 1, refresh_until_ms = 0, fault = NULL, updated_ms = $8
                     WHERE org_id = $1 AND id = $2 AND version = $3",
                    org.0,
                    id,
                    renewed.from,
                    renewed.sealed.bytes,
                    renewed.sealed.secret,
                    renewed.hint,
                    renewed.expires_ms,
                    now,
                )
                .execute(&mut **tx)
                .await?;
                Ok(changed.rows_affected() == 1)
            })
        })
        .await
    }

    /// Changes a credential's label, or whether turns use it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none of this id; [`StoreError::Conflict`] when its owner
    /// has another of this label for the provider.
    pub async fn change_credential(
        &self,
        org: OrgId,
        id: String,
        change: CredentialChange,
        now: TimestampMs,
    ) -> Result<CredentialRow, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                take_turn(tx, org).await?;
                if change.active == Some(true) {
                    sqlx::query!(
                        "UPDATE credential o SET active = false, updated_ms = $3 FROM credential c
                         WHERE c.org_id = $1 AND c.id = $2 AND o.org_id = $1 AND o.provider = c.provider
                             AND o.owner = c.owner AND o.active AND o.id <> c.id",
                        org.0,
                        id,
                        now,
                    )
                    .execute(&mut **tx)
                    .await?;
                }
                let changed = sqlx::query_as!(
                    Columns,
                    "UPDATE credential SET label = coalesce($3, label), active = coalesce($4, active),
                         updated_ms = $5
                     WHERE org_id = $1 AND id = $2
                     RETURNING id, owner, provider, label, kind, hint, version, expires_ms, active, fault,
                         created_ms, updated_ms",
                    org.0,
                    id,
                    change.label,
                    change.active,
                    now,
                )
                .fetch_optional(&mut **tx)
                .await;
                match changed {
                    Ok(row) => row.ok_or(StoreError::NotFound)?.try_into(),
                    Err(error) if crate::error::is_unique_violation(&error) => {
                        Err(StoreError::Conflict { what: "a credential with this label" })
                    }
                    Err(error) => Err(error.into()),
                }
            })
        })
        .await
    }

    /// Forgets a credential.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when the organisation has none of this id.
    pub async fn remove_credential(&self, org: OrgId, id: String) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let removed =
                    sqlx::query!("DELETE FROM credential WHERE org_id = $1 AND id = $2", org.0, id)
                        .execute(&mut **tx)
                        .await?;
                if removed.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }

    /// Asks to be the one process of the cluster that refreshes this version of a credential, for `lease`. No
    /// transaction is open while it does. `false`: another does, or has done it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_refresh(
        &self,
        org: OrgId,
        id: String,
        version: i64,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        let lease = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX / 2);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_scalar!(
                        r#"SELECT take_refresh($1, $2, $3, $4) AS "taken!""#,
                        org.0,
                        id,
                        version,
                        lease,
                    )
                    .fetch_one(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Ends a refresh that did not succeed: the next may begin. With `fault`, the provider has refused the grant for
    /// good, and people are told so. Changes nothing when the credential has another version.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_refresh(
        &self,
        org: OrgId,
        id: String,
        version: i64,
        fault: Option<String>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                sqlx::query!(
                    "UPDATE credential SET refresh_until_ms = 0, fault = coalesce($4, fault),
                         updated_ms = CASE WHEN $4::text IS NULL THEN updated_ms ELSE $5 END
                     WHERE org_id = $1 AND id = $2 AND version = $3",
                    org.0,
                    id,
                    version,
                    fault,
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

/// Whoever changes which credentials an organisation has, and which are active, takes turns.
async fn take_turn(tx: &mut Tx, org: OrgId) -> Result<(), StoreError> {
    sqlx::query_scalar!(
        r#"SELECT true AS "there!" FROM organisation WHERE org_id = $1 FOR NO KEY UPDATE"#,
        org.0
    )
    .fetch_optional(&mut **tx)
    .await?
    .map(drop)
    .ok_or(StoreError::NotFound)
}

/// Keeps `new` as its owner's active credential for the provider.
pub(crate) async fn keep(
    tx: &mut Tx,
    org: OrgId,
    new: &NewCredential,
    now: TimestampMs,
) -> Result<Kept, StoreError> {
    take_turn(tx, org).await?;
    // A refresh takes no turn, but this row.
    sqlx::query_scalar!(
        "SELECT version FROM credential WHERE org_id = $1 AND id = $2 FOR UPDATE",
        org.0,
        new.id,
    )
    .fetch_optional(&mut **tx)
    .await?;
    let found = sqlx::query!(
        r#"SELECT count(*) AS "count!",
               count(*) FILTER (WHERE provider = $2 AND owner = $3 AND label = $4) AS "same!",
               count(*) FILTER (WHERE id = $5 AND version = $6 AND provider = $2 AND owner = $3 AND label = $4)
                   AS "before!"
           FROM credential WHERE org_id = $1"#,
        org.0,
        new.provider,
        new.owner,
        new.label,
        new.id,
        new.version - 1,
    )
    .fetch_one(&mut **tx)
    .await?;
    let replaces = new.version > 1;
    if (replaces && found.before == 0) || (!replaces && found.same > 0) {
        return Ok(Kept::Changed);
    }
    if !replaces && found.count >= MAX_CREDENTIALS {
        return Ok(Kept::Full);
    }
    sqlx::query!(
        "UPDATE credential SET active = false, updated_ms = $5
         WHERE org_id = $1 AND provider = $2 AND owner = $3 AND active AND id <> $4",
        org.0,
        new.provider,
        new.owner,
        new.id,
        now,
    )
    .execute(&mut **tx)
    .await?;
    sqlx::query!(
        "INSERT INTO credential (org_id, id, owner, provider, label, kind, hint, sealed, secret_id, version,
             expires_ms, active, created_ms, updated_ms)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, true, $12, $12)
         ON CONFLICT (org_id, id) DO UPDATE SET kind = excluded.kind, hint = excluded.hint,
             sealed = excluded.sealed, secret_id = excluded.secret_id, version = excluded.version,
             expires_ms = excluded.expires_ms, active = true, fault = NULL, refresh_until_ms = 0,
             updated_ms = excluded.updated_ms",
        org.0,
        new.id,
        new.owner,
        new.provider,
        new.label,
        new.kind.as_str(),
        new.hint,
        new.sealed.bytes,
        new.sealed.secret,
        new.version,
        new.expires_ms,
        now,
    )
    .execute(&mut **tx)
    .await?;
    Ok(Kept::Kept)
}
