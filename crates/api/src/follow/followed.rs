use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use domain::{MessageId, RecordedEvent, Seq, SessionIncarnation, SessionRef};
use signals::Delta;
use tokio::sync::{Notify, broadcast, watch};

use super::frame::{Frame, Framed};
use super::live::{Added, Live};

/// How far a client may be behind before it is cut with a `resync`.
const QUEUE: usize = 1_024;
/// How far who wants events alone may be behind before it has to read them.
const EVENT_QUEUE: usize = 128;

/// What a follower is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Events, and live text between them.
    Everything,
    /// Events: who only waits for one is not woken by text.
    Events,
}

/// A session as this gateway follows it: what its reader has seen, for those who join.
pub(super) struct Followed {
    pub(super) session: SessionRef,
    state: Mutex<State>,
    /// Made for the first who wants it: its queue takes 40 KiB, and most only wait for an end.
    frames: OnceLock<broadcast::Sender<Frame>>,
    /// The same without live text.
    events: broadcast::Sender<Frame>,
    /// Read on: the log is longer than what was sent.
    pub(super) poke: Notify,
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
    /// The session that its reader found: a later one with the same id is another.
    incarnation: SessionIncarnation,
    /// The last number that was sent.
    tail: Seq,
    /// The highest number that was heard of.
    heard: Seq,
    live: Live,
}

/// Where a follower joins: everything after `tail` comes as frames, after `live`.
pub(crate) struct Following {
    pub(crate) incarnation: SessionIncarnation,
    pub(crate) tail: Seq,
    pub(crate) live: Vec<Delta>,
    pub(crate) frames: broadcast::Receiver<Frame>,
}

impl Followed {
    pub(super) fn new(session: SessionRef) -> Arc<Self> {
        let state = State {
            incarnation: SessionIncarnation::default(),
            tail: Seq(0),
            heard: Seq(0),
            live: Live::default(),
        };
        Arc::new(Self {
            session,
            state: Mutex::new(state),
            frames: OnceLock::new(),
            events: broadcast::Sender::new(EVENT_QUEUE),
            poke: Notify::new(),
            phase: watch::Sender::new(Phase::Starting),
        })
    }

    /// Joins, once the reader has started. `None` when it has ended.
    pub(super) async fn join(&self, want: Want) -> Option<Following> {
        let mut phase = self.phase.subscribe();
        let now = *phase.wait_for(|phase| *phase != Phase::Starting).await.ok()?;
        if now == Phase::Ended {
            return None;
        }
        let state = self.lock();
        let (live, frames) = match want {
            Want::Everything => {
                let frames = self.frames.get_or_init(|| broadcast::Sender::new(QUEUE));
                (state.live.snapshot(), frames.subscribe())
            }
            Want::Events => (Vec::new(), self.events.subscribe()),
        };
        if want == Want::Everything && state.heard > state.tail {
            self.poke.notify_one(); // nobody has wanted it until now
        }
        Some(Following { incarnation: state.incarnation, tail: state.tail, live, frames })
    }

    /// Counts as a follower from now on, before [`join`](Self::join) has come back.
    pub(super) fn hold(&self) -> broadcast::Receiver<Frame> {
        self.events.subscribe()
    }

    /// Whether someone is to see every event as soon as it is committed.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers() > 0
    }

    fn watchers(&self) -> usize {
        self.frames.get().map_or(0, broadcast::Sender::receiver_count)
    }

    pub(super) fn followers(&self) -> usize {
        self.watchers() + self.events.receiver_count()
    }

    /// The reader knows that the log reaches to `tail` and what is live there: followers may join.
    pub(super) fn start(&self, incarnation: SessionIncarnation, tail: Seq, live: Vec<Delta>) {
        let mut state = self.lock();
        state.incarnation = incarnation;
        state.tail = tail;
        for piece in live {
            state.live.extend(piece);
        }
        self.phase.send_if_modified(|phase| {
            let starts = *phase == Phase::Starting;
            if starts {
                *phase = Phase::Reading;
            }
            starts
        });
    }

    /// The session whose log is followed; `None` until the reader has found it.
    pub(super) fn incarnation(&self) -> Option<SessionIncarnation> {
        let found = self.lock().incarnation;
        (found != SessionIncarnation::default()).then_some(found)
    }

    /// Whether nobody can join any more.
    pub(super) fn has_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    /// The session is no more, or the process stops: who joins from now on is told so.
    pub(super) fn end(&self) {
        self.phase.send_replace(Phase::Ended);
        self.send(Frame::Gone);
    }

    /// The log reaches to `seq`.
    pub(super) fn hear(&self, seq: Seq) {
        let mut state = self.lock();
        state.heard = state.heard.max(seq);
    }

    /// The log reaches to `seq`: the reader reads on, if that is news.
    pub(super) fn note_head(&self, seq: Seq) {
        self.hear(seq);
        if self.is_behind() {
            self.poke.notify_one();
        }
    }

    /// Whether the log is longer than what was sent, as far as is known.
    pub(super) fn is_behind(&self) -> bool {
        let state = self.lock();
        state.heard > state.tail
    }

    /// The last number that was sent.
    pub(super) fn tail(&self) -> Seq {
        self.lock().tail
    }

    /// Nothing was there after `tail`, whatever was heard until then.
    pub(super) fn is_read_to(&self, tail: Seq, heard: Seq) {
        let mut state = self.lock();
        if state.tail == tail && state.heard == heard {
            state.heard = tail;
        }
    }

    /// The highest number that was heard of.
    pub(super) fn heard(&self) -> Seq {
        self.lock().heard
    }

    /// Takes an event in that this gateway has committed. The very next of the log is sent at once; any
    /// other is only heard of, and read in its order.
    pub(super) fn offer(&self, event: RecordedEvent) {
        let mut state = self.lock();
        let is_next = *self.phase.borrow() == Phase::Reading && event.seq.0 == state.tail.0 + 1;
        if is_next {
            self.send_event(&mut state, event);
        } else {
            let seq = event.seq;
            drop(state);
            self.note_head(seq);
        }
    }

    /// Takes events in that follow the tail, in order; what was sent meanwhile is passed over.
    pub(super) fn extend(&self, page: Vec<RecordedEvent>) {
        for event in page {
            let mut state = self.lock();
            if event.seq > state.tail {
                self.send_event(&mut state, event);
            }
        }
    }

    /// Under the lock, so that who joins has either the new tail or the frame.
    fn send_event(&self, state: &mut State, event: RecordedEvent) {
        let added = state.live.note(&event.event);
        state.tail = event.seq;
        self.send_added(added);
        self.send(Frame::Event(Arc::new(Framed::new(event))));
    }

    /// Whether a piece of this message would be the first that is heard of it.
    pub(super) fn is_unknown(&self, message: &MessageId) -> bool {
        self.lock().live.is_unknown(message)
    }

    /// Takes live text in. `false`: a piece before it is missing.
    pub(super) fn take(&self, delta: Delta) -> bool {
        let mut state = self.lock();
        let added = state.live.extend(delta);
        let is_whole = added != Added::Gap;
        self.send_added(added);
        is_whole
    }

    fn send_added(&self, added: Added) {
        if let Added::New(delta) = added
            && let Some(frames) = self.frames.get()
            && frames.receiver_count() > 0
        {
            // An error means that the last follower is just leaving.
            let _ = frames.send(Frame::Delta(Arc::new(Framed::new(delta))));
        }
    }

    fn send(&self, frame: Frame) {
        // Errors mean that nobody follows just now: the next to join reads Postgres.
        let _ = self.events.send(frame.clone());
        if let Some(frames) = self.frames.get() {
            let _ = frames.send(frame);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        EventId, IdMint, InterruptRequested, InterruptTarget, LocationId, OrgId, SessionId, Stamp,
    };
    use signals::DeltaKind;

    use super::*;

    fn followed() -> Arc<Followed> {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (location, session) = (LocationId::mint(&mut mint), SessionId::mint(&mut mint));
        Followed::new(SessionRef { org: OrgId::FIRST, location, session })
    }

    fn event(seq: i64) -> RecordedEvent {
        let id = EventId::mint(&mut IdMint::after(Stamp::default(), seq));
        let event = InterruptRequested { target: InterruptTarget::Drain }.into();
        RecordedEvent { seq: Seq(seq), id, time: seq, claim: None, event }
    }

    fn delta() -> Delta {
        Delta {
            message: "msg_a".parse().expect("an id"),
            part: "prt_a".parse().expect("an id"),
            kind: DeltaKind::Text,
            offset: 0,
            text: "hi".into(),
        }
    }

    /// The numbers of the events received so far; `None` for live text.
    fn received(frames: &mut broadcast::Receiver<Frame>) -> Vec<Option<i64>> {
        let mut seen = Vec::new();
        while let Ok(frame) = frames.try_recv() {
            seen.push(match frame {
                Frame::Event(event) => Some(event.seq.0),
                Frame::Delta(_) => None,
                Frame::Gone => panic!("nothing ended"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn an_event_of_our_own_is_sent_when_it_is_the_next_and_else_only_heard_of() {
        let followed = followed();
        followed.offer(event(6)); // the reader has not started: it may know 6 already, or not
        followed.start(SessionIncarnation(1), Seq(5), Vec::new());
        assert!(followed.is_behind());
        let mut frames = followed.join(Want::Events).await.expect("it reads").frames;
        followed.offer(event(7));
        assert_eq!(received(&mut frames), []);
        followed.extend(vec![event(6), event(7)]);
        assert!(!followed.is_behind());
        followed.offer(event(8));
        followed.offer(event(8));
        // A page that was read before the offer has it too.
        followed.extend(vec![event(8), event(9)]);
        assert_eq!(received(&mut frames), [6, 7, 8, 9].map(Some));
        assert_eq!(followed.tail(), Seq(9));
    }

    #[tokio::test]
    async fn what_was_heard_of_and_is_not_there_is_asked_for_once() {
        let followed = followed();
        followed.start(SessionIncarnation(1), Seq(5), Vec::new());
        followed.hear(Seq(9));
        assert!(followed.is_behind());
        followed.is_read_to(Seq(5), Seq(8)); // 9 was heard of while the page was read
        assert!(followed.is_behind());
        followed.is_read_to(Seq(5), Seq(9));
        assert!(!followed.is_behind());
    }

    #[tokio::test]
    async fn who_wants_events_alone_is_not_woken_by_text() {
        let followed = followed();
        followed.start(SessionIncarnation(1), Seq(1), Vec::new());
        let mut events = followed.join(Want::Events).await.expect("it reads").frames;
        let mut all = followed.join(Want::Everything).await.expect("it reads").frames;
        assert_eq!(followed.followers(), 2);
        assert!(followed.take(delta()));
        followed.offer(event(2));
        assert_eq!(received(&mut events), [Some(2)]);
        assert_eq!(received(&mut all), [None, Some(2)]);
        let late = followed.join(Want::Everything).await.expect("it reads");
        assert_eq!((late.tail, late.live), (Seq(2), vec![delta()]));
    }

    #[tokio::test]
    async fn who_wants_everything_has_it_read_that_nobody_wanted_until_then() {
        let followed = followed();
        followed.start(SessionIncarnation(1), Seq(1), Vec::new());
        let held = followed.join(Want::Events).await.expect("it reads");
        followed.hear(Seq(2));
        assert!(!followed.is_watched(), "who waits for the end needs no read now");
        let poked = async || {
            let poked = followed.poke.notified();
            tokio::time::timeout(std::time::Duration::from_millis(10), poked).await.is_ok()
        };
        assert!(!poked().await);
        let all = followed.join(Want::Everything).await.expect("it reads");
        assert!(followed.is_watched() && poked().await);
        drop((held, all));
    }

    #[tokio::test]
    async fn events_offered_and_read_at_once_come_once_and_in_order() {
        const LAST: i64 = 900;
        let followed = followed();
        followed.start(SessionIncarnation(1), Seq(0), Vec::new());
        let mut frames = followed.join(Want::Everything).await.expect("it reads").frames;
        let committed = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let seq = {
                            let mut last = committed.lock().expect("no panic under it");
                            if *last == LAST {
                                return;
                            }
                            *last += 1;
                            *last
                        };
                        followed.offer(event(seq));
                    }
                });
            }
            scope.spawn(|| {
                while followed.tail() < Seq(LAST) {
                    let (tail, heard) = (followed.tail(), followed.heard());
                    let end = *committed.lock().expect("no panic under it");
                    std::thread::yield_now(); // what is offered now is in the page too
                    let page: Vec<_> = (tail.0 + 1..=end).map(event).collect();
                    let last = page.last().map_or(tail, |event| event.seq);
                    followed.extend(page);
                    followed.is_read_to(last, heard);
                }
            });
        });
        let all: Vec<_> = (1..=LAST).map(Some).collect();
        assert_eq!(received(&mut frames), all);
    }
}
