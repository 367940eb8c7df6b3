use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{OrgId, RecordedEvent, Seq, SessionId, SessionIncarnation, SessionRef};
use signals::Signals;
use store::Store;
use tasks::{CancellationToken, OnCancel, OnError, TaskGroup, TaskKind};

use super::budget::QueueBudget;
use super::followed::{Followed, Following, Want};
use super::frame::Frame;
use super::queue::QueueReader;
use super::reader::Reader;
use crate::error::ApiError;
use crate::wake::Waker;

const TICK: TaskKind =
    TaskKind::new("look at followed sessions", OnError::StopRole, OnCancel::Abort);
const READ: TaskKind = TaskKind::new("follow a session", OnError::Log, OnCancel::Abort);
/// How late a commit is seen if its hint was lost.
const TICK_EVERY: Duration = Duration::from_secs(1);
/// The most sessions that one gateway follows.
const MAX_FOLLOWED: usize = 10_000;
/// The most of one organisation, so that others have room.
const MAX_FOLLOWED_OF_ORG: usize = MAX_FOLLOWED / 2;
/// How many ticks a session is still followed after its last follower left.
const LINGER_TICKS: u32 = 5;

type Key = (OrgId, SessionId);

struct Entry {
    followed: Arc<Followed>,
    stop: CancellationToken,
    idle_ticks: u32,
}

/// All sessions that this gateway follows, with one reader each.
pub(crate) struct Hub {
    store: Store,
    signals: Arc<dyn Signals>,
    waker: Arc<Waker>,
    tasks: TaskGroup,
    entries: Mutex<HashMap<Key, Entry>>,
    streams: CancellationToken,
    budget: Arc<QueueBudget>,
    /// How often the database was another one, as of the last look.
    databases: AtomicU64,
}

impl Hub {
    pub(crate) fn start(
        store: Store,
        signals: Arc<dyn Signals>,
        waker: Arc<Waker>,
        tasks: &TaskGroup,
    ) -> Arc<Self> {
        let streams = tasks.token().child_token();
        let entries = Mutex::default();
        let (databases, tasks, budget) = (AtomicU64::new(0), tasks.clone(), Arc::default());
        let hub = Self { store, signals, waker, tasks, entries, streams, budget, databases };
        let hub = Arc::new(hub);
        hub.tasks.spawn(TICK, hub.clone().ticks());
        hub
    }

    async fn ticks(self: Arc<Self>) -> Result<(), std::convert::Infallible> {
        loop {
            tokio::time::sleep(TICK_EVERY).await;
            self.tick().await;
        }
    }

    /// Follows a session, together with its other followers here.
    ///
    /// # Errors
    /// 404 when the session is gone; 503 or 429 when too many sessions are followed.
    pub(super) async fn follow(
        &self,
        session: &SessionRef,
        want: Want,
    ) -> Result<Following, ApiError> {
        // Held before the reader starts, so that the session does not look unfollowed in the meantime.
        let (followed, _held) = self.entry(session)?;
        followed.join(want).await.ok_or(ApiError::NotFound("session"))
    }

    /// Passes an event that this gateway has committed to the session's followers here. Builds the event only if
    /// there are any.
    pub(crate) fn offer(
        &self,
        session: &SessionRef,
        event: impl FnOnce() -> Option<RecordedEvent>,
    ) {
        let key = (session.org, session.session.clone());
        let followed = self.lock().get(&key).map(|entry| entry.followed.clone());
        if let Some((followed, event)) = followed.and_then(|followed| Some((followed, event()?))) {
            followed.offer(event);
        }
    }

    /// Ends the followers of a session that was deleted, and perhaps created again.
    pub(crate) fn forget(&self, session: &SessionRef) {
        let key = (session.org, session.session.clone());
        if let Some(entry) = self.lock().remove(&key) {
            entry.followed.end();
            entry.stop.cancel();
        }
    }

    /// Ends the followers of a session whose log is shorter than what they were sent: it was deleted and created again, or
    /// the database came back without its newest events.
    pub(crate) async fn end_longer(&self, session: &SessionRef) {
        let key = (session.org, session.session.clone());
        let heads = self.store.heads(std::slice::from_ref(&key)).await;
        let Some(entry) = self.lock().remove(&key) else { return };
        // Without an answer of the database nobody knows that the session is gone: its readers look again.
        let is_gone = heads.is_ok_and(|heads| {
            let now = heads.first().map(|head| head.incarnation);
            now.is_none() || entry.followed.incarnation() != now
        });
        if is_gone {
            entry.followed.end();
        } else {
            entry.followed.went_back();
        }
        entry.stop.cancel();
    }

    /// Returns the token that is cancelled when streams must end because the process stops.
    pub(crate) fn streams_end(&self) -> CancellationToken {
        self.streams.clone()
    }

    /// Returns the accounts of the queues of all followers here.
    pub(super) fn budget(&self) -> &Arc<QueueBudget> {
        &self.budget
    }

    pub(crate) fn end_streams(&self) {
        self.streams.cancel();
    }

    /// Returns how often the database was another one, or came back without some commits, as far as is known here.
    pub(crate) fn databases(&self) -> u64 {
        self.databases.load(Ordering::Acquire)
    }

    /// Has every reader look at its log again if the database is another one than a moment ago.
    async fn look_at_database(&self) {
        // If it does not answer, the next look is soon enough.
        let Ok(databases) = self.store.look_at_database().await else { return };
        if self.databases.swap(databases, Ordering::AcqRel) != databases {
            self.lock().values().for_each(|entry| entry.followed.doubt());
        }
    }

    fn entry(&self, session: &SessionRef) -> Result<(Arc<Followed>, QueueReader<Frame>), ApiError> {
        let key = (session.org, session.session.clone());
        let mut entries = self.lock();
        // An ended entry's session was gone, but it may have been created again since.
        if let Some(entry) = entries.get_mut(&key).filter(|entry| !entry.followed.has_ended()) {
            entry.idle_ticks = 0;
            return Ok((entry.followed.clone(), entry.followed.hold()));
        }
        if entries.len() >= MAX_FOLLOWED {
            return Err(ApiError::Unavailable {
                message: "this gateway follows as many sessions as it can; ask another or later",
                cause: None,
            });
        }
        if entries.keys().filter(|(org, _)| *org == session.org).count() >= MAX_FOLLOWED_OF_ORG {
            return Err(ApiError::Barred {
                status: http::StatusCode::TOO_MANY_REQUESTS,
                code: "TOO_MANY",
                message: "the organisation follows as many sessions here as it may; end some streams",
            });
        }
        let followed = Followed::new(session.clone(), &self.budget);
        let held = followed.hold();
        let stop = self.streams.child_token();
        let reader = Reader {
            store: self.store.clone(),
            signals: self.signals.clone(),
            waker: self.waker.clone(),
            followed: followed.clone(),
        };
        let (stopped, ended) = (stop.clone(), followed.clone());
        self.tasks.spawn(READ, async move {
            tokio::select! {
                () = stopped.cancelled() => {
                    if !ended.has_ended() {
                        ended.end();
                    }
                }
                () = reader.run() => {}
            }
            Ok::<(), std::convert::Infallible>(())
        });
        entries.insert(key, Entry { followed: followed.clone(), stop, idle_ticks: 0 });
        Ok((followed, held))
    }

    /// Finds commits whose hints were lost, and deleted sessions: one query for all followed sessions.
    async fn tick(&self) {
        self.look_at_database().await;
        let asked: Vec<(Key, Seq)> = {
            let mut entries = self.lock();
            entries.retain(|_, entry| {
                let followers = entry.followed.followers();
                entry.idle_ticks = if followers == 0 { entry.idle_ticks + 1 } else { 0 };
                let kept = entry.idle_ticks < LINGER_TICKS;
                if !kept {
                    entry.stop.cancel();
                }
                kept
            });
            entries.iter().map(|(key, entry)| (key.clone(), entry.followed.tail())).collect()
        };
        if asked.is_empty() {
            return;
        }
        let keys: Vec<Key> = asked.iter().map(|(key, _)| key.clone()).collect();
        let heads = match self.store.heads(&keys).await {
            Ok(heads) => heads,
            Err(error) => {
                tracing::warn!(%error, "followed sessions could not be looked at");
                return;
            }
        };
        let heads: HashMap<Key, (SessionIncarnation, Seq)> = heads
            .into_iter()
            .map(|head| ((head.org, head.session), (head.incarnation, head.seq)))
            .collect();
        let mut entries = self.lock();
        for (key, tail) in asked {
            match (heads.get(&key), entries.get(&key)) {
                (Some((incarnation, seq)), Some(entry))
                    if *seq >= tail
                        && !entry.followed.has_ended()
                        && entry.followed.incarnation().is_none_or(|own| own == *incarnation) =>
                {
                    entry.followed.note_head(*seq);
                }
                // The log is shorter than what was sent.
                (Some((incarnation, seq)), Some(entry))
                    if *seq < tail && entry.followed.incarnation() == Some(*incarnation) =>
                {
                    entry.followed.went_back();
                    entry.stop.cancel();
                    entries.remove(&key);
                }
                // The session is gone, was created again, or had ended: the next follower starts afresh.
                (_, Some(entry)) => {
                    entry.followed.end();
                    entry.stop.cancel();
                    entries.remove(&key);
                }
                (_, None) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        // No foreign code runs under this lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
