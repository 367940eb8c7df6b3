//! The store as the simulation knows it: the outcomes of the SQL functions, word for word, without SQL.
//! `crates/store/tests/it/model.rs` runs the same operations on Postgres and on this, and compares.
//!
//! A transaction is one call: locks are what the scheduler does not interleave. What a caller saw before and
//! writes after is two calls, between which anything may happen.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Claim, Delivery, DrainEnd, EventId, IdMint, InterruptRequested, InterruptTarget, MessageId,
    PromptAdmitted, RecordedEvent, Seq, SessionEvent, Stamp, Taken, TimestampMs, TurnId,
    TurnOutcome,
};

use crate::mutant::{Mutant, StoreMutant};

/// Locations, sessions and ids of one organisation.
#[derive(Debug, Clone, Default)]
pub struct SimStore {
    /// The fence of each Location.
    pub fences: Vec<i64>,
    /// The sessions.
    pub sessions: Vec<SimSession>,
    /// Every input's id with its session: ids are the organisation's.
    inputs: BTreeMap<MessageId, usize>,
    /// The ids of messages, which no input may take.
    messages: BTreeSet<MessageId>,
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
    /// Turns that are not settled, titles apart.
    open_turns: Vec<TurnId>,
}

/// A row of `session_head`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Where the session runs.
    pub location: usize,
    /// The number that the next event gets.
    pub next_seq: i64,
    /// The highest claim.
    pub claim: i64,
    /// A drain has taken work up and not ended.
    pub open: bool,
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
    /// The highest id stamp.
    pub last_id: Stamp,
}

impl Head {
    /// The generated column.
    #[must_use]
    pub fn ready(&self) -> bool {
        (self.wake_seq > self.parked_seq && self.pending > 0) || self.open
    }
}

/// A row of `session_input`.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its id.
    pub id: MessageId,
    /// As admitted.
    pub admitted_delivery: Delivery,
    /// As changed last.
    pub delivery: Delivery,
    /// What tells a retry from another prompt.
    pub digest: String,
    /// Its place in the log.
    pub admitted_seq: i64,
    /// The wake that is for it; 0 without one.
    pub wake_seq: i64,
    /// Where it stands.
    pub status: InputStatus,
}

/// The status of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputStatus {
    /// It waits.
    Admitted,
    /// It is history.
    Promoted,
    /// It was taken back.
    Cancelled,
}

/// How an admission went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It is durable, at this place.
    Admitted(i64),
    /// It was before, at this place.
    Retry(i64),
    /// The id is another message's.
    Conflict,
}

/// How a change of a pending input went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is durable.
    Done,
    /// There was nothing to cancel.
    Gone,
    /// It is not pending, or is so already.
    Conflict,
    /// There is no such input.
    Missing,
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

/// What a drain's write is based on.
#[derive(Debug, Clone, Copy)]
pub struct Basis {
    /// The head's claim as seen.
    pub seen: i64,
    /// The number that its first event gets.
    pub first: i64,
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

/// What a drain adds.
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

impl SimStore {
    /// Locations without a fence, and no session.
    #[must_use]
    pub fn new(locations: usize, mutant: Option<Mutant>) -> Self {
        Self { fences: vec![0; locations], mutant, ..Self::default() }
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
        let head = Head {
            location,
            next_seq: 2,
            claim: 0,
            open: false,
            handed_over: false,
            recoveries: 0,
            pending: 0,
            wake_seq: 0,
            parked_seq: 0,
            interrupt_seq: 0,
            last_id: mint.last(),
        };
        let event = RecordedEvent { seq: Seq(1), id, time: now, claim: None, event: created };
        self.sessions.push(SimSession {
            head,
            events: vec![event],
            inputs: Vec::new(),
            open_turns: Vec::new(),
        });
    }

    /// `admit_prompt`.
    pub fn admit(
        &mut self,
        session: usize,
        prompt: &PromptAdmitted,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Admission {
        if let Some(&holder) = self.inputs.get(&prompt.message) {
            let first =
                self.sessions[holder].inputs.iter().find(|input| input.id == prompt.message);
            let same = first.is_some_and(|first| {
                holder == session
                    && first.admitted_delivery == prompt.delivery
                    && first.digest == prompt.digest
            });
            let seq = first.map_or(0, |first| first.admitted_seq);
            let same = same || (self.is(StoreMutant::RetryComparesIdOnly) && holder == session);
            return if same { Admission::Retry(seq) } else { Admission::Conflict };
        }
        if self.messages.contains(&prompt.message) {
            return Admission::Conflict;
        }
        let seq = self.sessions[session].head.next_seq;
        if prompt.wake {
            self.sessions[session].head.wake_seq = seq;
        }
        if !self.is(StoreMutant::PendingNotCounted) {
            self.sessions[session].head.pending += 1;
        }
        self.log(session, prompt.clone().into(), mint, now);
        Admission::Admitted(seq)
    }

    /// `cancel_input`.
    pub fn cancel(
        &mut self,
        session: usize,
        message: &MessageId,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Change {
        let delivered = self.is(StoreMutant::CancelDelivered);
        let waits = self.sessions[session].inputs.iter().any(|input| {
            input.id == *message && (input.status == InputStatus::Admitted || delivered)
        });
        if !waits {
            return Change::Gone;
        }
        self.sessions[session].head.pending -= 1;
        self.log(session, domain::InputCancelled { message: message.clone() }.into(), mint, now);
        self.spend_wakes(session);
        Change::Done
    }

    /// `change_delivery`.
    pub fn change(
        &mut self,
        session: usize,
        message: &MessageId,
        delivery: Delivery,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Change {
        let row = &mut self.sessions[session];
        let Some(input) = row.inputs.iter().find(|input| input.id == *message) else {
            return Change::Missing;
        };
        if input.status != InputStatus::Admitted || input.delivery == delivery {
            return Change::Conflict;
        }
        let wake = delivery == Delivery::Steer;
        if wake {
            row.head.wake_seq = row.head.next_seq;
        }
        let message = message.clone();
        self.log(session, domain::DeliveryChanged { message, delivery, wake }.into(), mint, now);
        Change::Done
    }

    /// `interrupt_session`.
    pub fn interrupt(
        &mut self,
        session: usize,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Interrupted {
        let row = &mut self.sessions[session];
        if !row.head.ready() {
            return Interrupted::Idle;
        }
        let seq = row.head.next_seq;
        let target = match (row.head.open, row.open_turns.last()) {
            (false, _) => InterruptTarget::Parked,
            (true, None) => InterruptTarget::Drain,
            (true, Some(turn)) => InterruptTarget::Turn { turn: turn.clone() },
        };
        row.head.interrupt_seq = seq;
        row.head.parked_seq = seq;
        self.log(session, InterruptRequested { target }.into(), mint, now);
        Interrupted::Applied(seq)
    }

    /// `raise_fence`.
    pub fn raise_fence(&mut self, location: usize, token: i64) -> bool {
        let known = if self.is(StoreMutant::FenceAcrossLocations) {
            self.fences.iter().copied().max().unwrap_or(0)
        } else {
            self.fences[location]
        };
        if known >= token {
            return known == token;
        }
        self.fences[location] = token;
        if !self.is(StoreMutant::FenceKeepsClaims) {
            let here = |row: &&mut SimSession| {
                row.head.location == location && (row.head.open || row.head.pending > 0)
            };
            self.sessions.iter_mut().filter(here).for_each(|row| row.head.claim += 1);
        }
        true
    }

    /// `look_at_drain`, and the pages after it.
    #[must_use]
    pub fn look(&self, session: usize, token: i64, known: Seq) -> Look {
        let row = &self.sessions[session];
        if !row.head.ready() {
            return Look::Idle;
        }
        if self.fences[row.head.location] != token && !self.is(StoreMutant::TokenNotChecked) {
            return Look::Superseded;
        }
        let taken = Taken {
            was_open: row.head.open,
            handed_over: row.head.handed_over,
            recoveries: row.head.recoveries + i16::from(row.head.open && !row.head.handed_over),
        };
        let events = self.events_after(session, known);
        Look::Ready(self.basis(session, Some(token)), taken, events)
    }

    /// `prove_claim`: the head, locked, for a drain's next write. `None`: fenced.
    #[must_use]
    pub fn prove(
        &self,
        session: usize,
        claim: i64,
        known: Seq,
    ) -> Option<(Basis, Vec<RecordedEvent>)> {
        let head = &self.sessions[session].head;
        if head.claim != claim && !self.is(StoreMutant::ClaimNotChecked) {
            return None;
        }
        let basis = Basis { seen: claim, ..self.basis(session, None) };
        Some((basis, self.events_after(session, known)))
    }

    fn basis(&self, session: usize, starts: Option<i64>) -> Basis {
        let head = &self.sessions[session].head;
        Basis {
            seen: head.claim,
            first: head.next_seq,
            starts,
            interrupt_seq: head.interrupt_seq,
            last_id: head.last_id,
        }
    }

    fn events_after(&self, session: usize, known: Seq) -> Vec<RecordedEvent> {
        let from = usize::try_from(known.0).unwrap_or(0);
        self.sessions[session].events.get(from..).unwrap_or_default().to_vec()
    }

    /// `write_drain`.
    pub fn write(
        &mut self,
        session: usize,
        basis: Basis,
        append: &Append<'_>,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Written {
        let location = self.sessions[session].head.location;
        if let Some(token) = basis.starts
            && self.fences[location] != token
            && !self.is(StoreMutant::TokenNotChecked)
        {
            return Written::Superseded;
        }
        let unclaimed = self.is(StoreMutant::ClaimNotChecked);
        let unnumbered = self.is(StoreMutant::NextSeqNotChecked);
        let count = i64::try_from(append.events.len()).unwrap_or(i64::MAX);
        let unspent = self.is(StoreMutant::WakesNotSpent);
        let spends_all = self.is(StoreMutant::CloseSpendsAllWakes);
        let head = &mut self.sessions[session].head;
        let claimed = head.claim == basis.seen || (unclaimed && basis.starts.is_none());
        if !claimed || (head.next_seq != basis.first && !unnumbered) {
            let starts = basis.starts.is_some();
            return if starts || head.claim == basis.seen {
                Written::Stale
            } else {
                Written::Fenced
            };
        }
        let starts = basis.starts.is_some();
        let ends = append.end != DrainEnd::Keep;
        let claim = head.claim + i64::from(starts);
        let all_promoted = head.pending == append.promoted;
        head.recoveries = match (append.progress, append.end) {
            (true, _) | (_, DrainEnd::Close | DrainEnd::Park | DrainEnd::Moved) => 0,
            (false, DrainEnd::Keep | DrainEnd::HandOver | DrainEnd::MovedOpen) => {
                head.recoveries + i16::from(starts && head.open && !head.handed_over)
            }
        };
        head.pending -= append.promoted;
        head.open = matches!(append.end, DrainEnd::Keep | DrainEnd::HandOver);
        head.handed_over = append.end == DrainEnd::HandOver;
        head.claim = claim + i64::from(ends);
        if append.end == DrainEnd::Park
            || (append.end == DrainEnd::Close && (all_promoted || spends_all))
        {
            head.parked_seq = head.parked_seq.max(head.wake_seq);
        }
        let left_over = head.pending;
        for event in append.events {
            self.record(session, Some(claim), event.clone(), mint, now);
        }
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
        if append.end == DrainEnd::Close && left_over > 0 && !unspent {
            self.spend_wakes(session);
        }
        let head = &self.sessions[session].head;
        Written::Next(Basis {
            seen: claim,
            first: basis.first + count,
            starts: None,
            interrupt_seq: head.interrupt_seq.min(basis.interrupt_seq),
            last_id: basis.last_id.max(mint.last()),
        })
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

    /// An event of a gateway's.
    fn log(&mut self, session: usize, event: SessionEvent, mint: &mut IdMint, now: TimestampMs) {
        self.record(session, None, event, mint, now);
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
    }

    fn record(
        &mut self,
        session: usize,
        claim: Option<i64>,
        event: SessionEvent,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        let id = EventId::mint(mint);
        let row = &mut self.sessions[session];
        let seq = Seq(row.head.next_seq);
        row.head.next_seq += 1;
        self.project(session, seq, &event);
        let event = RecordedEvent { seq, id, time: now, claim: claim.map(Claim), event };
        self.sessions[session].events.push(event);
    }

    /// As much of the projector as later outcomes depend on.
    fn project(&mut self, session: usize, seq: Seq, event: &SessionEvent) {
        let row = &mut self.sessions[session];
        let status = |row: &mut SimSession, message: &MessageId, status| {
            for input in row.inputs.iter_mut().filter(|input| input.id == *message) {
                input.status = status;
            }
        };
        #[expect(clippy::wildcard_enum_match_arm, reason = "no outcome depends on the others")]
        match event {
            SessionEvent::PromptAdmitted(prompt) => {
                self.inputs.insert(prompt.message.clone(), session);
                row.inputs.push(Input {
                    id: prompt.message.clone(),
                    admitted_delivery: prompt.delivery,
                    delivery: prompt.delivery,
                    digest: prompt.digest.clone(),
                    admitted_seq: seq.0,
                    wake_seq: if prompt.wake { seq.0 } else { 0 },
                    status: InputStatus::Admitted,
                });
            }
            SessionEvent::PromptPromoted(promoted) => {
                status(row, &promoted.message, InputStatus::Promoted);
                self.messages.insert(promoted.message.clone());
            }
            SessionEvent::InputCancelled(cancelled) => {
                status(row, &cancelled.message, InputStatus::Cancelled);
            }
            SessionEvent::DeliveryChanged(changed) => {
                for input in row.inputs.iter_mut().filter(|input| input.id == changed.message) {
                    input.delivery = changed.delivery;
                    if changed.wake {
                        input.wake_seq = seq.0;
                    }
                }
            }
            SessionEvent::TurnStarted(started) => {
                row.open_turns.push(started.turn.clone());
                self.messages.insert(started.message.clone());
            }
            SessionEvent::TurnSettled(settled) => {
                row.open_turns.retain(|turn| *turn != settled.turn);
                if matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
                    self.messages.remove(&settled.message);
                }
            }
            SessionEvent::CompactionStarted(started) => row.open_turns.push(started.turn.clone()),
            SessionEvent::CompactionEnded(ended) => {
                row.open_turns.retain(|turn| *turn != ended.turn);
            }
            SessionEvent::NoticeRecorded(notice) => {
                self.messages.insert(notice.message.clone());
            }
            _ => {}
        }
    }
}
