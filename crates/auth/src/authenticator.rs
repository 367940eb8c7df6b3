use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TimestampMs};
use http::HeaderMap;
use store::{KeyGrant, Store, StoreError};
use tokio::sync::Semaphore;

use crate::{Access, CredentialError, KeyFormError, check_form, hash, read_credential};

/// The time that a valid key is cached. A revoked key works for at most this long.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// The time that an unknown key is refused without a lookup.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// The most entries of either kind. Beyond that, expired entries are dropped, and if that is not enough, all.
const MAX_ENTRIES: usize = 10_000;
/// The number of concurrent lookups.
const LOOKUPS: usize = 2;
/// The longest wait of a lookup for its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most lookups of unknown keys per address and window of time.
const MISSES: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// The reason why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// No usable key was sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The key is mistyped.
    #[error(transparent)]
    Form(#[from] KeyFormError),
    /// No valid key has this text: it never existed, was revoked or has expired.
    #[error("the API key is not valid: it is unknown, revoked or expired")]
    Unknown,
    /// The lookup failed. Retry.
    #[error("the API key could not be checked")]
    Unavailable(#[source] StoreError),
    /// Too many lookups were under way, so this one waited too long. Retry.
    #[error("too many API keys are being checked")]
    Busy,
    /// The address has sent many unknown keys, so this one is not looked up.
    #[error("this address has sent too many unknown API keys; wait some seconds")]
    TooMany,
}

#[derive(Default)]
struct Cache {
    known: HashMap<[u8; 32], (Duration, KeyGrant)>,
    unknown: HashMap<[u8; 32], Duration>,
}

/// Finds the owner of a request's key. Cheap to share behind an `Arc`.
pub struct Authenticator {
    store: Store,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
    /// Bounds concurrent lookups. They share connections with sweeps and `/readyz`, which must always have
    /// some left.
    places: Semaphore,
    misses: Mutex<Misses>,
}

impl Authenticator {
    /// Makes an authenticator that looks up keys in `store`.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        let (cache, misses) = (Mutex::default(), Mutex::default());
        Self { store, clock, cache, places: Semaphore::new(LOOKUPS), misses }
    }

    /// Returns the access of a request's key. `query` is the part of the URL after `?`; `peer` is the
    /// caller's address, if known.
    ///
    /// # Errors
    /// [`AuthError`]: 401, except [`AuthError::Unavailable`] and [`AuthError::Busy`] (503) and
    /// [`AuthError::TooMany`] (429).
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
        peer: Option<IpAddr>,
    ) -> Result<Access, AuthError> {
        let key = read_credential(headers, query)?;
        check_form(&key)?;
        let hash = hash(&key);
        if let Some(answer) = self.cached(&hash) {
            return answer;
        }
        // A caller with a valid key is not locked out by others behind the same proxy.
        let was_valid = self.lock().known.contains_key(&hash);
        if !was_valid && self.misses().is_over(peer, self.clock.monotonic()) {
            return Err(AuthError::TooMany);
        }
        let place = tokio::time::timeout(PATIENCE, self.places.acquire()).await;
        let Ok(Ok(_place)) = place else { return Err(AuthError::Busy) };
        let answer = self.store.key_by_hash(hash.to_vec(), self.clock.now_ms()).await;
        let now = self.clock.monotonic();
        let mut cache = self.lock();
        match answer {
            Ok(grant) => {
                let access = access(&grant);
                make_room(&mut cache.known, |(until, _)| *until > now);
                cache.known.insert(hash, (now + KNOWN_FOR, grant));
                Ok(access)
            }
            Err(StoreError::NotFound) => {
                cache.known.remove(&hash);
                make_room(&mut cache.unknown, |until| *until > now);
                cache.unknown.insert(hash, now + UNKNOWN_FOR);
                self.misses().note(peer, now);
                Err(AuthError::Unknown)
            }
            Err(error) => Err(AuthError::Unavailable(error)),
        }
    }

    fn cached(&self, hash: &[u8; 32]) -> Option<Result<Access, AuthError>> {
        let now = self.clock.monotonic();
        let cache = self.lock();
        if let Some((until, grant)) = cache.known.get(hash)
            && *until > now
            && !expired(grant, self.clock.now_ms())
        {
            return Some(Ok(access(grant)));
        }
        let refused = cache.unknown.get(hash).is_some_and(|until| *until > now);
        refused.then_some(Err(AuthError::Unknown))
    }

    fn misses(&self) -> MutexGuard<'_, Misses> {
        self.misses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        // No foreign code runs under this lock, so even a poisoned cache is consistent.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of unknown keys by address and window of time.
#[derive(Default)]
struct Misses(HashMap<IpAddr, (Duration, u32)>);

impl Misses {
    fn is_over(&self, peer: Option<IpAddr>, now: Duration) -> bool {
        let found = peer.and_then(|peer| self.0.get(&network(peer)));
        found.is_some_and(|(since, count)| now < *since + WINDOW && *count >= MISSES)
    }

    fn note(&mut self, peer: Option<IpAddr>, now: Duration) {
        let Some(peer) = peer else { return };
        if self.0.len() >= MAX_ENTRIES {
            self.0.retain(|_, (since, _)| now < *since + WINDOW);
            if self.0.len() >= MAX_ENTRIES {
                self.0.clear();
            }
        }
        let (since, count) = self.0.entry(network(peer)).or_insert((now, 0));
        if now >= *since + WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
    }
}

/// Returns the network of an address: an owner of one IPv6 address has 2^64 of them.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            std::net::Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

fn make_room<V>(entries: &mut HashMap<[u8; 32], V>, is_fresh: impl Fn(&V) -> bool) {
    if entries.len() >= MAX_ENTRIES {
        entries.retain(|_, entry| is_fresh(entry));
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
    }
}

fn expired(grant: &KeyGrant, now: TimestampMs) -> bool {
    grant.expires_ms.is_some_and(|expires| expires <= now)
}

fn access(grant: &KeyGrant) -> Access {
    Access { org: grant.org, key: grant.id.clone(), scopes: grant.scopes.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding security 10: a flood of random keys took the connections that readiness checks need.
    #[test]
    fn an_address_with_many_unknown_keys_is_put_off() {
        let ip = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        let (mut misses, at) = (Misses::default(), Duration::from_secs);
        for _ in 0..MISSES {
            assert!(!misses.is_over(ip("2001:db8::1"), at(100)));
            misses.note(ip("2001:db8::1"), at(100));
        }
        assert!(misses.is_over(ip("2001:db8::2"), at(101)), "the same network");
        assert!(!misses.is_over(ip("2001:db8:1::1"), at(101)));
        assert!(!misses.is_over(None, at(101)));
        assert!(!misses.is_over(ip("2001:db8::1"), at(100) + WINDOW));
        misses.note(ip("2001:db8::1"), at(100) + WINDOW);
        assert!(!misses.is_over(ip("2001:db8::1"), at(101) + WINDOW));
    }

    #[test]
    fn a_full_cache_keeps_what_is_fresh_and_never_grows_past_its_bound() {
        let mut entries: HashMap<[u8; 32], bool> = HashMap::new();
        for n in 0..MAX_ENTRIES {
            let mut hash = [0; 32];
            hash[..8].copy_from_slice(&n.to_le_bytes());
            entries.insert(hash, n == 7);
        }
        make_room(&mut entries, |fresh| *fresh);
        assert_eq!(entries.len(), 1);
        for n in 0..MAX_ENTRIES {
            let mut hash = [1; 32];
            hash[..8].copy_from_slice(&n.to_le_bytes());
            entries.insert(hash, true);
        }
        make_room(&mut entries, |fresh| *fresh);
        assert!(entries.is_empty());
    }
}
