//! Work of an organisation that keeps the database busy: one piece at a time, and as long a rest after it.
//!
//! So whoever asks for one after the other has half a processor of the database at most, and who asks for one waits for
//! nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::OrgId;
use tokio::sync::{Mutex as Gate, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::StoreError;

/// The longest rest: the work may have been long because its client was slow.
const LONGEST: Duration = Duration::from_secs(2);
/// The number of organisations after which those without work are forgotten.
const IDLE: usize = 1_000;

/// Who works, and until when the others rest. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests(Arc<Mutex<HashMap<OrgId, Arc<Gate<Instant>>>>>);

/// A piece of work. Its rest begins when it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    begun: Instant,
    rest_ends: OwnedMutexGuard<Instant>,
}

impl Rests {
    /// Waits until the organisation may begin.
    ///
    /// # Errors
    /// [`StoreError::Database`] when its other work takes longer than `patience`.
    pub(crate) async fn begin(&self, org: OrgId, patience: Duration) -> Result<Work, StoreError> {
        let until = Instant::now() + patience;
        let rest_ends = timeout_at(until, self.find_gate(org).lock_owned())
            .await
            .map_err(|_| sqlx::Error::PoolTimedOut)?;
        sleep_until(*rest_ends).await;
        Ok(Work { begun: Instant::now(), rest_ends })
    }

    fn find_gate(&self, org: OrgId) -> Arc<Gate<Instant>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= IDLE {
            let now = Instant::now();
            // One that somebody works behind, or waits for, has another owner.
            gates.retain(|_, gate| {
                Arc::strong_count(gate) > 1
                    || gate.try_lock().is_ok_and(|rest_ends| *rest_ends > now)
            });
        }
        gates.entry(org).or_insert_with(|| Arc::new(Gate::new(Instant::now()))).clone()
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let now = Instant::now();
        *self.rest_ends = now + (now - self.begun).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_organisation_rests_as_long_as_it_worked() -> Result<(), StoreError> {
        let (rests, ours, theirs) = (Rests::default(), OrgId::random(), OrgId::random());
        let begun = Instant::now();
        let work = rests.begin(ours, SECOND).await?;
        assert_eq!(begun.elapsed(), Duration::ZERO, "the first waits for nothing");
        tokio::time::advance(SECOND).await;
        drop(work);
        drop(rests.begin(theirs, SECOND).await?);
        assert_eq!(begun.elapsed(), SECOND, "nor does anybody else");
        let work = rests.begin(ours, SECOND).await?;
        assert!(begun.elapsed() >= 2 * SECOND);
        tokio::time::advance(60 * SECOND).await;
        drop(work);
        let ended = Instant::now();
        drop(rests.begin(ours, SECOND).await?);
        assert!(ended.elapsed() < 3 * SECOND, "a slow client is no reason for a long rest");
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_told() -> Result<(), StoreError> {
        let (rests, org) = (Rests::default(), OrgId::random());
        let _work = rests.begin(org, SECOND).await?;
        assert!(rests.begin(org, SECOND).await.is_err());
        Ok(())
    }

    // A gate that somebody waits for is kept: else two would work at once.
    #[tokio::test(start_paused = true)]
    async fn organisations_without_work_are_forgotten() -> Result<(), StoreError> {
        let (rests, org) = (Rests::default(), OrgId::random());
        let work = rests.begin(org, SECOND).await?;
        for _ in 0..2 * IDLE {
            drop(rests.begin(OrgId::random(), SECOND).await?);
        }
        assert!(rests.0.lock().unwrap_or_else(PoisonError::into_inner).len() <= IDLE);
        assert!(rests.begin(org, SECOND).await.is_err(), "it works still");
        drop(work);
        Ok(())
    }
}
