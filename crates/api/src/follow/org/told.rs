use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{Seq, SessionId};
use tokio::sync::Notify;

/// The number of the last event of each session that an organisation's clients have received.
#[derive(Debug)]
pub(super) struct Told {
    sessions: Mutex<HashMap<SessionId, Seq>>,
    news: Notify,
}

impl Told {
    pub(super) fn new(sessions: HashMap<SessionId, Seq>) -> Self {
        Self { sessions: Mutex::new(sessions), news: Notify::new() }
    }

    pub(super) fn of(&self, session: &SessionId) -> Option<Seq> {
        self.lock().get(session).copied()
    }

    /// Notes that clients have everything up to `seq`.
    pub(super) fn note(&self, session: &SessionId, seq: Seq) {
        self.lock().insert(session.clone(), seq);
        self.news.notify_waiters();
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

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Seq>> {
        // The only foreign code under this lock is `keep`, which only compares.
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
