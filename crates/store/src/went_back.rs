//! Whether the database is still the one that it was. What a process keeps of it in memory is of one database, with all
//! its commits; after a failover that lost some, or in front of a copy, it may be wrong (docs/decisions/0092).

use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::warn;
use uuid::Uuid;

use crate::{Store, StoreError};

/// The mark that tells a database from another one, and from its own past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sighting {
    /// Lost when Postgres recovers from a crash, and where a standby takes over (docs/decisions/0085). `None` until a
    /// reader of changes names one.
    epoch: Option<Uuid>,
    /// The number of the next transaction, which never falls.
    next_xid: i64,
}

impl Sighting {
    /// Whether it may be of a database without some commits of that in `before`.
    fn is_another(self, before: Self) -> bool {
        self.next_xid < before.next_xid || (before.epoch.is_some() && self.epoch != before.epoch)
    }
}

/// The databases that a process has seen in the place of one. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sightings(Arc<Mutex<(Option<Sighting>, u64)>>);

impl Store {
    /// Looks whether the database is the one that it was. Returns how often it was not: when that number rises, forget
    /// what you have read. Nothing need be lost then: a crash of Postgres from which it recovers all looks the same.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn look_at_database(&self) -> Result<u64, StoreError> {
        // One look after the other: an older answer that comes later would look like a step back.
        let mut known = self.sightings.0.lock().await;
        let now = self
            .sched()
            .run(|connection| {
                Box::pin(async move {
                    let row = sqlx::query!(
                        r#"SELECT (SELECT id FROM change_epoch) AS epoch,
                               pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS "next_xid!""#,
                    )
                    .fetch_one(connection)
                    .await?;
                    Ok(Sighting { epoch: row.epoch, next_xid: row.next_xid })
                })
            })
            .await?;
        let (before, count) = &mut *known;
        if before.is_some_and(|before| now.is_another(before)) {
            *count += 1;
            warn!(
                "the database is another one, or came back without some commits; what this process knew of it is read anew"
            );
        }
        *before = Some(now);
        Ok(*count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding core-3 C1: nobody noticed that the database had lost commits.
    #[test]
    fn a_lost_epoch_and_a_number_that_falls_are_noticed() {
        let (one, other) = (Some(Uuid::from_u128(1)), Some(Uuid::from_u128(2)));
        let seen = |epoch, next_xid| Sighting { epoch, next_xid };
        assert!(!seen(one, 8).is_another(seen(one, 8)));
        assert!(!seen(one, 9).is_another(seen(None, 8)), "somebody has named it");
        assert!(seen(one, 7).is_another(seen(one, 8)), "a copy from before");
        assert!(seen(other, 9).is_another(seen(one, 8)), "a standby, after a while");
        assert!(seen(None, 9).is_another(seen(one, 8)), "a standby, at once");
    }
}
