use std::collections::HashMap;

use domain::SessionRef;
use history::History;

/// Folds of sessions that were drained here lately. An event never changes, so a fold of a prefix of a
/// log stays true; a drain reads only what is new. Bounded by messages, which is what takes memory.
#[derive(Default)]
pub(crate) struct HistoryCache {
    entries: HashMap<SessionRef, Entry>,
    messages: usize,
    uses: u64,
}

struct Entry {
    history: History,
    messages: usize,
    used: u64,
}

impl HistoryCache {
    /// The most messages that all entries hold together: short ones take some 4 KiB each with what a session
    /// has besides, and a worker is to stay below 150 MiB.
    const BOUND: usize = if cfg!(test) { 100 } else { 20_000 };

    pub(crate) fn take(&mut self, session: &SessionRef) -> History {
        match self.entries.remove(session) {
            Some(entry) => {
                self.messages -= entry.messages;
                entry.history
            }
            None => History::new(),
        }
    }

    pub(crate) fn put(&mut self, session: SessionRef, history: History) {
        // An empty history holds little, but its entry is not free.
        let messages = history.conversation().messages().len() + 1;
        self.uses += 1;
        self.messages += messages;
        let entry = Entry { history, messages, used: self.uses };
        if let Some(old) = self.entries.insert(session, entry) {
            self.messages -= old.messages;
        }
        while self.messages > Self::BOUND {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used);
            let Some(session) = oldest.map(|(session, _)| session.clone()) else { break };
            self.take(&session);
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
        let mut cache = HistoryCache::default();
        for _ in 0..HistoryCache::BOUND + 10 {
            cache.put(session(), History::new());
        }
        assert_eq!(cache.messages, HistoryCache::BOUND);
        assert_eq!(cache.entries.len(), HistoryCache::BOUND);
    }
}
