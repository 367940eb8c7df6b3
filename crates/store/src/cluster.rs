use domain::Generation;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use crate::{Store, StoreError};

/// The one row about the cluster as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterRow {
    /// The high bits of every fencing token.
    pub generation: Generation,
    /// What every running build understands.
    pub feature_level: i32,
}

impl Store {
    /// Reads the cluster's row.
    ///
    /// # Errors
    /// When the database fails or was never migrated.
    pub async fn cluster(&self) -> Result<ClusterRow, StoreError> {
        let pool = self.sched().clone();
        tasks::detached(async move {
            let row = sqlx::query!("SELECT generation, feature_level FROM cluster")
                .fetch_one(&pool)
                .await?;
            Ok(ClusterRow {
                generation: generation(row.generation)?,
                feature_level: row.feature_level,
            })
        })
        .await
    }

    /// Raises the generation, so that every token minted from now on outranks every earlier one: for
    /// `placement init`, a restore, a promoted standby. `migrate_url` logs in as `oc_migrate`.
    ///
    /// # Errors
    /// When the database cannot be reached or all generations are used.
    pub async fn raise_generation(migrate_url: &str) -> Result<Generation, StoreError> {
        let options: PgConnectOptions = migrate_url.parse()?;
        let mut connection = options.connect().await?;
        let raised = sqlx::query_scalar!(
            "UPDATE cluster SET generation = generation + 1 RETURNING generation"
        )
        .fetch_one(&mut connection)
        .await?;
        connection.close().await?;
        generation(raised)
    }
}

fn generation(stored: i32) -> Result<Generation, StoreError> {
    u32::try_from(stored)
        .map(Generation)
        .map_err(|_| StoreError::Unreadable(format!("generation {stored}")))
}
