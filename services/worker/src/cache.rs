use std::collections::{BTreeMap, HashMap};

use domain::SessionRef;
use history::History;

/// Folds of sessions that were recently drained here. An event never changes, so the fold of a log's prefix stays
/// valid, and a drain only reads the new events. A fold knows the id of its last event, by which a drain notices that a
/// database has come back without it. Bounded by memory.
#[derive(Default)]
pub(crate) struct HistoryCache {
    entries: HashMap<SessionRef, Entry>,
    /// The sessions by their last use.
    order: BTreeMap<u64, SessionRef>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    history: History,
    bytes: usize,
    used: u64,
}

/// The memory of an entry without its history: the session's ids, here and in the order.
const ENTRY_BYTES: usize = 512;

impl HistoryCache {
    /// The most memory of all entries: a thousand short sessions, or a few long ones. Many small texts take up to
    /// twice that much, and a worker must stay below 150 MiB.
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

    /// Forgets all: they may be folds of another log than the database has.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
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
