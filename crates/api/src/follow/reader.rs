use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{Seq, SessionRef};
use signals::{Delta, Hint, Received, SessionHint, Signals, Subscription, Topic};
use store::{Store, StoreError};
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use super::frame::Frame;
use super::live::{Added, Live};
use crate::wake::Waker;

/// How far a client may be behind live before it is cut with a `resync`.
const QUEUE: usize = 1_024;
/// Events read at once.
const PAGE: i64 = 256;
/// The holder is asked for the text so far at most this often.
const RESYNC_EVERY: Duration = Duration::from_millis(500);

/// A session as this gateway follows it: what its reader has seen, for those who join.
pub(super) struct Followed {
    session: SessionRef,
    state: Mutex<State>,
    frames: broadcast::Sender<Frame>,
    /// Read on: the tick has seen a newer commit.
    poke: Notify,
    phase: watch::Sender<Phase>,
}

/// How far a reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    /// It knows where the log ends: followers may join.
    Reading,
    /// The session is gone, or the process stops.
    Ended,
}

struct State {
    tail: Seq,
    live: Live,
}

/// Where a follower joins: everything after `tail` comes as frames.
pub(super) struct Joined {
    pub(super) tail: Seq,
    pub(super) live: Vec<Delta>,
    pub(super) frames: broadcast::Receiver<Frame>,
}

impl Followed {
    pub(super) fn new(session: SessionRef) -> Arc<Self> {
        let state = State { tail: Seq(0), live: Live::default() };
        Arc::new(Self {
            session,
            state: Mutex::new(state),
            frames: broadcast::Sender::new(QUEUE),
            poke: Notify::new(),
            phase: watch::Sender::new(Phase::Starting),
        })
    }

    /// Joins, once the reader has started. `None` when it has ended.
    pub(super) async fn join(&self) -> Option<Joined> {
        let mut phase = self.phase.subscribe();
        let now = *phase.wait_for(|phase| *phase != Phase::Starting).await.ok()?;
        if now == Phase::Ended {
            return None;
        }
        let state = self.lock();
        let live = state.live.snapshot();
        Some(Joined { tail: state.tail, live, frames: self.frames.subscribe() })
    }

    /// Counts as a follower from now on, before [`join`](Self::join) has come back.
    pub(super) fn hold(&self) -> broadcast::Receiver<Frame> {
        self.frames.subscribe()
    }

    pub(super) fn followers(&self) -> usize {
        self.frames.receiver_count()
    }

    /// The log reaches to `seq`: read on, if that is news.
    pub(super) fn note_head(&self, seq: Seq) {
        if seq > self.lock().tail {
            self.poke.notify_one();
        }
    }

    /// The session is no more, or the process stops: who joins from now on is told so.
    pub(super) fn end(&self) {
        self.phase.send_replace(Phase::Ended);
        self.send(Frame::Gone);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, frame: Frame) {
        // An error means that nobody follows just now: the next to join reads Postgres.
        let _ = self.frames.send(frame);
    }
}

/// Reads one session for all who follow it here.
pub(super) struct Reader {
    pub(super) store: Store,
    pub(super) signals: Arc<dyn Signals>,
    pub(super) waker: Arc<Waker>,
    pub(super) followed: Arc<Followed>,
}

impl Reader {
    /// Subscribes, finds where the log ends, then reads on with every hint and every poke. Ends only
    /// with its task; an error is told once and mended by the next tick.
    pub(super) async fn run(self) {
        let at = &self.followed.session;
        let topic = Topic::Session(at.org, at.session.clone());
        let mut hints = self.signals.subscribe(topic).await;
        while let Err(error) = self.start().await {
            if matches!(error, StoreError::NotFound) {
                self.followed.end();
                return;
            }
            tracing::warn!(%error, session = %at.session, "following has to wait");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let mut last_resync = None;
        let mut listening = true;
        loop {
            let news = tokio::select! {
                () = self.followed.poke.notified() => None,
                hint = next(&mut hints), if listening => Some(hint),
            };
            let done = match news {
                None | Some(Some(Received::Lagged)) => self.read().await,
                Some(Some(Received::Hint(Hint::Session(SessionHint::Committed { seq })))) => {
                    let is_news = seq > self.followed.lock().tail;
                    if is_news { self.read().await } else { Ok(()) }
                }
                Some(Some(Received::Hint(Hint::Session(SessionHint::Delta(delta))))) => {
                    self.take(&delta, &mut last_resync).await
                }
                Some(Some(Received::Hint(Hint::Worker(_)))) => Ok(()),
                Some(None) => {
                    listening = false; // signals are shut down: the tick still finds commits
                    Ok(())
                }
            };
            if let Err(error) = done {
                tracing::warn!(%error, session = %at.session, "could not read on; the tick will");
            }
        }
    }

    async fn start(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        let session = self.store.session(at.org, at.session.clone()).await?;
        let mut seed = Vec::new();
        if session.busy {
            // In the middle of a reply: what was checkpointed, until the holder sends what it has.
            let last = self.store.transcript(at.org, at.session.clone(), None, 1).await?;
            for message in last.messages {
                if message.role == "assistant" && message.finish.is_none() {
                    seed.extend(checkpointed(message));
                }
            }
            self.waker.resync(at.clone());
        }
        {
            let mut state = self.followed.lock();
            state.tail = session.seq;
            for piece in &seed {
                state.live.extend(piece);
            }
        }
        self.followed.phase.send_if_modified(|phase| {
            let starts = *phase == Phase::Starting;
            if starts {
                *phase = Phase::Reading;
            }
            starts
        });
        Ok(())
    }

    /// Reads what is committed after the tail and sends it, each event serialised once.
    async fn read(&self) -> Result<(), StoreError> {
        let at = &self.followed.session;
        loop {
            let tail = self.followed.lock().tail;
            let page = self.store.events(at.org, at.session.clone(), tail, PAGE).await?;
            let full = i64::try_from(page.len()).unwrap_or(i64::MAX) == PAGE;
            for event in page {
                let mut state = self.followed.lock();
                let added = state.live.note(&event.event);
                state.tail = event.seq;
                // Under the lock, so that who joins has either the new tail or the frame.
                if let Added::New(delta) = added {
                    self.followed.send(Frame::delta(delta));
                }
                self.followed.send(Frame::event(event));
            }
            if !full {
                return Ok(());
            }
        }
    }

    async fn take(
        &self,
        delta: &Delta,
        last_resync: &mut Option<Instant>,
    ) -> Result<(), StoreError> {
        let is_unknown = self.followed.lock().live.is_unknown(&delta.message);
        if is_unknown {
            self.read().await?; // its turn's start may not have been hinted
        }
        let added = {
            let mut state = self.followed.lock();
            let added = state.live.extend(delta);
            if let Added::New(delta) = &added {
                self.followed.send(Frame::delta(delta.clone()));
            }
            added
        };
        let due = last_resync.is_none_or(|at| at.elapsed() >= RESYNC_EVERY);
        if added == Added::Gap && due {
            *last_resync = Some(Instant::now());
            self.waker.resync(self.followed.session.clone());
        }
        Ok(())
    }
}

async fn next(hints: &mut Subscription) -> Option<Received> {
    hints.next().await
}

fn checkpointed(message: store::MessageRow) -> impl Iterator<Item = Delta> {
    let id = message.id;
    message.parts.into_iter().filter_map(move |part| {
        let kind = match part.kind.as_str() {
            "text" => signals::DeltaKind::Text,
            "reasoning" => signals::DeltaKind::Reasoning,
            _ => return None,
        };
        Some(Delta { message: id.clone(), part: part.id, kind, offset: 0, text: part.text? })
    })
}
