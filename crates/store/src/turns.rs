//! Turns of a lane, and the half of them that one organisation may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use domain::OrgId;
use sqlx::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The number of organisations after which those without a call are forgotten.
const IDLE: usize = 1_000;

/// The turns of one lane.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    each: usize,
    shares: Mutex<HashMap<OrgId, Weak<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _of_all: OwnedSemaphorePermit,
    _of_org: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new(turns: u32) -> Self {
        let all = usize::try_from(turns).unwrap_or(1).max(1);
        let each = all.div_ceil(2);
        Self { all: Arc::new(Semaphore::new(all)), each, shares: Mutex::default() }
    }

    /// Takes a turn: of an organisation, one of its half. Who waits for that takes no turn of others.
    ///
    /// # Errors
    /// [`Error::PoolTimedOut`] when there was none in time, [`Error::PoolClosed`] at the end.
    pub(crate) async fn take(&self, org: Option<OrgId>, until: Instant) -> Result<Turn, Error> {
        let own = match org {
            Some(org) => Some(permit(self.share(org), until).await?),
            None => None,
        };
        Ok(Turn { _of_all: permit(self.all.clone(), until).await?, _of_org: own })
    }

    pub(crate) fn close(&self) {
        self.all.close();
    }

    fn share(&self, org: OrgId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if shares.len() >= IDLE {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        if let Some(share) = shares.get(&org).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(Semaphore::new(self.each));
        shares.insert(org, Arc::downgrade(&share));
        share
    }
}

async fn permit(turns: Arc<Semaphore>, until: Instant) -> Result<OwnedSemaphorePermit, Error> {
    let permit = timeout_at(until, turns.acquire_owned()).await;
    permit.map_err(|_| Error::PoolTimedOut)?.map_err(|_| Error::PoolClosed)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding core-3 H1: lanes knew no organisation, so one could have all of their turns.
    #[tokio::test]
    async fn an_organisation_has_half_of_the_turns() {
        let turns = Turns::new(6);
        let (ours, theirs) = (OrgId::random(), OrgId::random());
        let now = Instant::now();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(turns.take(Some(ours), now).await.expect("a turn"));
        }
        assert!(matches!(turns.take(Some(ours), now).await, Err(Error::PoolTimedOut)));
        held.push(turns.take(Some(theirs), now).await.expect("a turn"));
        held.push(turns.take(None, now).await.expect("a turn"));
        held.remove(0);
        assert!(turns.take(Some(ours), now).await.is_ok());
    }

    #[tokio::test]
    async fn the_only_turn_of_a_lane_is_everybodys() {
        let turns = Turns::new(1);
        assert!(turns.take(Some(OrgId::random()), Instant::now()).await.is_ok());
    }
}
