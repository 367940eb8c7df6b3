//! What must hold of a log after every action (design §9), told from events alone.
//!
//! ```text
//! inbox     what waits, in which order it is taken, who woke for it          I1, I2, I11
//! turns     turns, calls, steps, retries                                     I4, I8, I9
//! sides     Compactions and titles, which run beside the conversation        I9
//! files     what is captured before what, what is gone, what is put back     snapshots
//! told      epochs, what was told of the context, requests that were sent    I7, prefix
//! ```

mod files;
mod inbox;
mod sides;
mod told;
mod turns;

use std::collections::BTreeMap;

use domain::{
    AttemptId, CallId, ControlAdmitted, DrainOutcome, InterruptTarget, MessageId, NoticeKind,
    PromptAdmitted, RecordedEvent, SessionEvent, SideOutcome, TurnId, TurnOutcome, TurnUsage,
};

use self::files::Files;
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
    moved_under: i64,
    owners: BTreeMap<i64, u64>,
    inbox: Inbox,
    turns: Turns,
    sides: Sides,
    told: Told,
    files: Files,
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
            moved_under: 0,
            owners: BTreeMap::new(),
            inbox: Inbox::default(),
            turns: Turns::default(),
            sides: Sides::new(limit),
            told: Told::default(),
            files: Files::default(),
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
        let live = session.head.open && !session.head.handed_over;
        if writer.is_some() && new.is_empty() && live {
            // A claim may begin with a write that says nothing. A Move is come to however often workers died.
            let takeovers = self.takeovers;
            self.claimed(session.head.claim, 0, writer)?;
            self.takeovers = takeovers;
        }
        self.ended_claim = self.ended_claim.max(self.moved_under);
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
        if head.staged_seq == 0 {
            self.inbox.staged(false);
        }
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
        let live = head.open && !head.handed_over;
        let ended = live || claim == 0 || head.claim > claim;
        ensure!(ended, "I3: claim {claim} outlives its drain");
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
        let mut moves = false;
        self.told.before(&recorded.event)?;
        #[expect(clippy::wildcard_enum_match_arm, reason = "nothing is said of the others")]
        match &recorded.event {
            SessionEvent::SessionCreated(created) => {
                self.sides.created(created.named, created.parent.is_some());
            }
            SessionEvent::PromptAdmitted(prompt) => {
                let PromptAdmitted { message, delivery, wake, synthetic, .. } = prompt;
                let held = self.inbox.holds && synthetic.is_some();
                ensure!(!held || !wake, "revert: {message} wakes what waits with a Revert");
                self.inbox.admitted(message, seq, *delivery, *wake, None)?;
            }
            SessionEvent::ControlAdmitted(control) => {
                let ControlAdmitted { message, delivery, control, wake, .. } = control;
                self.inbox.admitted(message, seq, *delivery, *wake, Some(control))?;
            }
            SessionEvent::PromptPromoted(promoted) => {
                let message = &promoted.message;
                ensure!(self.told.is_active(), "I7: {message} was promoted without a baseline");
                self.goes_on(seq, "a promotion")?;
                self.files.nothing_is_staging("a promotion")?;
                self.told.promoted(promoted, seq);
                self.inbox.taken(message, seq, false)?;
                self.inbox.continues = true;
                self.turns.steps = 0;
                self.sides.promoted();
            }
            SessionEvent::ControlDelivered(delivered) => {
                if !self.inbox.is_unrevert(&delivered.message) {
                    // What files have been put back for is settled whatever has come since.
                    self.goes_on(seq, "a control")?;
                }
                self.inbox.taken(&delivered.message, seq, true)?;
            }
            SessionEvent::InputCancelled(cancelled) => {
                self.inbox.cancelled(&cancelled.message)?;
                self.resumed = false; // it may have been all that was woken for
            }
            SessionEvent::DeliveryChanged(changed) => self.inbox.changed(changed, seq)?,
            SessionEvent::WakeRequested(wake) => {
                self.inbox.woken(wake.scope, seq);
                self.resumed = true;
            }
            SessionEvent::EpochStarted(epoch) => self.told.epoch_started(epoch)?,
            SessionEvent::ContextUpdated(update) => self.told.updated(update, seq)?,
            SessionEvent::TurnStarted(started) => {
                self.goes_on(seq, "a turn")?;
                ensure!(self.told.is_active(), "I7: {} has no baseline", started.turn);
                self.files.turn_starts()?;
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
            SessionEvent::ToolCalled(called) => {
                self.files.called(called)?;
                self.turns.called(called, max_steps)?;
            }
            SessionEvent::ToolStarted(started) => self.turns.body_started(started)?,
            SessionEvent::ToolSettled(settled) => {
                self.turns.call_settled(&settled.call)?;
                self.files.settled(settled);
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
                let epoch = self.told.epoch();
                ensure!(started.epoch == epoch, "I7: it ends epoch {}", started.epoch);
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
                    self.told.summarised(summary, seq);
                }
            }
            SessionEvent::TitleStarted(started) => self.sides.title_started(&started.turn)?,
            SessionEvent::TitleEnded(ended) => self.sides.title_ended(ended)?,
            SessionEvent::SessionRenamed(renamed) => self.sides.renamed(renamed.by)?,
            SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::FilesLost => {
                self.files.told();
            }
            SessionEvent::WorkspaceSnapshotted(_) => self.files.saved(),
            SessionEvent::WorkspaceRestored(restored) => self.files.restored(&restored.lost),
            SessionEvent::RevertStaging(staging) => {
                self.goes_on(seq, "a Revert")?;
                ensure!(self.turns.open().is_none(), "revert: within a turn");
                self.files.staging(&staging.original)?;
            }
            SessionEvent::RevertStaged(staged) => {
                self.inbox.staged(true);
                self.files.staged(staged.original.as_ref())?;
            }
            SessionEvent::RevertCleared(_) => {
                self.inbox.staged(false);
                self.files.cleared();
            }
            SessionEvent::RevertCommitted(committed) => {
                ensure!(self.turns.open().is_none(), "revert: committed within a turn");
                self.files.nothing_is_staging("it is committed")?;
                self.told.reverted(committed.from.0, committed.back.epoch);
                self.sides.reverted();
            }
            SessionEvent::SessionMoved(_) => {
                self.goes_on(seq, "a Move")?;
                ensure!(self.turns.open().is_none(), "I4: a Move within a turn");
                self.files.nothing_is_staging("it moves")?;
                self.sides.no_title("a session moved")?;
                self.told.moved();
                self.files.moved();
                moves = true;
            }
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
        if let Some(claim) = recorded.claim.filter(|_| moves) {
            // Only the drain's end may follow, in the same write.
            self.moved_under = claim.0;
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
            "context.unavailable" => !self.told.is_active(),
            _ => false,
        };
        if parks {
            self.inbox.parked = self.inbox.parked.max(seq);
        }
        self.inbox.continues = false;
        self.files.ended();
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

    /// What the session's calls have changed need not be captured any more.
    /// `failed`: it may be lost without a word.
    pub(crate) fn excuse(&mut self, failed: bool) {
        if failed { self.files.left() } else { self.files.saved() }
    }

    /// Calls that ended well, and may have changed files where the session is.
    pub(crate) fn calls_with_effects(&self) -> impl Iterator<Item = &CallId> {
        self.files.done()
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
