//! Scarce resources, and the share of them that one organisation or person may hold, with however many keys.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::OrgId;
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::ApiError;
use crate::principal::Principal;

/// How many of a scarce thing one gateway, one organisation there and one person may hold.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    all: usize,
    of_org: usize,
    of_person: usize,
    sentences: &'static Sentences,
}

/// The reasons for a refusal: the gateway, the organisation, or the person has as many as it may.
#[derive(Debug)]
struct Sentences {
    all: &'static str,
    of_org: &'static str,
    of_person: &'static str,
}

/// The bounds on streams. With those of [`WAITS`] they leave connections of a gateway (8,192) for requests that end, and an
/// organisation leaves room for others behind the same proxy, whose address has 2,048.
const STREAMS: Bounds =
    Bounds { all: 4_096, of_org: 1_536, of_person: 512, sentences: &HELD_FOR_LONG };
/// The bounds on requests that wait for the end of work.
const WAITS: Bounds =
    Bounds { all: 3_072, of_org: 1_024, of_person: 512, sentences: &HELD_FOR_LONG };
/// The bounds on uploads and imports, each of which may take a gibibyte of the gateway's disk; all of them together have
/// the bound of [`Spools`](crate::spools::Spools).
const UPLOADS: Bounds = Bounds { all: 16, of_org: 8, of_person: 4, sentences: &SENT };

const HELD_FOR_LONG: Sentences = Sentences {
    all: "this gateway has as many streams and waiting requests as it can; ask another or later",
    of_org: "the organisation has as many streams or waiting requests here as it may; end some",
    of_person: "you have as many streams or waiting requests here as one person may, with all your keys and logins; end some",
};
const SENT: Sentences = Sentences {
    all: "this gateway takes as many uploads as it can; ask another or later",
    of_org: "the organisation sends as many uploads here as it may; wait for the end of one",
    of_person: "you send as many uploads here as one person may, with all your keys and logins; wait for the end of one",
};
/// The most large answers that one person may have in progress; further requests wait.
const LARGE_READS_OF_PERSON: usize = 4;
/// How long such a request waits.
const WAIT: Duration = Duration::from_secs(20);
/// The number of persons after which idle ones are forgotten.
const IDLE_PERSONS: usize = 1_000;

/// A counter of held places, by organisation and by person.
pub(crate) struct Shares {
    bounds: Bounds,
    held: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    of_orgs: HashMap<OrgId, usize>,
    of_persons: HashMap<Person, usize>,
}

/// A person, by an id that another organisation may have given too.
pub(crate) type Person = (OrgId, String);

/// One place, held until it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    person: Person,
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
        let person = holder.person();
        let org = person.0;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Bounds { all, of_org, of_person, sentences } = self.bounds;
        if held.of_persons.get(&person).is_some_and(|count| *count >= of_person) {
            return Err(too_many(sentences.of_person));
        }
        if held.of_orgs.get(&org).is_some_and(|count| *count >= of_org) {
            return Err(too_many(sentences.of_org));
        }
        if held.all >= all {
            return Err(ApiError::Unavailable { message: sentences.all, cause: None });
        }
        held.all += 1;
        *held.of_orgs.entry(org).or_default() += 1;
        *held.of_persons.entry(person.clone()).or_default() += 1;
        Ok(Share { shares: self.clone(), person })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = self.shares.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.all -= 1;
        give_back(&mut held.of_orgs, &self.person.0);
        give_back(&mut held.of_persons, &self.person);
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

/// A limit on the large answers that each person has in memory.
#[derive(Default)]
pub(crate) struct LargeReads(Mutex<HashMap<Person, Arc<Semaphore>>>);

impl LargeReads {
    /// Waits until the person may read one more. Hold the permit for as long as the answer is in memory.
    ///
    /// # Errors
    /// 429 when the other reads take too long.
    pub(crate) async fn enter(&self, person: Person) -> Result<OwnedSemaphorePermit, ApiError> {
        self.enter_within(person, WAIT).await
    }

    async fn enter_within(
        &self,
        person: Person,
        wait: Duration,
    ) -> Result<OwnedSemaphorePermit, ApiError> {
        let places = {
            let mut persons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if persons.len() >= IDLE_PERSONS {
                persons.retain(|_, places| Arc::strong_count(places) > 1);
            }
            let new = || Arc::new(Semaphore::new(LARGE_READS_OF_PERSON));
            persons.entry(person).or_insert_with(new).clone()
        };
        match tokio::time::timeout(wait, places.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => {
                Err(too_many("you read as much at once as one person may; ask for less, or later"))
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

    fn holder(org: u128, person: &str, key: &str) -> Principal {
        let author = Author { key: key.to_owned(), actor: Some(person.to_owned()) };
        Principal { org: OrgId(uuid::Uuid::from_u128(org)), author }
    }

    // Findings security 12 and security-3 M3: one key used up a limit that all organisations share; probe G2: one person with two keys
    // used up that of the organisation.
    #[test]
    fn one_person_and_one_organisation_leave_room_for_others() {
        let shares = Shares::new(Bounds { all: 5, of_org: 3, of_person: 2, sentences: &SENT });
        let status =
            |taken: Result<Share, ApiError>| taken.err().map(|e| e.failure().status.as_u16());
        let first = holder(1, "one", "a");
        let ours: Vec<_> = (0..2).map(|_| shares.take(&first).expect("a place")).collect();
        assert_eq!(status(shares.take(&first)), Some(429), "the person");
        assert_eq!(status(shares.take(&holder(1, "one", "b"))), Some(429), "with another key");
        let third = shares.take(&holder(1, "two", "c")).expect("another person");
        assert_eq!(status(shares.take(&holder(1, "two", "c"))), Some(429), "the organisation");
        // Another organisation may have given the same id.
        let theirs: Vec<_> =
            (0..2).map(|_| shares.take(&holder(2, "one", "d")).expect("room")).collect();
        assert_eq!(status(shares.take(&holder(3, "four", "e"))), Some(503), "the gateway");
        drop((ours, third));
        assert!(shares.take(&first).is_ok());
        drop(theirs);
        let held = shares.held.lock().expect("whole");
        assert_eq!((held.all, held.of_orgs.len(), held.of_persons.len()), (0, 0, 0));
    }

    // Finding security-3 M3: streams of one key closed everybody's connections behind the same proxy.
    #[test]
    fn what_is_held_for_long_leaves_connections() {
        const { assert!(STREAMS.all + WAITS.all <= 8_192 - 1_024) };
        const { assert!(STREAMS.of_org < 2_048 && STREAMS.of_person * 3 <= STREAMS.of_org) };
        const { assert!(WAITS.of_org + STREAMS.of_person < 2_048) };
    }

    // Finding security 11: parallel reads of large logs used half a gigabyte each.
    #[tokio::test]
    async fn a_person_reads_so_much_at_once_and_others_go_on() {
        let reads = LargeReads::default();
        let [ours, theirs] = [1, 2].map(|org| move || holder(org, "svc_first", "a").person());
        let mut held = Vec::new();
        for _ in 0..LARGE_READS_OF_PERSON {
            held.push(reads.enter(ours()).await.expect("a place"));
        }
        let refused = reads.enter_within(ours(), Duration::ZERO).await;
        let Err(refused) = refused else { panic!("there was a place") };
        assert_eq!(refused.failure().status.as_u16(), 429);
        assert!(reads.enter(theirs()).await.is_ok());
        held.pop();
        assert!(reads.enter(ours()).await.is_ok());
    }
}
