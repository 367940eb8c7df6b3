use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{LocationId, Seq, SessionId, SessionIncarnation};
use tokio::sync::Notify;

/// A session of an organisation, and how far its clients have its events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct KnownSession {
    /// The number of the last event that clients have received.
    pub(super) seq: Seq,
    /// Which session with the id; the default if nobody knows.
    pub(super) incarnation: SessionIncarnation,
    /// Its Location, which says the directory of a session that is gone.
    pub(super) location: Option<LocationId>,
}

/// The sessions of an organisation as its clients know them.
#[derive(Debug)]
pub(super) struct Told {
    sessions: Mutex<HashMap<SessionId, KnownSession>>,
    news: Notify,
}

impl Told {
    pub(super) fn new(sessions: HashMap<SessionId, KnownSession>) -> Self {
        Self { sessions: Mutex::new(sessions), news: Notify::new() }
    }

    pub(super) fn of(&self, session: &SessionId) -> Option<Seq> {
        self.lock().get(session).map(|known| known.seq)
    }

    pub(super) fn known(&self, session: &SessionId) -> Option<KnownSession> {
        self.lock().get(session).cloned()
    }

    /// Returns the newest session: ids descend.
    pub(super) fn newest(&self) -> Option<SessionId> {
        self.lock().keys().min().cloned()
    }

    /// Returns the sessions that `is_wanted` picks.
    pub(super) fn pick(
        &self,
        is_wanted: impl Fn(&SessionId, &KnownSession) -> bool,
    ) -> Vec<(SessionId, SessionIncarnation)> {
        let sessions = self.lock();
        let wanted = sessions.iter().filter(|(session, known)| is_wanted(session, known));
        wanted.map(|(session, known)| (session.clone(), known.incarnation)).collect()
    }

    /// Notes a session, and that clients have everything up to its number.
    pub(super) fn enter(&self, session: SessionId, known: KnownSession) {
        self.lock().insert(session, known);
        self.news.notify_waiters();
    }

    /// Notes that clients have everything up to `seq`.
    pub(super) fn note(&self, session: &SessionId, seq: Seq) {
        self.lock().entry(session.clone()).or_default().seq = seq;
        self.news.notify_waiters();
    }

    /// Notes that a session has moved.
    pub(super) fn note_move(&self, session: &SessionId, to: &LocationId) {
        self.lock().entry(session.clone()).or_default().location = Some(to.clone());
    }

    pub(super) fn forget(&self, session: &SessionId) {
        self.lock().remove(session);
    }

    /// Forgets the sessions that `keep` rejects, if there are more than `most`.
    pub(super) fn shrink(&self, most: usize, keep: impl Fn(&SessionId) -> bool) {
        let mut sessions = self.lock();
        if sessions.len() > most {
            sessions.retain(|session, _| keep(session));
        }
    }

    /// Waits until clients have everything up to `seq`.
    pub(super) async fn reaches(&self, session: &SessionId, seq: Seq) {
        loop {
            let news = self.news.notified(); // registered before the look, so that no change is missed
            if self.of(session).is_some_and(|told| told >= seq) {
                return;
            }
            news.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, KnownSession>> {
        // The only foreign code under this lock is `keep` and `is_wanted`, which only compare.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn who_waits_goes_on_when_clients_were_told_and_not_before() {
        let told = Told::new(HashMap::new());
        let session: SessionId = "ses_a".parse().expect("an id");
        told.note(&session, Seq(4));
        let mut waits = std::pin::pin!(told.reaches(&session, Seq(5)));
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut waits).await.is_err());
        told.note(&session, Seq(6));
        tokio::time::timeout(Duration::from_secs(5), waits).await.expect("it was told");
    }
}
