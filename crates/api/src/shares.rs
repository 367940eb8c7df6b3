//! Scarce resources, and the share of them that one organisation or key may hold.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;

/// The most streams of one gateway, and of one organisation there.
const STREAMS: usize = 10_000;
const STREAMS_OF_ORG: usize = 5_000;
/// The most large answers that one key may have in progress; further requests wait.
const LARGE_READS_OF_KEY: usize = 4;
/// How long such a request waits.
const WAIT: Duration = Duration::from_secs(20);
/// The number of keys after which idle ones are forgotten.
const IDLE_KEYS: usize = 1_000;

/// A counter of held places, by holder.
pub(crate) struct Shares {
    most: usize,
    most_each: usize,
    held: Mutex<(usize, HashMap<String, usize>)>,
}

/// One place, held until it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    who: String,
}

impl Shares {
    pub(crate) fn new(most: usize, most_each: usize) -> Arc<Self> {
        Arc::new(Self { most, most_each, held: Mutex::default() })
    }

    /// Returns the counter for streams.
    pub(crate) fn of_streams() -> Arc<Self> {
        Self::new(STREAMS, STREAMS_OF_ORG)
    }

    /// Takes a place.
    ///
    /// # Errors
    /// 429 when the holder has as many as it may; 503 when no place is left.
    pub(crate) fn take(self: &Arc<Self>, who: String) -> Result<Share, ApiError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, by_who) = &mut *held;
        if *total >= self.most {
            return Err(ApiError::Unavailable {
                message: "this gateway has as many streams as it can; ask another or later",
                cause: None,
            });
        }
        let its = by_who.entry(who.clone()).or_default();
        if *its >= self.most_each {
            return Err(too_many("the organisation has as many streams here as it may; end some"));
        }
        *its += 1;
        *total += 1;
        Ok(Share { shares: self.clone(), who })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (total, by_who) = &mut *held;
        *total -= 1;
        if let Some(its) = by_who.get_mut(&self.who) {
            *its -= 1;
            if *its == 0 {
                by_who.remove(&self.who);
            }
        }
    }
}

/// A limit on the large answers that each key has in memory.
#[derive(Default)]
pub(crate) struct LargeReads(Mutex<HashMap<String, Arc<Semaphore>>>);

impl LargeReads {
    /// Waits until the key may read one more. Hold the permit for as long as the answer is in memory.
    ///
    /// # Errors
    /// 429 when the other reads take too long.
    pub(crate) async fn enter(&self, key: &str) -> Result<OwnedSemaphorePermit, ApiError> {
        self.enter_within(key, WAIT).await
    }

    async fn enter_within(
        &self,
        key: &str,
        wait: Duration,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        let places = {
            let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if keys.len() >= IDLE_KEYS {
                keys.retain(|_, places| Arc::strong_count(places) > 1);
            }
            let new = || Arc::new(Semaphore::new(LARGE_READS_OF_KEY));
            keys.entry(key.to_owned()).or_insert_with(new).clone()
        };
        match tokio::time::timeout(wait, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(too_many("the key reads as much as it may at once; ask for less, or later"))
            }
        }
    }
}

fn too_many(message: &'static str) -> ApiError {
    ApiError::Barred { status: StatusCode::TOO_MANY_REQUESTS, code: "TOO_MANY", message }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding security 12: one key used up a limit that all organisations share.
    #[test]
    fn one_organisation_leaves_room_for_others() {
        let shares = Shares::new(5, 3);
        let ours: Vec<_> = (0..3).map(|_| shares.take("ours".into()).expect("a place")).collect();
        let status =
            |taken: Result<Share, ApiError>| taken.err().map(|e| e.failure().status.as_u16());
        assert_eq!(status(shares.take("ours".into())), Some(429));
        let theirs: Vec<_> = (0..2).map(|_| shares.take("theirs".into()).expect("room")).collect();
        assert_eq!(status(shares.take("theirs".into())), Some(503));
        drop(ours);
        assert!(shares.take("theirs".into()).is_ok());
        drop(theirs);
        let held = shares.held.lock().expect("whole");
        assert_eq!((held.0, held.1.len()), (0, 0));
    }

    // Finding security 11: parallel reads of large logs used half a gigabyte each.
    #[tokio::test]
    async fn a_key_reads_so_much_at_once_and_others_go_on() {
        let reads = LargeReads::default();
        let mut held = Vec::new();
        for _ in 0..LARGE_READS_OF_KEY {
            held.push(reads.enter("ours").await.expect("a place"));
        }
        let refused = reads.enter_within("ours", Duration::ZERO).await;
        let Err(refused) = refused else { panic!("there was a place") };
        assert_eq!(refused.failure().status.as_u16(), 429);
        assert!(reads.enter("theirs").await.is_ok());
        held.pop();
        assert!(reads.enter("ours").await.is_ok());
    }
}
