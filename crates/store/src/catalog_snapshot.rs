//! The last good catalogs of models, which all organisations share.

use std::time::Duration;

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

/// The catalog that was last seen at a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCatalog {
    /// Names its content.
    pub version: String,
    /// When it was last seen there, by any process.
    pub fetched_ms: TimestampMs,
    /// The document, unless it is the known one.
    pub body: Option<Vec<u8>>,
}

impl Store {
    /// The catalog that was last seen at `source`; its body only when it is another than `known`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn last_catalog(
        &self,
        source: String,
        known: String,
    ) -> Result<Option<LastCatalog>, StoreError> {
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_as!(
                        LastCatalog,
                        r#"SELECT version, fetched_ms, CASE WHEN version <> $2 THEN body END AS "body?"
                         FROM catalog_snapshot WHERE source = $1 ORDER BY fetched_ms DESC, version LIMIT 1"#,
                        source,
                        known,
                    )
                    .fetch_optional(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Whether it is the caller who fetches from `source` now: true for one of all processes, and then for none until
    /// `wait` has passed, whatever became of it. Kept as a row without a body.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn claim_catalog(
        &self,
        source: &str,
        now: TimestampMs,
        wait: Duration,
    ) -> Result<bool, StoreError> {
        let name = format!("fetch:{source}");
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let claimed = sqlx::query!(
                        "INSERT INTO catalog_snapshot AS c (version, source, fetched_ms, body)
                         VALUES ($1, $1, $2, '')
                         ON CONFLICT (version) DO UPDATE SET fetched_ms = excluded.fetched_ms
                         WHERE abs(excluded.fetched_ms - c.fetched_ms) >= $3",
                        name,
                        now,
                        wait_ms,
                    )
                    .execute(&mut *connection)
                    .await?;
                    Ok(claimed.rows_affected() > 0)
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
