//! An organisation's settings of a provider, as a text that the store does not read.

use domain::{OrgId, TimestampMs};

use crate::{Sealed, Store, StoreError};

/// The most providers that an organisation sets up.
pub const MAX_PROVIDER_SETTINGS: i64 = 500;

/// An organisation's settings of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSetting {
    /// The provider.
    pub provider: String,
    /// JSON.
    pub settings: String,
    /// The secret of its OAuth client, bound to this provider and version.
    pub sealed: Option<Sealed>,
    /// Grows with every change.
    pub version: i64,
    /// When it was changed.
    pub updated_ms: TimestampMs,
}

impl Store {
    /// All that an organisation has set up, by provider. One round trip.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn provider_settings(&self, org: OrgId) -> Result<Vec<ProviderSetting>, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        r#"SELECT provider AS "provider!", settings AS "settings!", sealed, secret_id,
                               version AS "version!", updated_ms AS "updated_ms!"
                           FROM read_provider_settings($1)"#,
                        org.0,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    let setting = |(provider, settings, sealed, secret, version, updated_ms)| {
                        let sealed = Option::zip(secret, sealed)
                            .map(|(secret, bytes)| Sealed { secret, bytes });
                        ProviderSetting { provider, settings, sealed, version, updated_ms }
                    };
                    let columns = rows.into_iter().map(|row| {
                        (
                            row.provider,
                            row.settings,
                            row.sealed,
                            row.secret_id,
                            row.version,
                            row.updated_ms,
                        )
                    });
                    Ok(columns.map(setting).collect())
                })
            })
            .await
    }

    /// Sets a provider up, if its settings still are of the version before `new`'s (0: there are none). `false`:
    /// somebody else has changed them, or the organisation has [`MAX_PROVIDER_SETTINGS`].
    ///
    /// # Errors
    /// When the database fails.
    pub async fn put_provider_setting(
        &self,
        org: OrgId,
        new: ProviderSetting,
    ) -> Result<bool, StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let (bytes, secret) =
                    new.sealed.map(|sealed| (sealed.bytes, sealed.secret)).unzip();
                let changed = if new.version > 1 {
                    sqlx::query!(
                        "UPDATE provider_setting SET settings = $3, sealed = $4, secret_id = $5, version = $6::bigint,
                             updated_ms = $7
                         WHERE org_id = $1 AND provider = $2 AND version = $6::bigint - 1",
                        org.0,
                        new.provider,
                        new.settings,
                        bytes,
                        secret,
                        new.version,
                        new.updated_ms,
                    )
                    .execute(&mut **tx)
                    .await?
                } else {
                    sqlx::query!(
                        "INSERT INTO provider_setting (org_id, provider, settings, sealed, secret_id, version,
                             updated_ms)
                         SELECT $1, $2, $3, $4, $5, $6, $7
                         WHERE (SELECT count(*) FROM provider_setting WHERE org_id = $1) < $8
                         ON CONFLICT DO NOTHING",
                        org.0,
                        new.provider,
                        new.settings,
                        bytes,
                        secret,
                        new.version,
                        new.updated_ms,
                        MAX_PROVIDER_SETTINGS,
                    )
                    .execute(&mut **tx)
                    .await?
                };
                Ok(changed.rows_affected() == 1)
            })
        })
        .await
    }

    /// Forgets what was set up about a provider.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when nothing was.
    pub async fn remove_provider_setting(
        &self,
        org: OrgId,
        provider: String,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let removed = sqlx::query!(
                    "DELETE FROM provider_setting WHERE org_id = $1 AND provider = $2",
                    org.0,
                    provider,
                )
                .execute(&mut **tx)
                .await?;
                if removed.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }
}
