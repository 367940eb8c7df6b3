//! Secrets that nobody knows: they are counted by address, and never stand in the way of known ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::Duration;

use store::ShownSecret;
use tokio::sync::SemaphorePermit;

use super::{Authenticator, MAX_ENTRIES, PutOff, UNKNOWN_FOR, make_room};

/// The longest wait of a lookup for its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The unknown secrets of an address and window of time after which it is slowed down: a proxy's address is everybody's.
const MISSES: u32 = 20;
/// How long the answer to an unknown secret of such an address takes.
const SLOWED_BY: Duration = Duration::from_millis(250);
/// The most secrets about which one statement at a time asks whether they are known. Others wait, in order.
pub(super) const SCREENED: usize = 1_024;
const WINDOW: Duration = Duration::from_secs(10);

impl Authenticator {
    /// Waits for a place for one look-up. `None`: nothing has to be looked up, for nobody knows the secret. Where `peer` has
    /// shown many unknown secrets, or no place is free, that is asked first, for many secrets at once: whoever shows a known
    /// one waits behind no flood of others, though it comes from the same address.
    pub(super) async fn place(
        &self,
        peer: Option<IpAddr>,
        secret: ShownSecret,
    ) -> Result<Option<SemaphorePermit<'_>>, PutOff> {
        let begun = self.clock.monotonic();
        let is_over = self.misses().is_over(peer, begun);
        if is_over || self.places.available_permits() == 0 {
            let screen = async {
                let _turn = self.screens.acquire().await;
                self.store.knows_secret(secret).await
            };
            let is_known = match tokio::time::timeout(PATIENCE, screen).await {
                Ok(Ok(is_known)) => is_known,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "nobody can say whether a secret is known");
                    let is_crowded = error.is_crowded();
                    return Err(if is_crowded { self.why_late(begun) } else { PutOff::NoAnswer });
                }
                Err(_) => return Err(self.why_late(begun)),
            };
            self.note_answer();
            if !is_known && is_over {
                tokio::time::sleep(SLOWED_BY).await;
                return Err(PutOff::TooMany);
            }
            if !is_known {
                return Ok(None);
            }
        }
        match tokio::time::timeout(PATIENCE, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(Some(place)),
            Ok(Err(_)) | Err(_) => Err(self.why_late(begun)),
        }
    }

    /// Notes that the database has answered a look-up.
    pub(super) fn note_answer(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.monotonic();
    }

    /// Returns why a look-up that has waited since `begun` is not done: those in front of it take their time, or the
    /// database answers none of them.
    pub(super) fn why_late(&self, begun: Duration) -> PutOff {
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered < begun { PutOff::NoAnswer } else { PutOff::Busy }
    }

    /// Remembers for a second that a text proves nothing, and counts it with those of its address.
    pub(super) fn note_unknown(&self, hash: [u8; 32], peer: Option<IpAddr>) {
        let now = self.clock.monotonic();
        let mut cache = self.lock();
        cache.secrets.remove(&hash);
        make_room(&mut cache.unknown, |until| *until > now);
        cache.unknown.insert(hash, now + UNKNOWN_FOR);
        drop(cache);
        self.misses().note(peer, now);
    }

    /// Refuses a link or code that was refused within the last second: whoever repeats it makes nobody look it up.
    pub(super) fn refuse_repeated(&self, hash: &[u8; 32]) -> Result<(), PutOff> {
        let until = self.lock().unknown.get(hash).copied();
        let is_repeated = until.is_some_and(|until| self.clock.monotonic() < until);
        if is_repeated { Err(PutOff::TooMany) } else { Ok(()) }
    }
}

/// Counts of unknown keys by address and window of time.
#[derive(Default)]
pub(super) struct Misses(HashMap<IpAddr, (Duration, u32)>);

impl Misses {
    pub(super) fn is_over(&self, peer: Option<IpAddr>, now: Duration) -> bool {
        let found = peer.and_then(|peer| self.0.get(&network(peer)));
        found.is_some_and(|(since, count)| now < *since + WINDOW && *count >= MISSES)
    }

    pub(super) fn note(&mut self, peer: Option<IpAddr>, now: Duration) {
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
}
