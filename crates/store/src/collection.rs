//! Deletes rows that outlive their sessions, once nothing uses them: components of requests, Locations, and the packs of
//! Locations.
//!
//! ```text
//! components of the organisation ─▶ a page ─▶ no session and no list names it ─▶ deleted
//! Locations ─▶ a page ─▶ nothing uses it ─▶ noted, with the time ─▶ after the retention: deleted ─▶ its packs ─▶ its blobs
//! ```
//!
//! Invariant: a row that is named exists. A writer that begins to name a component or a Location locks its row, and the
//! collection locks a row before it looks for names once more. So either the collection finds the name, or the writer
//! finds no row, and nothing of its write is done. A drain then brings the components again
//! ([`Written::Unstored`](crate::Written::Unstored)). No time is part of this: a process may stand still for as long as
//! it likes.

use std::time::Duration;

use domain::{LocationId, OrgId};
use uuid::Uuid;

use crate::connections::Limit;
use crate::unnamed_blob::milliseconds;
use crate::{Store, StoreError};

/// How long it is known that a Location is gone: a worker that comes back within this time removes its folder.
const MEMORY: Duration = Duration::from_hours(365 * 24);

/// A page of rows that a collection has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected<K> {
    /// The last row of the page: the next page begins behind it. `None` behind the last row of all.
    pub last: Option<K>,
    /// The number of rows in the page.
    pub looked: i32,
    /// The number of rows deleted.
    pub deleted: i32,
}

impl Store {
    /// Organisations, beginning behind `after`, at most `limit`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn organisations(
        &self,
        after: Option<OrgId>,
        limit: i64,
    ) -> Result<Vec<OrgId>, StoreError> {
        let after = after.map_or(Uuid::nil(), |org| org.0);
        self.sched()
            .run(move |connection| {
                Box::pin(async move {
                    let ids = sqlx::query_scalar!(
                        "SELECT org_id FROM organisation WHERE org_id > $1 ORDER BY org_id LIMIT $2",
                        after,
                        limit,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    Ok(ids.into_iter().map(OrgId).collect())
                })
            })
            .await
    }

    /// Deletes those components that nothing names, of the `limit` behind `after` in the order of their hashes.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn collect_components(
        &self,
        org: OrgId,
        after: Vec<u8>,
        limit: i32,
    ) -> Result<Collected<Vec<u8>>, StoreError> {
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_as!(
                        Collected,
                        r#"SELECT last, looked AS "looked!", deleted AS "deleted!"
                           FROM collect_components($1, $2, $3)"#,
                        org.0,
                        after,
                        limit,
                    )
                    .fetch_one(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Deletes those Locations that nothing has used for `retention`, of the `limit` behind `after` in the order of their
    /// ids. The time begins when an earlier look found one unused.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn collect_locations(
        &self,
        org: OrgId,
        after: String,
        limit: i32,
        retention: Duration,
    ) -> Result<Collected<String>, StoreError> {
        let retention = milliseconds(retention);
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_as!(
                        Collected,
                        r#"SELECT last, looked AS "looked!", deleted AS "deleted!"
                           FROM collect_locations($1, $2, $3, $4)"#,
                        org.0,
                        after,
                        limit,
                        retention,
                    )
                    .fetch_one(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Deletes at most `limit` packs of a deleted Location. Returns how many; `None` when no deleted Location has any.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn collect_packs(&self, org: OrgId, limit: i32) -> Result<Option<i32>, StoreError> {
        let memory = milliseconds(MEMORY);
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_scalar!(
                        "SELECT collect_packs($1, $2, $3)",
                        org.0,
                        limit,
                        memory
                    )
                    .fetch_one(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Deletes patches, bundles and uploads that nobody needs any more, and repositories that no Location has begun with for
    /// `retention`. Returns how many.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn collect_workspaces(
        &self,
        org: OrgId,
        retention: Duration,
    ) -> Result<i32, StoreError> {
        let retention = milliseconds(retention);
        self.drain_lane()
            .run_within(Limit::Long, move |connection| {
                Box::pin(async move {
                    Ok(sqlx::query_scalar!(
                        r#"SELECT collect_workspaces($1, $2) AS "deleted!""#,
                        org.0,
                        retention,
                    )
                    .fetch_one(&mut *connection)
                    .await?)
                })
            })
            .await
    }

    /// Of these Locations, those that were deleted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn gone_locations(
        &self,
        org: OrgId,
        of: &[LocationId],
    ) -> Result<Vec<LocationId>, StoreError> {
        let of: Vec<String> = of.iter().map(LocationId::to_string).collect();
        self.read(org, move |connection| {
            Box::pin(async move {
                let gone = sqlx::query_scalar!(
                    "SELECT id FROM gone_location WHERE org_id = $1 AND id = ANY($2)",
                    org.0,
                    &of,
                )
                .fetch_all(&mut *connection)
                .await?;
                gone.iter().map(|id| Ok(id.parse()?)).collect()
            })
        })
        .await
    }
}
