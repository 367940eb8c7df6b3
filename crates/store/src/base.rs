//! Locations that share the stored content of an earlier one of the same repository.

use domain::{FencingToken, LocationRef, RepositoryId};

use crate::origin::prove;
use crate::workspace::tree;
use crate::{Seed, Store, StoreError};

impl Store {
    /// Finds another Location of the repository whose snapshots may have the content of this one: one of the same commit, or
    /// the newest.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn base_of(
        &self,
        at: LocationRef,
        repository: RepositoryId,
        commit: String,
    ) -> Result<Option<Seed>, StoreError> {
        self.read(at.org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT o.location_id, w.tree AS "tree!"
                       FROM location_origin o
                           JOIN location l ON l.org_id = o.org_id AND l.id = o.location_id AND l.seed_tree IS NULL
                           CROSS JOIN LATERAL (SELECT p.tree FROM workspace_pack p
                               WHERE p.org_id = o.org_id AND p.location_id = o.location_id
                               ORDER BY p.token, p.ordinal LIMIT 1) AS w
                       WHERE o.org_id = $1 AND o.repository_id = $2 AND o.location_id <> $4
                       ORDER BY o.commit = $3 DESC, o.location_id DESC LIMIT 1"#,
                    at.org.0,
                    repository.as_str(),
                    commit,
                    at.location.as_str(),
                )
                .fetch_optional(&mut *connection)
                .await?;
                row.map(|row| Ok(Seed { location: row.location_id.parse()?, tree: tree(&row.tree)? }))
                    .transpose()
            })
        })
        .await
    }

    /// Says that a Location, which has no snapshot and no seed yet, shares the content of another one. Returns whether it does
    /// now.
    ///
    /// # Errors
    /// [`StoreError::Superseded`] if the token is not the fence.
    pub async fn share_base(
        &self,
        at: LocationRef,
        token: FencingToken,
        base: Seed,
    ) -> Result<bool, StoreError> {
        self.in_tenant(at.org, move |tx| {
            Box::pin(async move {
                prove(tx, &at, token).await?;
                // Locked, so that it is not deleted meanwhile.
                let there = sqlx::query_scalar!(
                    "SELECT id FROM location WHERE org_id = $1 AND id = $2 FOR KEY SHARE",
                    at.org.0,
                    base.location.as_str(),
                )
                .fetch_optional(&mut **tx)
                .await?;
                let Some(_) = there else { return Ok(false) };
                let shared = sqlx::query!(
                    "UPDATE location l SET seed_location = $3, seed_tree = $4
                     WHERE l.org_id = $1 AND l.id = $2 AND l.seed_tree IS NULL AND NOT EXISTS (
                         SELECT FROM workspace_pack w WHERE w.org_id = $1 AND w.location_id = $2)",
                    at.org.0,
                    at.location.as_str(),
                    base.location.as_str(),
                    base.tree.as_str(),
                )
                .execute(&mut **tx)
                .await?;
                if shared.rows_affected() == 0 {
                    return Ok(false);
                }
                sqlx::query!(
                    "UPDATE location_origin SET shares_base = true WHERE org_id = $1 AND location_id = $2",
                    at.org.0,
                    at.location.as_str(),
                )
                .execute(&mut **tx)
                .await?;
                Ok(true)
            })
        })
        .await
    }
}
