//! The store as the simulation knows it: the outcomes of the SQL functions, word for word, without SQL.
//! `crates/store/tests/it/model/` runs the same operations on Postgres and on this, and compares.
//!
//! A transaction is one call, and the scheduler never interrupts a call: that stands for locks. A look and the write
//! after it are two calls, between which anything may happen.
//!
//! ```text
//! gateway   admissions, changes of the inbox, interrupts, names, entries
//! drain     fences, looks, drains' writes
//! revert    a staged Revert, and its commit
//! project   the part of the projector on which later outcomes depend
//! ```

mod drain;
mod gateway;
mod project;
mod revert;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

pub use domain::InputStatus;
use domain::{
    Answer, AskId, CallId, Delivery, DrainEnd, EventId, IdMint, InputKind, LocationId, MessageId,
    RecordedEvent, RevertStaged, Seq, SessionEvent, SessionForked, Stamp, Taken, TimestampMs,
    TurnId,
};

use crate::mutant::{Mutant, StoreMutant};

/// Locations, sessions and ids of one organisation.
#[derive(Debug, Clone, Default)]
pub struct SimStore {
    /// The Locations, which are named by their index here.
    pub locations: Vec<LocationId>,
    /// The fence of each Location.
    pub fences: Vec<i64>,
    /// The sessions.
    pub sessions: Vec<SimSession>,
    /// Every input's id with its session: ids are the organisation's.
    inputs: BTreeMap<MessageId, usize>,
    /// The ids of messages, which no input may take, with their sessions and places.
    messages: BTreeMap<MessageId, (usize, i64)>,
    /// `session_incarnation`: the number of the session that was made last.
    pub incarnations: i64,
    mutant: Option<Mutant>,
}

/// A session's rows.
#[derive(Debug, Clone)]
pub struct SimSession {
    /// `session_head`.
    pub head: Head,
    /// `session_event`.
    pub events: Vec<RecordedEvent>,
    /// `session_input`, in the order of admission.
    pub inputs: Vec<Input>,
    /// `ask`, in the order of asking.
    pub asks: Vec<SimAsk>,
    /// `session_entry`.
    pub entries: BTreeMap<String, String>,
    /// `session.revert`: the Revert that is staged.
    revert: Option<RevertStaged>,
    /// Turns and Compactions that are not settled; titles apart.
    open_turns: Vec<TurnId>,
}

/// A row of `session_head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Where the session runs.
    pub location: usize,
    /// Tells this session from an earlier one with the same id.
    pub incarnation: i64,
    /// The number that the next event gets.
    pub next_seq: i64,
    /// The highest claim.
    pub claim: i64,
    /// A drain has taken work up and not ended.
    pub open: bool,
    /// It waits for somebody's answer.
    pub asleep: bool,
    /// It stopped on purpose.
    pub handed_over: bool,
    /// Takeovers in a row without progress.
    pub recoveries: i16,
    /// Inputs that wait.
    pub pending: i32,
    /// The newest wake.
    pub wake_seq: i64,
    /// The newest wake that is spent or parked.
    pub parked_seq: i64,
    /// The newest interrupt.
    pub interrupt_seq: i64,
    /// The Revert that is staged; 0 without one.
    pub staged_seq: i64,
    /// The highest id stamp.
    pub last_id: Stamp,
}

impl Head {
    /// The generated column.
    #[must_use]
    pub fn ready(&self) -> bool {
        ((self.wake_seq > self.parked_seq && self.pending > 0) || self.open) && !self.asleep
    }

    /// Whether there is work, or somebody is waited for.
    #[must_use]
    pub fn busy(&self) -> bool {
        self.ready() || self.open
    }
}

/// A row of `ask`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimAsk {
    /// Its id.
    pub ask: AskId,
    /// Its call.
    pub call: CallId,
    /// Its place in the log.
    pub asked_seq: i64,
    /// Until when an answer is waited for.
    pub expires: TimestampMs,
    /// Its answer.
    pub answer: Option<Answer>,
    /// Its call was settled without an answer.
    pub withdrawn: bool,
}

impl SimAsk {
    /// Whether it waits for an answer.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.answer.is_none() && !self.withdrawn
    }
}

/// How an answer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answering {
    /// It is durable, or was before.
    Answered,
    /// Another answer stands.
    Conflict,
    /// Nobody waits for it.
    Gone,
}

/// A row of `session_input`.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its id.
    pub id: MessageId,
    /// A prompt, a synthetic one, or a control of this kind.
    pub kind: InputKind,
    /// As admitted.
    pub admitted_delivery: Delivery,
    /// As changed last.
    pub delivery: Delivery,
    /// A digest of the request: a retry has the same one.
    pub digest: String,
    /// Its place in the log.
    pub admitted_seq: i64,
    /// The wake that is for it; 0 without one.
    pub wake_seq: i64,
    /// Where it stands.
    pub status: InputStatus,
}

/// How an admission went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is durable, at this place.
    Admitted(i64),
    /// It was before, at this place.
    Retry(i64),
    /// Another control of its kind waits, at this place.
    Pending(i64),
    /// The id is another message's.
    Conflict,
    /// A Revert and its end want an idle session.
    Busy,
}

/// How a change of the inbox, or of the entries, went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is durable.
    Done,
    /// There was nothing to change.
    Gone,
    /// It is not pending, or is so already.
    Conflict,
    /// There is no such input.
    Missing,
    /// The session has work.
    Busy,
}

/// How an interrupt went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It is durable, at this place.
    Applied(i64),
    /// There was nothing to interrupt.
    Idle,
}

/// How a look at a session went.
#[derive(Debug, Clone)]
pub enum Look {
    /// It has work. The head as seen, and the events after what was known.
    Ready(Basis, Taken, Vec<RecordedEvent>),
    /// A higher token has been at the Location.
    Superseded,
    /// There is nothing to do.
    Idle,
}

/// The beginning of a log that somebody knows, by its position.
#[derive(Debug, Clone, Copy)]
pub struct Known<'e> {
    /// The number of the last event.
    pub seq: Seq,
    /// Its id; `None` compares no event.
    pub id: Option<&'e EventId>,
}

impl Known<'_> {
    /// Nothing is known.
    pub const NOTHING: Self = Self { seq: Seq(0), id: None };
}

/// How the proof of a claim went.
#[derive(Debug, Clone)]
pub enum Proof {
    /// The head is locked. The events after what was known.
    Held(Basis, Vec<RecordedEvent>),
    /// The claim has passed on.
    Fenced,
    /// The log is not the one that is known.
    WentBack,
}

/// The head as a drain saw it before its write.
#[derive(Debug, Clone, Copy)]
pub struct Basis {
    /// The Location that the drain is at.
    pub at: usize,
    /// The head's claim as seen.
    pub seen: i64,
    /// The number that its first event gets.
    pub first: i64,
    /// A digest of the id of the event before it.
    pub after: u64,
    /// The token of a drain that starts with it.
    pub starts: Option<i64>,
    /// The newest interrupt, as seen.
    pub interrupt_seq: i64,
    /// The highest id stamp, as seen.
    pub last_id: Stamp,
}

impl Basis {
    /// The claim that its events are written under.
    #[must_use]
    pub fn claim(&self) -> i64 {
        self.seen + i64::from(self.starts.is_some())
    }
}

/// The content of a drain's write.
#[derive(Debug)]
pub struct Append<'a> {
    /// The events.
    pub events: &'a [SessionEvent],
    /// How many inputs they promote.
    pub promoted: i32,
    /// A turn or a call was settled.
    pub progress: bool,
    /// Whether the drain goes on.
    pub end: DrainEnd,
}

/// How a drain's write went.
#[derive(Debug, Clone, Copy)]
pub enum Written {
    /// It is durable; the next one can be based on this.
    Next(Basis),
    /// The head has moved.
    Stale,
    /// The claim has passed on.
    Fenced,
    /// A higher token has been at the Location.
    Superseded,
}

/// The digest of an event's id by which a basis names it.
pub(crate) fn digest_of(id: &EventId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

impl SimStore {
    /// Locations without a fence, and no session.
    #[must_use]
    pub fn new(locations: Vec<LocationId>, mutant: Option<Mutant>) -> Self {
        Self { fences: vec![0; locations.len()], locations, mutant, ..Self::default() }
    }

    /// Whether the log has what somebody knows of it. `believes`: a mistake that only compares numbers.
    fn is_known(&self, session: usize, known: Known<'_>, believes: StoreMutant) -> bool {
        let Some(id) = known.id else { return true };
        let there = self.event(session, known.seq.0).map(|event| &event.id);
        there.is_some_and(|there| self.is(believes) || there == id)
    }

    /// The event with a number.
    #[must_use]
    pub fn event(&self, session: usize, seq: i64) -> Option<&RecordedEvent> {
        let place = usize::try_from(seq).ok()?.checked_sub(1)?;
        self.sessions[session].events.get(place)
    }

    /// A digest of the id of the event with a number; 0 without it.
    fn digest(&self, session: usize, seq: i64) -> u64 {
        self.event(session, seq).map_or(0, |event| digest_of(&event.id))
    }

    fn is(&self, mutant: StoreMutant) -> bool {
        self.mutant == Some(Mutant::Store(mutant))
    }

    /// `create_session`.
    pub fn create(
        &mut self,
        location: usize,
        created: SessionEvent,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        let id = EventId::mint(mint);
        self.incarnations += 1;
        let head = Head {
            location,
            incarnation: self.incarnations,
            next_seq: 2,
            claim: if self.is(StoreMutant::ClaimBeginsAtZero) {
                0
            } else {
                self.incarnations << 32
            },
            open: false,
            asleep: false,
            handed_over: false,
            recoveries: 0,
            pending: 0,
            wake_seq: 0,
            parked_seq: 0,
            interrupt_seq: 0,
            staged_seq: 0,
            last_id: mint.last(),
        };
        let event = RecordedEvent { seq: Seq(1), id, time: now, claim: None, event: created };
        self.sessions.push(SimSession {
            head,
            events: vec![event],
            inputs: Vec::new(),
            asks: Vec::new(),
            entries: BTreeMap::new(),
            revert: None,
            open_turns: Vec::new(),
        });
    }

    /// `delete_session`, and then `create_session` under the same id. The ids of the deleted session's messages are
    /// free again.
    pub fn make_anew(
        &mut self,
        session: usize,
        location: usize,
        created: SessionEvent,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        self.inputs.retain(|_, holder| *holder != session);
        self.messages.retain(|_, (holder, _)| *holder != session);
        self.create(location, created, mint, now);
        self.sessions.swap_remove(session);
    }

    /// `fork_session`: one statement writes everything that the Fork of `parent` begins with.
    pub fn fork(
        &mut self,
        parent: usize,
        location: usize,
        (created, forked): (SessionEvent, SessionForked),
        copied: Vec<(TimestampMs, SessionEvent)>,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        self.create(location, created, mint, now);
        let session = self.sessions.len() - 1;
        self.record(session, None, forked.into(), mint, now);
        for (time, event) in copied {
            self.record(session, None, event, mint, time);
        }
        let pending = self.sessions[parent].head.pending;
        let keeps = self.is(StoreMutant::ForkKeepsPending);
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
        head.pending = if keeps { pending } else { 0 };
    }

    /// `ready_sessions_at`.
    #[must_use]
    pub fn ready_at(&self, location: usize) -> Vec<usize> {
        let ready =
            |(_, row): &(usize, &SimSession)| row.head.location == location && row.head.ready();
        self.sessions.iter().enumerate().filter(ready).map(|(session, _)| session).collect()
    }

    /// `spend_wakes`.
    fn spend_wakes(&mut self, session: usize) {
        let row = &mut self.sessions[session];
        let awake = row.inputs.iter().any(|input| {
            input.status == InputStatus::Admitted && input.wake_seq > row.head.parked_seq
        });
        if !awake {
            row.head.parked_seq = row.head.parked_seq.max(row.head.wake_seq);
        }
    }
}
