//! What must hold of a log after every action (design §9), told from events alone.
//!
//! ```text
//! inbox     what waits, in which order it is taken, who woke for it          I1, I2, I11
//! turns     turns, calls, steps, retries                                     I4, I8, I9
//! sides     Compactions and titles, which run beside the conversation        I9
//! told      epochs, what was told of the context, requests that were sent    I7, prefix
//! ```

mod inbox;
mod sides;
mod told;
mod turns;

use std::collections::BTreeMap;

use domain::{
    AttemptId, CallId, DrainOutcome, InterruptTarget, MessageId, RecordedEvent, SessionEvent,
    SideOutcome, TurnId, TurnOutcome, TurnUsage,
};

use self::inbox::Inbox;
use self::sides::Sides;
use self::told::Told;
use self::turns::Turns;
use crate::provider::Provider;
use crate::store::SimSession;

/// Bodies of a call that may run again.
pub(crate) const MAX_BODIES: i32 = 2;
/// Takeovers in a row without progress.
pub(crate) const MAX_RECOVERIES: i16 = 2;
/// Requests that may be repeated between two whole replies.
pub(crate) const MAX_RETRIES: u32 = 3;

/// A broken invariant, with what was found.
pub type Violation = String;

/// Requests of one turn, Compaction or title.
#[derive(Debug, Clone)]
struct Requests {
    id: TurnId,
    sent: i32,
    running: Option<AttemptId>,
    last: Option<AttemptId>,
    usage: TurnUsage,
}

impl Requests {
    fn of(id: &TurnId) -> Self {
        let (running, last) = (None, None);
        Self { id: id.clone(), sent: 0, running, last, usage: TurnUsage::default() }
    }
}

#[derive(Debug, Clone)]
struct AttemptView {
    body_hash: String,
    sent: bool,
    ended: bool,
}

/// What a session's log has said so far.
#[derive(Debug, Clone)]
pub(crate) struct Checker {
    seen: usize,
    claim: i64,
    ended_claim: i64,
    owners: BTreeMap<i64, u64>,
    inbox: Inbox,
    turns: Turns,
    sides: Sides,
    told: Told,
    attempts: BTreeMap<AttemptId, AttemptView>,
    /// The head said so last.
    open: bool,
    handed_over: bool,
    /// Takeovers since anything was settled.
    takeovers: i16,
    /// The interrupt that the drain has not met yet.
    stop_seq: Option<i64>,
    parked_interrupt: i64,
    /// A wake without input that no drain has answered.
    resumed: bool,
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
use ensure;

impl Checker {
    /// `limit`: the most tokens of a request.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            seen: 0,
            claim: 0,
            ended_claim: 0,
            owners: BTreeMap::new(),
            inbox: Inbox::default(),
            turns: Turns::default(),
            sides: Sides::new(limit),
            told: Told::default(),
            attempts: BTreeMap::new(),
            open: false,
            handed_over: false,
            takeovers: 0,
            stop_seq: None,
            parked_interrupt: 0,
            resumed: false,
        }
    }

    /// Takes in what is new. `writer`: the drain that has written it.
    pub(crate) fn take(
        &mut self,
        session: &SimSession,
        writer: Option<u64>,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let asleep = !self.open && !self.inbox.is_awake();
        let mut opened_without_wake = false;
        let new = session.events.get(self.seen..).unwrap_or_default();
        for event in new {
            self.seen += 1;
            let seq = event.seq.0;
            ensure!(usize::try_from(seq) == Ok(self.seen), "I5: seq {seq} at place {}", self.seen);
            if let Some(claim) = event.claim {
                self.claimed(claim.0, seq, writer)?;
                opened_without_wake |= asleep;
            }
            self.event(event, provider, max_steps)?;
        }
        ensure!(!opened_without_wake, "I11: a drain started without a wake, seq {}", self.seen);
        turns::cuts_are_continued(new)?;
        self.told.is_whole()?;
        let head = session.head;
        (self.open, self.handed_over) = (head.open, head.handed_over);
        if head.handed_over || !head.open {
            self.sides.no_title("a drain has stopped")?;
        }
        let takeovers = self.takeovers;
        ensure!(takeovers <= MAX_RECOVERIES, "recovery: {takeovers} takeovers without progress");
        let pending = self.inbox.pending();
        let counted = usize::try_from(head.pending) == Ok(pending);
        ensure!(counted, "I1: pending {} of {pending}", head.pending);
        let next = i64::try_from(self.seen).unwrap_or(0) + 1;
        ensure!(head.next_seq == next, "I5: head at {}", head.next_seq);
        let claim = self.claim;
        ensure!(head.claim >= claim, "I3: claim {claim} above the head's {}", head.claim);
        Ok(())
    }

    fn claimed(&mut self, claim: i64, seq: i64, writer: Option<u64>) -> Result<(), Violation> {
        ensure!(claim >= self.claim, "I3: claim {claim} after {} at seq {seq}", self.claim);
        ensure!(
            claim > self.ended_claim,
            "I4: claim {claim} wrote seq {seq} after its drain's end"
        );
        let writer = writer.unwrap_or(0);
        let owner = *self.owners.entry(claim).or_insert(writer);
        ensure!(owner == writer, "I4: drains {owner} and {writer} write under claim {claim}");
        ensure!(
            self.parked_interrupt <= self.inbox.last_wake,
            "I6: a drain wrote seq {seq} without a wake after the interrupt at {}",
            self.parked_interrupt
        );
        if claim > self.claim && self.open && !self.handed_over {
            self.takeovers += 1;
        }
        self.claim = claim;
        self.resumed = false;
        Ok(())
    }

    fn event(
        &mut self,
        recorded: &RecordedEvent,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let seq = recorded.seq.0;
        self.told.before(&recorded.event)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing is said of the others")]
        match &recorded.event {
            SessionEvent::SessionCreated(created) => {
                self.sides.created(created.named, created.parent.is_some());
            }
            SessionEvent::PromptAdmitted(prompt) => {
                self.inbox.admitted(&prompt.message, seq, prompt.delivery, prompt.wake, None)?;
            }
            SessionEvent::ControlAdmitted(control) => {
                let kind = Some(std::mem::discriminant(&control.control));
                self.inbox.admitted(&control.message, seq, control.delivery, control.wake, kind)?;
            }
            SessionEvent::PromptPromoted(promoted) => {
                let message = &promoted.message;
                ensure!(self.told.epoch > 0, "I7: {message} was promoted without a baseline");
                self.goes_on(seq, "a promotion")?;
                self.inbox.taken(message, seq, false)?;
                self.inbox.continues = true;
                self.turns.steps = 0;
                self.sides.promoted();
            }
            SessionEvent::ControlDelivered(delivered) => {
                self.goes_on(seq, "a control")?;
                self.inbox.taken(&delivered.message, seq, true)?;
            }
            SessionEvent::InputCancelled(cancelled) => self.inbox.cancelled(&cancelled.message)?,
            SessionEvent::DeliveryChanged(changed) => self.inbox.changed(changed, seq)?,
            SessionEvent::WakeRequested(_) => {
                self.inbox.woken(seq);
                self.resumed = true;
            }
            SessionEvent::EpochStarted(epoch) => self.told.epoch_started(epoch.epoch)?,
            SessionEvent::ContextUpdated(update) => self.told.updated(update, seq)?,
            SessionEvent::TurnStarted(started) => {
                self.goes_on(seq, "a turn")?;
                self.sides.turn_starts()?;
                self.turns.started(started, max_steps)?;
            }
            SessionEvent::AttemptStarted(started) => {
                let seen = |last: &AttemptId| provider.shown.contains(last);
                let requests = self.requests(&started.turn);
                let Some(requests) = requests else {
                    return Err(format!("I9: attempt {} of nothing open", started.attempt));
                };
                let running = requests.running.replace(started.attempt.clone());
                ensure!(running.is_none(), "I9: attempt {} while another runs", started.attempt);
                requests.sent += 1;
                ensure!(started.ordinal == requests.sent, "I9: ordinal {}", started.ordinal);
                let again = requests.last.replace(started.attempt.clone());
                let again = again.is_some_and(|last| seen(&last));
                ensure!(!again, "I9: {} repeats what somebody has seen", started.attempt);
                let body_hash = started.body_hash.clone();
                let view = AttemptView { body_hash, sent: false, ended: false };
                let before = self.attempts.insert(started.attempt.clone(), view);
                ensure!(before.is_none(), "I9: attempt {} began twice", started.attempt);
            }
            SessionEvent::AttemptEnded(ended) => {
                let Some(attempt) = self.attempts.get_mut(&ended.attempt) else {
                    return Err(format!("I9: attempt {} never began", ended.attempt));
                };
                ensure!(!attempt.ended, "I9: attempt {} ended twice", ended.attempt);
                attempt.ended = true;
                self.turns.attempt_ended(ended, provider)?;
                if let Some(requests) = self.requests(&ended.turn) {
                    requests.running = None;
                    if let Some(used) = ended.usage {
                        requests.usage.input += used.input;
                        requests.usage.output += used.output;
                    }
                }
            }
            SessionEvent::RetryScheduled(_) => self.turns.retried()?,
            SessionEvent::ToolCalled(called) => self.turns.called(called, max_steps)?,
            SessionEvent::ToolStarted(started) => self.turns.body_started(started)?,
            SessionEvent::ToolSettled(settled) => {
                self.turns.call_settled(&settled.call)?;
                self.takeovers = 0;
            }
            SessionEvent::TurnReplied(replied) => self.turns.replied(replied)?,
            SessionEvent::TurnSettled(settled) => {
                self.inbox.continues = self.turns.settled(settled, max_steps)?;
                self.sides.turn_settled(settled.outcome);
                if !matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
                    self.takeovers = 0;
                }
            }
            SessionEvent::CompactionStarted(started) => {
                self.goes_on(seq, "a Compaction")?;
                ensure!(self.turns.open().is_none(), "I4: a Compaction began within a turn");
                ensure!(started.epoch == self.told.epoch, "I7: it ends epoch {}", started.epoch);
                let forgets = self.inbox.continues && !started.continuing;
                ensure!(!forgets, "I2: a Compaction forgets that work continues, seq {seq}");
                self.inbox.continues |= started.continuing;
                self.sides.compaction_started(started, self.inbox.last_control.as_ref())?;
            }
            SessionEvent::CompactionReminded(reminded) => self.sides.reminded(&reminded.turn)?,
            SessionEvent::CompactionEnded(ended) => {
                let summary = self.sides.compaction_ended(ended, provider)?;
                if ended.outcome == SideOutcome::Completed {
                    self.takeovers = 0;
                    self.told.summarised(summary);
                }
            }
            SessionEvent::TitleStarted(started) => self.sides.title_started(&started.turn)?,
            SessionEvent::TitleEnded(ended) => self.sides.title_ended(ended)?,
            SessionEvent::SessionRenamed(renamed) => self.sides.renamed(renamed.by)?,
            SessionEvent::InterruptRequested(requested) => {
                self.interrupted(&requested.target, seq)?;
            }
            SessionEvent::DrainEnded(ended) => {
                let code = ended.error.as_ref().map_or("", |error| error.code.as_str());
                self.drain_ended(ended.outcome, code, seq)?;
                if let Some(claim) = recorded.claim {
                    self.ended_claim = claim.0;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What has an attempt's turn for its id: the turn, the Compaction or the title.
    fn requests(&mut self, id: &TurnId) -> Option<&mut Requests> {
        let mut open = self.turns.requests().into_iter().chain(self.sides.requests());
        open.find(|requests| requests.id == *id)
    }

    /// Nothing is begun once the drain has been told to stop.
    fn goes_on(&self, seq: i64, what: &str) -> Result<(), Violation> {
        ensure!(self.stop_seq.is_none(), "I6: {what} after an interrupt, seq {seq}");
        Ok(())
    }

    fn interrupted(&mut self, target: &InterruptTarget, seq: i64) -> Result<(), Violation> {
        self.inbox.parked = seq;
        self.resumed = false;
        match target {
            InterruptTarget::Turn { turn } => {
                let open = self.turns.open().or(self.sides.compacting());
                ensure!(open == Some(turn), "I6: {turn} was interrupted and not open");
                self.stop_seq = Some(seq);
            }
            InterruptTarget::Drain => self.stop_seq = Some(seq),
            InterruptTarget::Parked => self.parked_interrupt = seq,
        }
        Ok(())
    }

    fn drain_ended(
        &mut self,
        outcome: DrainOutcome,
        code: &str,
        seq: i64,
    ) -> Result<(), Violation> {
        ensure!(self.turns.open().is_none(), "I4: a drain ended with an open turn");
        ensure!(self.sides.compacting().is_none(), "I4: a drain ended with an open Compaction");
        self.sides.no_title("a drain ended")?;
        let stopped = self.stop_seq.take().is_some();
        let interrupted = outcome == DrainOutcome::Interrupted;
        ensure!(stopped || !interrupted, "I6: a drain was interrupted by nobody, seq {seq}");
        let parks = match code {
            "workspace.unavailable" | "session.recovery_exhausted" => true,
            // Behind an epoch it only means that no Compaction can begin.
            "context.unavailable" => self.told.epoch == 0,
            _ => false,
        };
        if parks {
            self.inbox.parked = self.inbox.parked.max(seq);
        }
        self.inbox.continues = false;
        self.turns.failures = 0;
        self.takeovers = 0;
        Ok(())
    }

    /// A request comes to the provider.
    pub(crate) fn request(
        &mut self,
        turn: &TurnId,
        attempt: &AttemptId,
        hash: &str,
        components: &str,
        body: &[u8],
    ) -> Result<(), Violation> {
        let Some(view) = self.attempts.get_mut(attempt) else {
            return Err(format!("I9: a request of {attempt}, which no row names"));
        };
        ensure!(!view.sent, "I9: a second request of {attempt}");
        ensure!(view.body_hash == hash, "I9: the request of {attempt} has another body");
        view.sent = true;
        if view.ended {
            // Of a worker that stood still: others have gone on, and nobody reads the answer.
            return Ok(());
        }
        let summary = self.sides.compacting() == Some(turn);
        if summary || self.turns.open() == Some(turn) {
            self.told.requested(attempt, components, body, summary)?;
        }
        Ok(())
    }

    /// A shell starts a body.
    pub(crate) fn body(&mut self, call: &CallId) -> Result<(), Violation> {
        self.turns.body(call)
    }

    /// A body has its effect.
    pub(crate) fn effect(&self, call: &CallId) -> Result<(), Violation> {
        self.turns.effect(call)
    }

    /// Faults have stopped, and nothing is left to do.
    pub(crate) fn settled(&self, session: &SimSession) -> Result<(), Violation> {
        ensure!(!session.head.ready(), "I11: a session is still ready: {:?}", session.head);
        ensure!(!self.inbox.is_awake(), "I11: an input waits that somebody woke the session for");
        ensure!(!self.resumed, "I11: nobody came when the session was woken");
        ensure!(self.turns.open().is_none(), "I11: a turn is open");
        ensure!(self.sides.compacting().is_none(), "I11: a Compaction is open");
        let open = self.attempts.values().filter(|attempt| !attempt.ended).count();
        ensure!(open == 0, "I9: {open} attempts have not ended");
        self.turns.are_settled()
    }

    /// Whether an input that a client believes in was admitted.
    pub(crate) fn knows(&self, message: &MessageId) -> bool {
        self.inbox.knows(message)
    }
}

fn tokens(usage: TurnUsage) -> (i64, i64) {
    (usage.input, usage.output)
}
