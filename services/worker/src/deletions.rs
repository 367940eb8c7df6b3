//! Removes what deleted sessions have left, page by page.
//!
//! One worker of all begins at a time. Another one that begins too takes another session, or finds nothing; one that ends
//! between two pages leaves the rest to the next (docs/decisions/0102).

use std::convert::Infallible;
use std::time::Duration;

use store::{Store, StoreError};
use tasks::{OnCancel, OnError, TaskKind};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::words::chain;

pub(crate) const DELETIONS: TaskKind = TaskKind::new("deletions", OnError::Log, OnCancel::Abort);

/// The name under which workers agree on who begins.
const CHORE: &str = "remove deleted sessions";
/// The time between two looks of all workers together.
const EVERY: Duration = Duration::from_secs(2);

/// Looks from time to time, unless another worker does.
pub(crate) async fn run(store: Store) -> Result<(), Infallible> {
    loop {
        match remove(&store).await {
            Ok(0) => {}
            Ok(pages) => debug!(pages, "deleted sessions are removed"),
            Err(error) => {
                let error = chain(&error);
                warn!(%error, "a deleted session could not be removed; the next look goes on");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Removes what is left, a page of each organisation by turns. Returns how many pages it were.
pub(crate) async fn remove(store: &Store) -> Result<usize, StoreError> {
    let mut left = store.organisations_with_gone_sessions().await?;
    // A service where nothing is deleted writes nothing.
    if left.is_empty() || !store.claim_chore(CHORE, EVERY).await? {
        return Ok(0);
    }
    let mut pages = 0;
    let mut failed = Ok(());
    while !left.is_empty() {
        for org in std::mem::take(&mut left) {
            let begun = Instant::now();
            match store.clear_gone_session(org).await {
                Ok(true) => left.push(org),
                Ok(false) => {}
                // One organisation holds up no other.
                Err(error) => failed = Err(error),
            }
            pages += 1;
            // The disk is others' too.
            tokio::time::sleep(begun.elapsed()).await;
        }
    }
    failed.map(|()| pages)
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;
    use crate::location::tests::World;

    // Finding core-3 H1 (e).
    #[tokio::test]
    async fn a_worker_removes_what_a_deletion_has_left() -> Result<()> {
        let world = World::new().await?;
        let store = &world.runtime.store;
        let session = world.session().await?;
        let many = "UPDATE session_head SET next_seq = 50000";
        world.database.tamper(many.to_owned()).await?;
        store.delete_session(session.org, session.session.clone()).await?;
        assert_eq!(store.organisations_with_gone_sessions().await?, [session.org]);
        assert_eq!(remove(store).await?, 4, "three pages are counted, and one is removed");
        assert_eq!(store.organisations_with_gone_sessions().await?, []);
        assert_eq!(store.violations(session.org, true).await?, []);
        assert_eq!(remove(store).await?, 0);
        Ok(())
    }
}
