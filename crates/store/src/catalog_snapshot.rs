//! The last good catalogs of models, which all organisations share.

use domain::TimestampMs;

use crate::{Store, StoreError};

/// A catalog as it was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogSnapshot {
    /// Names its content.
    pub version: String,
    /// The URL it came from.
    pub source: String,
    /// When it was last seen there.
    pub fetched_ms: TimestampMs,
    /// The document, compressed by whoever keeps it.
    pub body: Vec<u8>,
}

impl Store {
    /// The catalog that was seen last; `None` when that is `known`, or there is none.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn newer_catalog(
        &self,
        known: Option<String>,
    ) -> Result<Option<CatalogSnapshot>, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_as!(
                        CatalogSnapshot,
                        "SELECT version, source, fetched_ms, body FROM catalog_snapshot
                         WHERE version = (SELECT version FROM catalog_snapshot
                             ORDER BY fetched_ms DESC, version LIMIT 1) AND version IS DISTINCT FROM $1",
                        known,
                    )
                    .fetch_optional(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Keeps a catalog and the two before it. One that is known is only seen again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn put_catalog(&self, snapshot: CatalogSnapshot) -> Result<(), StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    sqlx::query!(
                        "SELECT put_catalog($1, $2, $3, $4)",
                        snapshot.version,
                        snapshot.source,
                        snapshot.fetched_ms,
                        snapshot.body,
                    )
                    .execute(&mut *connection)
                    .await?;
                    Ok(())
                })
            })
            .await
    }
}
