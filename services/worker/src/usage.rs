//! Counts what sessions have used into sums, behind them.
//!
//! One worker of all does it at a time. Another one that does it too, or one that ends in the middle, changes no sum
//! (docs/decisions/0076).

use std::convert::Infallible;
use std::time::Duration;

use store::{Store, StoreError, UsageCounter};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::{debug, warn};

use crate::words::chain;

pub(crate) const USAGE: TaskKind = TaskKind::new("usage", OnError::Log, OnCancel::Abort);

/// The name under which workers agree on who counts.
const CHORE: &str = "count usage";
/// The time between two looks of all workers together.
const EVERY: Duration = Duration::from_secs(2);

/// Counts from time to time, unless another worker does.
pub(crate) async fn run(store: Store) -> Result<(), Infallible> {
    let mut counter = UsageCounter::new(store.clone());
    loop {
        match count(&store, &mut counter).await {
            Ok(0) => {}
            Ok(sessions) => debug!(sessions, "usage is counted"),
            Err(error) => {
                warn!(error = %chain(&error), "usage could not be counted; the next look goes on");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn count(store: &Store, counter: &mut UsageCounter) -> Result<usize, StoreError> {
    let uncounted = store.uncounted_organisations().await?;
    // A service where nothing happens writes nothing: who counts is agreed on only when there is something.
    if uncounted.is_empty() || !store.claim_chore(CHORE, EVERY).await? {
        return Ok(0);
    }
    let mut sessions = 0;
    let mut failed = Ok(());
    // One organisation that cannot be counted holds up no other.
    for org in uncounted {
        match counter.count(org).await {
            Ok(counted) => sessions += counted,
            Err(error) => failed = Err(error),
        }
    }
    failed.map(|()| sessions)
}
