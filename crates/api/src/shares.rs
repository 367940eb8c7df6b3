//! Scarce resources, and the share of them that one organisation or key may hold.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::OrgId;
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::principal::Principal;

/// How many of a scarce thing one gateway, one organisation there and one key or login may hold.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    all: usize,
    of_org: usize,
    of_key: usize,
    sentences: &'static Sentences,
}

/// The reasons for a refusal: the gateway, the organisation, or the key has as many as it may.
#[derive(Debug)]
struct Sentences {
    all: &'static str,
    of_org: &'static str,
    of_key: &'static str,
}

/// The bounds on streams. With those of [`WAITS`] they leave connections of a gateway (8,192) for requests that end, and an
/// organisation leaves room for others behind the same proxy, whose address has 2,048.
const STREAMS: Bounds =
    Bounds { all: 4_096, of_org: 1_536, of_key: 512, sentences: &HELD_FOR_LONG };
/// The bounds on requests that wait for the end of work.
const WAITS: Bounds = Bounds { all: 3_072, of_org: 1_024, of_key: 512, sentences: &HELD_FOR_LONG };
/// The bounds on uploads and imports, each of which may take a gibibyte of the gateway's disk; all of them together have
/// the bound of [`Spools`](crate::spools::Spools).
const UPLOADS: Bounds = Bounds { all: 16, of_org: 8, of_key: 4, sentences: &SENT };

const HELD_FOR_LONG: Sentences = Sentences {
    all: "this gateway has as many streams and waiting requests as it can; ask another or later",
    of_org: "the organisation has as many streams or waiting requests here as it may; end some",
    of_key: "the key or login has as many streams or waiting requests here as it may; end some",
};
const SENT: Sentences = Sentences {
    all: "this gateway takes as many uploads as it can; ask another or later",
    of_org: "the organisation sends as many uploads here as it may; wait for the end of one",
    of_key: "the key or login sends as many uploads here as it may; wait for the end of one",
};
/// The most large answers that one key may have in progress; further requests wait.
const LARGE_READS_OF_KEY: usize = 4;
/// How long such a request waits.
const WAIT: Duration = Duration::from_secs(20);
/// The number of keys after which idle ones are forgotten.
const IDLE_KEYS: usize = 1_000;

/// A counter of held places, by organisation and by key.
pub(crate) struct Shares {
    bounds: Bounds,
    held: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    of_orgs: HashMap<OrgId, usize>,
    of_keys: HashMap<String, usize>,
}

/// One place, held until it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    org: OrgId,
    key: String,
}

impl Shares {
    fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, held: Mutex::default() })
    }

    /// Returns the counter for streams.
    pub(crate) fn of_streams() -> Arc<Self> {
        Self::new(STREAMS)
    }

    /// Returns the counter for requests that wait.
    pub(crate) fn of_waits() -> Arc<Self> {
        Self::new(WAITS)
    }

    /// Returns the counter for uploads.
    pub(crate) fn of_uploads() -> Arc<Self> {
        Self::new(UPLOADS)
    }

    /// Takes a place.
    ///
    /// # Errors
    /// 429 when the holder has as many as it may; 503 when no place is left.
    pub(crate) fn take(self: &Arc<Self>, holder: &Principal) -> Result<Share, ApiError> {
        let (org, key) = (holder.org, &holder.author.key);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Bounds { all, of_org, of_key, sentences } = self.bounds;
        if held.of_keys.get(key).is_some_and(|count| *count >= of_key) {
            return Err(too_many(sentences.of_key));
        }
        if held.of_orgs.get(&org).is_some_and(|count| *count >= of_org) {
            return Err(too_many(sentences.of_org));
        }
        if held.all >= all {
            return Err(ApiError::Unavailable { message: sentences.all, cause: None });
        }
        held.all += 1;
        *held.of_orgs.entry(org).or_default() += 1;
        *held.of_keys.entry(key.clone()).or_default() += 1;
        Ok(Share { shares: self.clone(), org, key: key.clone() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= 1;
        give_back(&mut held.of_orgs, &self.org);
        give_back(&mut held.of_keys, &self.key);
    }
}

fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, holder: &K) {
    if let Some(count) = counts.get_mut(holder) {
        *count -= 1;
        if *count == 0 {
            counts.remove(holder);
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
    use domain::Author;

    use super::*;

    fn holder(org: u128, key: &str) -> Principal {
        let author = Author { key: key.to_owned(), actor: None };
        Principal { org: OrgId(uuid::Uuid::from_u128(org)), author }
    }

    // Findings security 12 and security-3 M3: one key used up a limit that all organisations share.
    #[test]
    fn one_key_and_one_organisation_leave_room_for_others() {
        let shares = Shares::new(Bounds { all: 5, of_org: 3, of_key: 2, sentences: &SENT });
        let status =
            |taken: Result<Share, ApiError>| taken.err().map(|e| e.failure().status.as_u16());
        let first = holder(1, "one");
        let ours: Vec<_> = (0..2).map(|_| shares.take(&first).expect("a place")).collect();
        assert_eq!(status(shares.take(&first)), Some(429), "the key");
        let third = shares.take(&holder(1, "two")).expect("another key");
        assert_eq!(status(shares.take(&holder(1, "two"))), Some(429), "the organisation");
        let theirs: Vec<_> =
            (0..2).map(|_| shares.take(&holder(2, "three")).expect("room")).collect();
        assert_eq!(status(shares.take(&holder(3, "four"))), Some(503), "the gateway");
        drop((ours, third));
        assert!(shares.take(&first).is_ok());
        drop(theirs);
        let held = shares.held.lock().expect("whole");
        assert_eq!((held.all, held.of_orgs.len(), held.of_keys.len()), (0, 0, 0));
    }

    // Finding security-3 M3: streams of one key closed everybody's connections behind the same proxy.
    #[test]
    fn what_is_held_for_long_leaves_connections() {
        const { assert!(STREAMS.all + WAITS.all <= 8_192 - 1_024) };
        const { assert!(STREAMS.of_org < 2_048 && STREAMS.of_key * 3 <= STREAMS.of_org) };
        const { assert!(WAITS.of_org + STREAMS.of_key < 2_048) };
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
