use std::collections::{BTreeMap, HashMap};

use domain::SessionRef;
use history::History;

/// Folds of sessions that were drained here lately. An event never changes, so a fold of a prefix of a
/// log stays true; a drain reads only what is new. Bounded by what they take in memory.
#[derive(Default)]
pub(crate) struct HistoryCache {
    entries: HashMap<SessionRef, Entry>,
    /// By when they were used last.
    order: BTreeMap<u64, SessionRef>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    history: History,
    bytes: usize,
    used: u64,
}

/// What an entry takes beside its history: the session's ids, here and in the order.
const ENTRY_BYTES: usize = 512;

impl HistoryCache {
    /// The most that all entries take together: a thousand short sessions, or some long ones. Many small texts take
    /// up to twice that of the process's memory, and a worker is to stay below 150 MiB.
    const BOUND: usize = if cfg!(test) { 100_000 } else { 32 << 20 };

    pub(crate) fn take(&mut self, session: &SessionRef) -> History {
        match self.entries.remove(session) {
            Some(entry) => {
                self.order.remove(&entry.used);
                self.bytes -= entry.bytes;
                entry.history
            }
            None => History::new(),
        }
    }

    pub(crate) fn put(&mut self, session: SessionRef, history: History) {
        self.take(&session);
        let bytes = history.bytes() + ENTRY_BYTES;
        if bytes > Self::BOUND {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        self.order.insert(self.uses, session.clone());
        self.entries.insert(session, Entry { history, bytes, used: self.uses });
        while self.bytes > Self::BOUND {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.take(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{IdMint, LocationId, OrgId, SessionId, Stamp};

    use super::*;

    #[test]
    fn the_least_recently_used_goes_when_the_bound_is_met() {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let location = LocationId::mint(&mut mint);
        let mut session = || SessionRef {
            org: OrgId::FIRST,
            location: location.clone(),
            session: SessionId::mint(&mut mint),
        };
        let each = History::new().bytes() + ENTRY_BYTES;
        let most = HistoryCache::BOUND / each;
        let mut cache = HistoryCache::default();
        let (first, second) = (session(), session());
        cache.put(first.clone(), History::new());
        cache.put(second.clone(), History::new());
        for _ in 2..most {
            cache.put(session(), History::new());
        }
        assert_eq!(cache.entries.len(), most);
        cache.put(first.clone(), History::new()); // used again
        cache.put(session(), History::new());
        assert!(cache.entries.contains_key(&first) && !cache.entries.contains_key(&second));
        assert_eq!((cache.entries.len(), cache.order.len()), (most, most));
        assert_eq!(cache.bytes, most * each);
        let left: Vec<_> = cache.entries.keys().cloned().collect();
        left.iter().for_each(|session| drop(cache.take(session)));
        assert_eq!((cache.bytes, cache.order.len()), (0, 0));
    }
}
