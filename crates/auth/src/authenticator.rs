use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, TimestampMs};
use http::HeaderMap;
use store::{KeyGrant, Store, StoreError};

use crate::{Access, CredentialError, KeyFormError, check_form, hash, read_credential};

/// How long a key is believed without a look: a revoked key works for at most as long.
const KNOWN_FOR: Duration = Duration::from_secs(5);
/// How long a key that is none is refused without a look.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// Entries of either kind; when there are more, those that have run out go, then all.
const MAX_ENTRIES: usize = 10_000;

/// Why a request is not let in.
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
    /// It could not be looked up. Ask again.
    #[error("the API key could not be checked")]
    Unavailable(#[source] StoreError),
}

#[derive(Default)]
struct Cache {
    known: HashMap<[u8; 32], (Duration, KeyGrant)>,
    unknown: HashMap<[u8; 32], Duration>,
}

/// Tells whose key a request carries. Cheap to share behind an `Arc`.
pub struct Authenticator {
    store: Store,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
}

impl Authenticator {
    /// Looks keys up in `store`.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, cache: Mutex::default() }
    }

    /// Whose request it is. `query` is the part of the URL after `?`.
    ///
    /// # Errors
    /// [`AuthError`]: 401, but [`AuthError::Unavailable`], which is 503.
    pub async fn authenticate(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<Access, AuthError> {
        let key = read_credential(headers, query)?;
        check_form(&key)?;
        let hash = hash(&key);
        if let Some(answer) = self.cached(&hash) {
            return answer;
        }
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
                make_room(&mut cache.unknown, |until| *until > now);
                cache.unknown.insert(hash, now + UNKNOWN_FOR);
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

    fn lock(&self) -> MutexGuard<'_, Cache> {
        // No code of others runs under this lock; a poisoned cache is still a right one.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
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
