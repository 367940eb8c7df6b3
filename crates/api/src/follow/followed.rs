use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{EventId, MessageId, RecordedEvent, Seq, SessionIncarnation, SessionRef};
use signals::{CallOutput, Delta};
use tokio::sync::{Notify, watch};

use super::budget::QueueBudget;
use super::frame::{Frame, Framed};
use super::live::{Added, Live};
use super::queue::{QueueReader, QueueSender};
use crate::view::RepositoryView;

/// The frames that a follower wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Events, and live text between them.
    Everything,
    /// Events only, so that live text does not wake the follower.
    Events,
}

/// A followed session: its reader's progress, and the channels to its followers.
pub(super) struct Followed {
    pub(super) session: SessionRef,
    state: Mutex<State>,
    frames: QueueSender<Frame>,
    /// The queue without live text.
    events: QueueSender<Frame>,
    /// Wakes the reader when the log is longer than what it has sent.
    pub(super) poke: Notify,
    phase: watch::Sender<Phase>,
}

/// The phase of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting,
    /// The reader knows the end of the log, so followers may join.
    Reading,
    /// The session is gone, or the process stops.
    Ended,
}

struct State {
    /// The incarnation of the session. A later session with the same id has another one.
    incarnation: SessionIncarnation,
    /// The number of the last event sent.
    tail: Seq,
    /// Its id, once it is known: another event with this number is of another log.
    last: Option<EventId>,
    /// Whether the database may have come back without it.
    doubted: bool,
    /// The highest number that any hint has mentioned.
    heard: Seq,
    live: Live,
}

/// A follower's start: everything after `tail` comes as frames, after `live`.
pub(crate) struct Following {
    pub(crate) incarnation: SessionIncarnation,
    pub(crate) tail: Seq,
    /// The id of the event with this number.
    pub(crate) last: Option<EventId>,
    pub(crate) live: Vec<Delta>,
    /// The output so far of calls that run.
    pub(crate) outputs: Vec<CallOutput>,
    pub(crate) frames: QueueReader<Frame>,
}

impl Followed {
    pub(super) fn new(session: SessionRef, budget: &Arc<QueueBudget>) -> Arc<Self> {
        let state = State {
            incarnation: SessionIncarnation::default(),
            tail: Seq(0),
            last: None,
            doubted: false,
            heard: Seq(0),
            live: Live::default(),
        };
        Arc::new(Self {
            frames: QueueSender::new(budget, session.org),
            events: QueueSender::new(budget, session.org),
            session,
            state: Mutex::new(state),
            poke: Notify::new(),
            phase: watch::Sender::new(Phase::Starting),
        })
    }

    /// Joins once the reader has started. Returns `None` if it has ended.
    pub(super) async fn join(&self, want: Want) -> Option<Following> {
        let mut phase = self.phase.subscribe();
        let now = *phase.wait_for(|phase| *phase != Phase::Starting).await.ok()?;
        if now == Phase::Ended {
            return None;
        }
        let state = self.lock();
        let (live, outputs, frames) = match want {
            Want::Everything => {
                (state.live.snapshot(), state.live.outputs(), self.frames.subscribe())
            }
            Want::Events => (Vec::new(), Vec::new(), self.events.subscribe()),
        };
        if want == Want::Everything && state.heard > state.tail {
            self.poke.notify_one(); // nobody wanted it until now
        }
        let State { incarnation, tail, .. } = *state;
        let last = state.last.clone();
        Some(Following { incarnation, tail, last, live, outputs, frames })
    }

    /// Counts as a follower from now on, even before [`join`](Self::join) returns.
    pub(super) fn hold(&self) -> QueueReader<Frame> {
        self.events.subscribe()
    }

    /// Returns whether a follower needs every event as soon as it is committed.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers() > 0
    }

    fn watchers(&self) -> usize {
        self.frames.readers()
    }

    pub(super) fn followers(&self) -> usize {
        self.watchers() + self.events.readers()
    }

    /// Lets followers join: the log reaches to `tail`, whose event is `last`, and `live` is the text since then.
    pub(super) fn start(
        &self,
        incarnation: SessionIncarnation,
        (tail, last): (Seq, Option<EventId>),
        live: Vec<Delta>,
    ) {
        let mut state = self.lock();
        state.incarnation = incarnation;
        state.tail = tail;
        state.last = last;
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

    /// Returns the incarnation of the followed session; `None` until the reader has found it.
    pub(super) fn incarnation(&self) -> Option<SessionIncarnation> {
        let found = self.lock().incarnation;
        (found != SessionIncarnation::default()).then_some(found)
    }

    /// Returns whether nobody can join any more.
    pub(super) fn has_ended(&self) -> bool {
        *self.phase.borrow() == Phase::Ended
    }

    /// Ends: the session is deleted, or the process stops. A later join returns `None`.
    pub(super) fn end(&self) {
        self.phase.send_replace(Phase::Ended);
        self.send(&Frame::Gone);
    }

    /// Ends: the log lacks events that were sent. Whoever follows begins again with what is there.
    pub(super) fn went_back(&self) {
        self.phase.send_replace(Phase::Ended);
        self.send(&Frame::WentBack);
    }

    /// Has the reader look whether the last event sent is still there.
    pub(super) fn doubt(&self) {
        self.lock().doubted = true;
        self.poke.notify_one();
    }

    /// Returns whether the reader is to look, once.
    pub(super) fn takes_doubt(&self) -> bool {
        std::mem::take(&mut self.lock().doubted)
    }

    /// Notes that the log reaches to `seq`.
    pub(super) fn hear(&self, seq: Seq) {
        let mut state = self.lock();
        state.heard = state.heard.max(seq);
    }

    /// Notes that the log reaches to `seq`, and wakes the reader if that is news.
    pub(super) fn note_head(&self, seq: Seq) {
        self.hear(seq);
        if self.is_behind() {
            self.poke.notify_one();
        }
    }

    /// Returns whether the log is known to be longer than what was sent.
    pub(super) fn is_behind(&self) -> bool {
        let state = self.lock();
        state.heard > state.tail
    }

    /// Returns the number of the last event sent.
    pub(super) fn tail(&self) -> Seq {
        self.lock().tail
    }

    /// Returns the number and the id of the last event sent.
    pub(super) fn position(&self) -> (Seq, Option<EventId>) {
        let state = self.lock();
        (state.tail, state.last.clone())
    }

    /// Notes that a read found nothing after `tail`, although hints had mentioned up to `heard`.
    pub(super) fn is_read_to(&self, tail: Seq, heard: Seq) {
        let mut state = self.lock();
        if state.tail == tail && state.heard == heard {
            state.heard = tail;
        }
    }

    /// Returns the highest number that any hint has mentioned.
    pub(super) fn heard(&self) -> Seq {
        self.lock().heard
    }

    /// Accepts an event that this gateway has committed. Sends it at once if it is the very next of the log;
    /// otherwise the reader will read it in its order.
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

    /// Sends events that follow the tail in order, and skips those already sent.
    pub(super) fn extend(&self, page: Vec<RecordedEvent>) {
        for event in page {
            let mut state = self.lock();
            if event.seq > state.tail {
                self.send_event(&mut state, event);
            }
        }
    }

    /// Runs under the lock, so that a follower that joins gets either the new tail or the frame.
    fn send_event(&self, state: &mut State, event: RecordedEvent) {
        let added = state.live.note(&event.event);
        state.tail = event.seq;
        state.last = Some(event.id.clone());
        self.send_added(added);
        self.send(&Frame::of_event(event));
    }

    /// Returns whether no earlier delta or event has mentioned this message.
    pub(super) fn is_unknown(&self, message: &MessageId) -> bool {
        self.lock().live.is_unknown(message)
    }

    /// Sends live text. Returns `false` if a piece before it is missing.
    pub(super) fn take(&self, delta: Delta) -> bool {
        let mut state = self.lock();
        let added = state.live.extend(delta);
        let is_whole = added != Added::Gap;
        self.send_added(added);
        is_whole
    }

    /// Sends output of a call, unless the call has ended.
    pub(super) fn show(&self, output: CallOutput) {
        let mut state = self.lock();
        if state.live.show(&output) && self.is_watched() {
            self.frames.send(Frame::of_output(output));
        }
    }

    /// Sends how far the session's workspace is.
    pub(super) fn tell(&self, workspace: RepositoryView) {
        self.frames.send(Frame::Workspace(Arc::new(Framed::new(workspace))));
    }

    fn send_added(&self, added: Added) {
        if let Added::New(delta) = added
            && self.is_watched()
        {
            self.frames.send(Frame::of_delta(delta));
        }
    }

    /// Whoever follows later reads Postgres.
    fn send(&self, frame: &Frame) {
        self.events.send(frame.clone());
        self.frames.send(frame.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No foreign code runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        IdMint, InterruptRequested, InterruptTarget, LocationId, OrgId, SessionId, Stamp,
    };
    use signals::DeltaKind;

    use super::*;

    fn followed() -> Arc<Followed> {
        let mut mint = IdMint::after(Stamp::default(), 1);
        let (location, session) = (LocationId::mint(&mut mint), SessionId::mint(&mut mint));
        let session = SessionRef { org: OrgId::FIRST, location, session };
        Followed::new(session, &Arc::default())
    }

    fn event(seq: i64) -> RecordedEvent {
        let id = EventId::mint(&mut IdMint::after(Stamp::default(), seq));
        let event = InterruptRequested { by: None, target: InterruptTarget::Drain }.into();
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

    /// Returns the numbers of the received events; `None` for live text.
    fn received(frames: &mut QueueReader<Frame>) -> Vec<Option<i64>> {
        let mut seen = Vec::new();
        while let Ok(frame) = frames.try_recv() {
            seen.push(match frame {
                Frame::Event(event) => Some(event.seq.0),
                Frame::Large(seq) => Some(seq.0),
                Frame::Delta(_) | Frame::Output(_) | Frame::Workspace(_) => None,
                Frame::Gone | Frame::WentBack => panic!("nothing ended"),
            });
        }
        seen
    }

    #[tokio::test]
    async fn an_event_of_our_own_is_sent_when_it_is_the_next_and_else_only_heard_of() {
        let followed = followed();
        followed.offer(event(6)); // the reader has not started, so it may or may not know 6
        followed.start(SessionIncarnation(1), (Seq(5), None), Vec::new());
        assert!(followed.is_behind());
        let mut frames = followed.join(Want::Events).await.expect("it reads").frames;
        followed.offer(event(7));
        assert_eq!(received(&mut frames), []);
        followed.extend(vec![event(6), event(7)]);
        assert!(!followed.is_behind());
        followed.offer(event(8));
        followed.offer(event(8));
        // A page that was read before the offer contains it too.
        followed.extend(vec![event(8), event(9)]);
        assert_eq!(received(&mut frames), [6, 7, 8, 9].map(Some));
        assert_eq!(followed.tail(), Seq(9));
    }

    #[tokio::test]
    async fn what_was_heard_of_and_is_not_there_is_asked_for_once() {
        let followed = followed();
        followed.start(SessionIncarnation(1), (Seq(5), None), Vec::new());
        followed.hear(Seq(9));
        assert!(followed.is_behind());
        followed.is_read_to(Seq(5), Seq(8)); // a hint mentioned 9 while the page was read
        assert!(followed.is_behind());
        followed.is_read_to(Seq(5), Seq(9));
        assert!(!followed.is_behind());
    }

    #[tokio::test]
    async fn who_wants_events_alone_is_not_woken_by_text() {
        let followed = followed();
        followed.start(SessionIncarnation(1), (Seq(1), None), Vec::new());
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
        followed.start(SessionIncarnation(1), (Seq(1), None), Vec::new());
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
        followed.start(SessionIncarnation(1), (Seq(0), None), Vec::new());
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
                    std::thread::yield_now(); // an event offered now is in the page too
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
