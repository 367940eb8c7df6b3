mod link;
mod recover;
mod throttle;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Clock, OrgId, TimestampMs};
use http::HeaderMap;
use store::{CredentialInUse, Proof, ShownSecret, Store, StoreError, Via};
use tokio::sync::Semaphore;

pub use self::link::LinkError;
pub use self::recover::{CodeError, Recovered};
use self::throttle::{Misses, SCREENED};
use crate::belief::{Belief, BeliefState, Believed};
use crate::{
    CookieError, CredentialError, KeyForm, KeyFormError, Token, check_form, hash, read_cookie,
    read_credential,
};

/// The time that an unknown key is refused without a lookup.
const UNKNOWN_FOR: Duration = Duration::from_secs(1);
/// The entries of either kind, beyond which those that are not in use are dropped.
const MAX_ENTRIES: usize = 10_000;
/// The number of concurrent lookups.
const LOOKUPS: usize = 2;
/// How often those in use are asked for again.
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// How long one such query may take.
const RENEW_WITHIN: Duration = Duration::from_millis(1_500);
/// A credential is in use for this long after its last request.
const IN_USE_FOR: Duration = Duration::from_secs(60);
/// How many renewals pass between two notes of who was seen.
const NOTE_EVERY: u32 = 30;
/// The age at which a cookie is replaced.
pub const COOKIE_AGE: TimestampMs = 15 * 60 * 1000;

/// The reason why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// No usable key was sent.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The cookies cannot be used.
    #[error(transparent)]
    Cookie(#[from] CookieError),
    /// The key is mistyped.
    #[error(transparent)]
    Form(#[from] KeyFormError),
    /// No valid key has this text: it never existed, was revoked or has expired.
    #[error("the API key is not valid: it is unknown, revoked or expired")]
    Unknown,
    /// The login is over: it ended, was not used for long, or its cookie was replaced.
    #[error("the login is over; sign in again")]
    LoginOver,
    /// The lookup failed. Retry.
    #[error("the API key could not be checked")]
    Unavailable(#[source] StoreError),
    /// It is not looked up now.
    #[error(transparent)]
    PutOff(#[from] PutOff),
}

/// The reason why a secret is not looked up now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PutOff {
    /// Too many look-ups were under way, so this one waited too long. Retry.
    #[error("too many keys, codes and links are being checked")]
    Busy,
    /// The database has answered no look-up for as long as this one waited. Retry.
    #[error("the database does not answer")]
    NoAnswer,
    /// The address has sent many unknown secrets, and this is another one.
    #[error("this address has sent too many unknown keys, codes or links")]
    TooMany,
}

/// A text that proves a credential.
struct KnownSecret {
    of: CredentialInUse,
    until_ms: Option<TimestampMs>,
}

#[derive(Default)]
struct Cache {
    beliefs: HashMap<CredentialInUse, Arc<Belief>>,
    secrets: HashMap<[u8; 32], KnownSecret>,
    unknown: HashMap<[u8; 32], Duration>,
}

/// The answer about a text that needs no query.
enum Cached {
    Good(Believed),
    Unknown,
}

/// The proof that a request shows.
#[derive(Debug)]
pub enum Shown {
    /// An API key.
    Key(String),
    /// The cookie of a login.
    Cookie(Token),
}

impl Shown {
    /// Reads it from a request. A key wins. `query` is the part of the URL after `?`; `cookie` names ours.
    ///
    /// # Errors
    /// [`AuthError::Credential`] if there is none, or it cannot be read; [`AuthError::Cookie`] for two cookies.
    pub fn read(headers: &HeaderMap, query: Option<&str>, cookie: &str) -> Result<Self, AuthError> {
        match read_credential(headers, query) {
            Ok(key) => Ok(Self::Key(key)),
            Err(CredentialError::Missing) => {
                let token = read_cookie(headers, cookie)?.ok_or(CredentialError::Missing)?;
                Ok(Self::Cookie(Token::read(&token).ok_or(AuthError::LoginOver)?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Proves requests, and keeps its beliefs in what they showed as leases: [`Authenticator::keep`] renews those in use with
/// one query every two seconds. Cheap to share behind an `Arc`.
pub struct Authenticator {
    store: Store,
    clock: Arc<dyn Clock>,
    cache: Mutex<Cache>,
    /// Bounds concurrent lookups. They share connections with sweeps and `/readyz`, which must always have
    /// some left.
    places: Semaphore,
    /// Bounds those that wait to be screened.
    screens: Semaphore,
    misses: Mutex<Misses>,
    /// The (monotonic) time of the last look-up that the database answered, whatever it said.
    answered: Mutex<Duration>,
}

impl Authenticator {
    /// Makes an authenticator that looks credentials up in `store`.
    #[must_use]
    pub fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        let (cache, misses) = (Mutex::default(), Mutex::default());
        let (places, screens) = (Semaphore::new(LOOKUPS), Semaphore::new(SCREENED));
        Self { store, clock, cache, places, screens, misses, answered: Mutex::default() }
    }

    /// Returns the belief in what a request shows. `peer` is the caller's address, if known.
    ///
    /// # Errors
    /// [`AuthError`]: 401, except [`AuthError::Unavailable`], [`PutOff::Busy`] and [`PutOff::NoAnswer`] (503) and [`PutOff::TooMany`] (429).
    pub async fn authenticate(
        &self,
        shown: &Shown,
        peer: Option<IpAddr>,
    ) -> Result<Believed, AuthError> {
        let (hash, form) = match shown {
            Shown::Key(key) => {
                let form = check_form(key)?;
                (hash(key), Some(form))
            }
            Shown::Cookie(token) => (token.hash(), None),
        };
        match self.cached(&hash) {
            Some(Cached::Good(believed)) => return Ok(believed),
            Some(Cached::Unknown) if form.is_some() => return Err(AuthError::Unknown),
            Some(Cached::Unknown) => return Err(AuthError::LoginOver),
            None => {}
        }
        let unknown = || if form.is_some() { AuthError::Unknown } else { AuthError::LoginOver };
        let was_valid = self.lock().secrets.contains_key(&hash);
        let secret = match (shown, &form) {
            (Shown::Cookie(token), _) => {
                ShownSecret::Cookie(token.org(), token.login_id(), hash.to_vec())
            }
            (Shown::Key(_), Some(KeyForm::Owned(id))) => {
                ShownSecret::Key(id.clone(), hash.to_vec())
            }
            (Shown::Key(_), _) => ShownSecret::OldKey(hash.to_vec()),
        };
        let Some(_place) = self.place(peer.filter(|_| !was_valid), secret).await? else {
            self.note_unknown(hash, peer);
            return Err(unknown());
        };
        let asked = self.clock.monotonic();
        let answer = match (shown, &form) {
            (Shown::Cookie(token), _) => self.login(token).await,
            (Shown::Key(_), Some(KeyForm::Owned(id))) => {
                self.store.key_by_id(id.clone(), hash.to_vec(), self.clock.now_ms()).await
            }
            (Shown::Key(_), _) => self.store.key_by_hash(hash.to_vec(), self.clock.now_ms()).await,
        };
        if !matches!(answer, Err(StoreError::Database(_))) {
            self.note_answer();
        }
        match answer {
            Ok(proof) => Ok(self.believe(hash, &proof, asked)),
            Err(StoreError::NotFound) => {
                self.note_unknown(hash, peer);
                Err(unknown())
            }
            Err(error) if error.is_crowded() => Err(self.why_late(asked).into()),
            Err(error) => Err(AuthError::Unavailable(error)),
        }
    }

    /// Looks a login up, and notes when its newest cookie is shown first. An old cookie that comes back after its grace is a
    /// copy: the login ends for both who have one.
    async fn login(&self, token: &Token) -> Result<Proof, StoreError> {
        let now = self.clock.now_ms();
        let mut proof = self.store.login_by_id(token.org(), token.login_id(), now).await?;
        let hash = token.hash();
        if proof.is_proved_by(&hash) {
            if proof.unshown.as_deref() == Some(&hash[..]) {
                let (org, login) = (token.org(), token.login_id());
                self.store.note_shown_cookie(org, login, hash.to_vec(), now).await?;
                proof.end_former_cookie(now);
            }
            return Ok(proof);
        }
        if proof.stale.iter().any(|stale| *stale == hash) {
            tracing::warn!(login = %token.login_id(), "an old cookie came back: its login ends");
            self.end_login(token.org(), token.login_id()).await?;
        }
        Err(StoreError::NotFound)
    }

    /// Ends a login, with those that its links began: here at once, elsewhere within seconds.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_login(&self, org: OrgId, login: domain::LoginId) -> Result<(), StoreError> {
        let ended = self.store.end_login(org, login.clone(), self.clock.now_ms()).await?;
        for login in ended.into_iter().chain([login]) {
            self.forget(&CredentialInUse { org, via: Via::Login(login) });
        }
        Ok(())
    }

    /// Ends the belief in a credential that was revoked here, so that this gateway does not have to ask first.
    pub fn forget(&self, credential: &CredentialInUse) {
        let mut cache = self.lock();
        cache.secrets.retain(|_, secret| secret.of != *credential);
        if let Some(belief) = cache.beliefs.remove(credential) {
            belief.end();
        }
    }

    /// Replaces the cookie of a login if it is due. Returns the new one for the answer.
    pub async fn renewed_cookie(&self, shown: &Shown, belief: &Believed) -> Option<Token> {
        let Shown::Cookie(token) = shown else { return None };
        let made = belief.begins_rotation(COOKIE_AGE)?;
        let (next, now) = (token.next(), self.clock.now_ms());
        let (old, new) = (token.hash().to_vec(), next.hash().to_vec());
        match self.store.rotate_login(token.org(), token.login_id(), old, new, now).await {
            // It is looked up when it is shown first, which is noted then.
            Ok(true) => Some(next),
            Ok(false) => None, // another request has done it
            Err(error) => {
                belief.not_rotated(made);
                tracing::debug!(%error, "a cookie is replaced later");
                None
            }
        }
    }

    fn cached(&self, hash: &[u8; 32]) -> Option<Cached> {
        let cache = self.lock();
        if let Some(secret) = cache.secrets.get(hash)
            && secret.until_ms.is_none_or(|until| until > self.clock.now_ms())
            && let Some(belief) = cache.beliefs.get(&secret.of)
            && belief.state() == BeliefState::Good
        {
            belief.touch();
            return Some(Cached::Good(Believed::hold(belief.clone())));
        }
        let now = self.clock.monotonic();
        let refused = cache.unknown.get(hash).is_some_and(|until| *until > now);
        refused.then_some(Cached::Unknown)
    }

    /// Believes a proof that was just asked for, and that the text with this hash belongs to it.
    fn believe(&self, hash: [u8; 32], proof: &Proof, asked: Duration) -> Believed {
        let of = CredentialInUse { org: proof.principal.org(), via: proof.principal.via().clone() };
        let shown = proof.secrets.iter().find(|secret| secret.hash == hash);
        let until_ms = shown.and_then(|secret| secret.until_ms);
        let mut cache = self.lock();
        let cache = &mut *cache;
        if cache.beliefs.len() >= MAX_ENTRIES {
            // Those in use stay: their streams would end.
            cache.beliefs.retain(|_, belief| belief.is_in_use(IN_USE_FOR));
            let beliefs = &cache.beliefs;
            cache.secrets.retain(|_, secret| beliefs.contains_key(&secret.of));
        }
        let belief = renewed(&mut cache.beliefs, &of, proof, asked).unwrap_or_else(|| {
            let belief = Belief::new(self.clock.clone(), proof, asked);
            cache.beliefs.insert(of.clone(), belief.clone());
            belief
        });
        keep_proving_secrets(&mut cache.secrets, &of, proof);
        cache.secrets.insert(hash, KnownSecret { of, until_ms });
        belief.touch();
        Believed::hold(belief)
    }

    /// Renews the beliefs in use until `stop`, and notes once a minute who was seen.
    pub async fn keep(&self, stop: tasks::CancellationToken) {
        let mut ticks = tokio::time::interval(RENEW_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round: u32 = 0;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            self.renew().await;
            round = round.wrapping_add(1);
            if round.is_multiple_of(NOTE_EVERY) {
                self.note_seen().await;
            }
        }
    }

    /// Asks once for all beliefs in use, and forgets the others.
    pub async fn renew(&self) {
        let in_use: Vec<CredentialInUse> = {
            let mut cache = self.lock();
            cache.beliefs.retain(|_, belief| belief.is_in_use(IN_USE_FOR));
            let Cache { beliefs, secrets, .. } = &mut *cache;
            secrets.retain(|_, secret| beliefs.contains_key(&secret.of));
            beliefs.keys().cloned().collect()
        };
        if in_use.is_empty() {
            return;
        }
        let asked = self.clock.monotonic();
        let query = self.store.proofs_of(in_use.clone(), self.clock.now_ms());
        let proofs = match tokio::time::timeout(RENEW_WITHIN, query).await {
            Ok(Ok(proofs)) => proofs,
            // They lapse by themselves.
            Ok(Err(error)) => return tracing::debug!(%error, "beliefs were not renewed"),
            Err(_) => return tracing::debug!("beliefs were not renewed in time"),
        };
        let mut proofs: HashMap<CredentialInUse, Proof> = proofs
            .into_iter()
            .map(|proof| {
                let (org, via) = (proof.principal.org(), proof.principal.via().clone());
                (CredentialInUse { org, via }, proof)
            })
            .collect();
        let mut cache = self.lock();
        for of in in_use {
            let Cache { beliefs, secrets, .. } = &mut *cache;
            let Some(proof) = proofs.remove(&of) else {
                if let Some(belief) = beliefs.remove(&of) {
                    belief.end();
                }
                secrets.retain(|_, secret| secret.of != of);
                continue;
            };
            if renewed(beliefs, &of, &proof, asked).is_none()
                && let Some(belief) = beliefs.remove(&of)
            {
                belief.end(); // what it may do has changed: the next request is decided anew
            }
            keep_proving_secrets(secrets, &of, &proof);
        }
    }

    /// Writes when keys, logins and their owners were last used.
    async fn note_seen(&self) {
        let mut seen: HashMap<OrgId, [Vec<String>; 3]> = HashMap::new();
        for belief in self.lock().beliefs.values().filter(|belief| belief.take_use()) {
            let principal = belief.principal();
            let [keys, logins, actors] = seen.entry(principal.org()).or_default();
            match principal.via() {
                Via::Key(key) => keys.push(key.to_string()),
                Via::Login(login) => logins.push(login.to_string()),
            }
            actors.push(principal.standing().actor.id().to_owned());
        }
        for (org, [keys, logins, actors]) in seen {
            let noted = self.store.note_seen(org, keys, logins, actors, self.clock.now_ms()).await;
            if let Err(error) = noted {
                tracing::debug!(%error, "who was seen is not noted");
            }
        }
    }

    fn misses(&self) -> MutexGuard<'_, Misses> {
        self.misses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        // No foreign code runs under this lock, so even a poisoned cache is consistent.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets the texts that prove a credential no more, and learns until when the others do.
fn keep_proving_secrets(
    secrets: &mut HashMap<[u8; 32], KnownSecret>,
    of: &CredentialInUse,
    proof: &Proof,
) {
    secrets.retain(|hash, secret| {
        if secret.of != *of {
            return true;
        }
        let good = proof.secrets.iter().find(|good| good.hash == hash[..]);
        secret.until_ms = good.and_then(|good| good.until_ms);
        good.is_some()
    });
}

/// Renews the belief in a credential; `None` if there is none, or it proves somebody else now. That one has ended then.
fn renewed(
    beliefs: &mut HashMap<CredentialInUse, Arc<Belief>>,
    of: &CredentialInUse,
    proof: &Proof,
    asked: Duration,
) -> Option<Arc<Belief>> {
    let belief = beliefs.get(of)?;
    if *belief.principal() != proof.principal || belief.state() == BeliefState::Ended {
        belief.end();
        return None;
    }
    belief.renew(proof, asked);
    Some(belief.clone())
}

fn make_room<K, V>(entries: &mut HashMap<K, V>, is_fresh: impl Fn(&V) -> bool) {
    if entries.len() >= MAX_ENTRIES {
        entries.retain(|_, entry| is_fresh(entry));
        if entries.len() >= MAX_ENTRIES {
            entries.clear();
        }
    }
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
