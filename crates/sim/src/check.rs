//! What must hold of a log after every action (design §9), told from events alone.

use std::collections::{BTreeMap, BTreeSet};

use domain::{
    AttemptId, AttemptOutcome, CallId, Delivery, DrainOutcome, InterruptTarget, MessageId,
    NoticeKind, RecordedEvent, ReplyPart, SessionEvent, ToolClass, ToolState, TurnId, TurnOutcome,
    TurnUsage,
};

use crate::provider::Provider;
use crate::store::{InputStatus, SimSession};

/// Bodies of a call that may run again.
pub(crate) const MAX_BODIES: i32 = 2;
/// Takeovers in a row without progress.
pub(crate) const MAX_RECOVERIES: i16 = 2;

/// A broken invariant, with what was found.
pub type Violation = String;

#[derive(Debug, Clone)]
struct InputView {
    seq: i64,
    delivery: Delivery,
    changed: bool,
    wake_seq: i64,
    status: InputStatus,
}

#[derive(Debug, Clone)]
struct CallView {
    class: ToolClass,
    bodies: i32,
    /// Bodies that a shell has really started.
    ran: i32,
    settled: bool,
}

#[derive(Debug, Clone)]
struct AttemptView {
    turn: TurnId,
    body_hash: String,
    sent: bool,
    ended: bool,
}

#[derive(Debug, Clone)]
struct TurnView {
    id: TurnId,
    calls: BTreeSet<CallId>,
    usage: TurnUsage,
    replied: bool,
    step: i32,
}

/// What a session's log has said so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checker {
    seen: usize,
    claim: i64,
    ended_claim: i64,
    owners: BTreeMap<i64, u64>,
    inputs: BTreeMap<MessageId, InputView>,
    calls: BTreeMap<CallId, CallView>,
    attempts: BTreeMap<AttemptId, AttemptView>,
    turn: Option<TurnView>,
    steps: i32,
    epoch: i32,
    told: Option<(String, String)>,
    /// The head said so last.
    open: bool,
    handed_over: bool,
    /// Takeovers since anything was settled.
    takeovers: i16,
    last_attempt: Option<AttemptId>,
    stop_seq: Option<i64>,
    parked: i64,
    parked_interrupt: i64,
    last_wake: i64,
    body: Option<(String, Vec<u8>)>,
}

macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

impl Checker {
    /// Takes in what is new. `writer`: the drain that has written it.
    pub(crate) fn take(
        &mut self,
        session: &SimSession,
        writer: Option<u64>,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let new = session.events.get(self.seen..).unwrap_or_default().to_vec();
        let asleep = !self.open && !self.awake();
        let mut queued = 0;
        let mut settled_calls = false;
        let mut opened_without_wake = false;
        for event in &new {
            self.seen += 1;
            let seq = event.seq.0;
            ensure!(usize::try_from(seq) == Ok(self.seen), "I5: seq {seq} at place {}", self.seen);
            if let Some(claim) = event.claim {
                self.claimed(claim.0, seq, writer)?;
                opened_without_wake |= asleep;
            }
            if let SessionEvent::PromptPromoted(promoted) = &event.event {
                let input = self.inputs.get(&promoted.message);
                queued += i32::from(input.is_some_and(|input| input.delivery == Delivery::Queue));
            }
            if let SessionEvent::TurnSettled(settled) = &event.event {
                let turn = self.turn.as_ref();
                settled_calls |= settled.outcome == TurnOutcome::Cut
                    || turn.is_some_and(|turn| !turn.calls.is_empty() && turn.step < max_steps);
                settled_calls &=
                    matches!(settled.outcome, TurnOutcome::Cut | TurnOutcome::Completed);
            }
            self.event(event, provider, max_steps)?;
        }
        ensure!(!opened_without_wake, "I11: a drain started without a wake, seq {}", self.seen);
        ensure!(queued <= 1, "I2: {queued} queued inputs in one batch");
        ensure!(queued == 0 || !settled_calls, "I2: a queued input joined work that continued");
        self.notice_of_cut(&new)?;
        let pending = self.inputs.values().filter(|input| input.status == InputStatus::Admitted);
        let pending = pending.count();
        let head = session.head;
        self.open = head.open;
        self.handed_over = head.handed_over;
        ensure!(
            self.takeovers <= MAX_RECOVERIES,
            "recovery: {} takeovers without progress",
            self.takeovers
        );
        ensure!(
            usize::try_from(head.pending) == Ok(pending),
            "I1: pending {} of {pending}",
            head.pending
        );
        ensure!(
            head.next_seq == i64::try_from(self.seen).unwrap_or(0) + 1,
            "I5: head at {}",
            head.next_seq
        );
        ensure!(
            head.claim >= self.claim,
            "I3: claim {} above the head's {}",
            self.claim,
            head.claim
        );
        Ok(())
    }

    /// The log says that a stream was cut to who has to go on from there.
    fn notice_of_cut(&self, new: &[RecordedEvent]) -> Result<(), Violation> {
        let cut = |event: &&RecordedEvent| matches!(&event.event, SessionEvent::TurnSettled(settled) if settled.outcome == TurnOutcome::Cut);
        let told = |event: &RecordedEvent| matches!(&event.event, SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::Continuation);
        ensure!(
            new.iter().filter(cut).count() == 0 || new.iter().any(told),
            "I9: a cut turn has no continuation"
        );
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
            self.parked_interrupt <= self.last_wake,
            "I6: a drain wrote seq {seq} without a wake after the interrupt at {}",
            self.parked_interrupt
        );
        if claim > self.claim && self.open && !self.handed_over {
            self.takeovers += 1;
        }
        self.claim = claim;
        Ok(())
    }

    /// Whether something pending was woken for.
    fn awake(&self) -> bool {
        let waits = |input: &InputView| {
            input.status == InputStatus::Admitted && input.wake_seq > self.parked
        };
        self.inputs.values().any(waits)
    }

    fn event(
        &mut self,
        recorded: &RecordedEvent,
        provider: &Provider,
        max_steps: i32,
    ) -> Result<(), Violation> {
        let seq = recorded.seq.0;
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others are checked as they come")]
        match &recorded.event {
            SessionEvent::PromptAdmitted(prompt) => {
                let wake_seq = if prompt.wake { seq } else { 0 };
                self.last_wake = self.last_wake.max(wake_seq);
                let (delivery, status) = (prompt.delivery, InputStatus::Admitted);
                let view = InputView { seq, delivery, changed: false, wake_seq, status };
                let before = self.inputs.insert(prompt.message.clone(), view);
                ensure!(before.is_none(), "I1: {} was admitted twice", prompt.message);
            }
            SessionEvent::PromptPromoted(promoted) => self.promoted(&promoted.message, seq)?,
            SessionEvent::InputCancelled(cancelled) => {
                let input = self.inputs.get_mut(&cancelled.message);
                let waits = input.filter(|input| input.status == InputStatus::Admitted);
                let Some(input) = waits else {
                    return Err(format!(
                        "I2: {} was cancelled and did not wait",
                        cancelled.message
                    ));
                };
                input.status = InputStatus::Cancelled;
            }
            SessionEvent::DeliveryChanged(changed) => {
                let input = self.inputs.get_mut(&changed.message);
                let waits = input.filter(|input| input.status == InputStatus::Admitted);
                let Some(input) = waits else {
                    return Err(format!("I2: {} was changed and did not wait", changed.message));
                };
                input.delivery = changed.delivery;
                input.changed = true;
                if changed.wake {
                    input.wake_seq = seq;
                    self.last_wake = seq;
                }
            }
            SessionEvent::WakeRequested(_) => {
                self.last_wake = seq;
                let waits = |input: &&mut InputView| input.status == InputStatus::Admitted;
                self.inputs.values_mut().filter(waits).for_each(|input| input.wake_seq = seq);
            }
            SessionEvent::EpochStarted(epoch) => {
                ensure!(
                    epoch.epoch == self.epoch + 1,
                    "I7: epoch {} after {}",
                    epoch.epoch,
                    self.epoch
                );
                self.epoch = epoch.epoch;
                self.told = None;
                self.body = None;
            }
            SessionEvent::ContextUpdated(update) => {
                let told = (update.rendered.clone(), update.snapshot.clone());
                let again =
                    self.told.as_ref().is_some_and(|last| last.0 == told.0 || last.1 == told.1);
                ensure!(!again, "I7: the same context was told twice, seq {seq}");
                self.told = Some(told);
            }
            SessionEvent::TurnStarted(started) => {
                ensure!(self.turn.is_none(), "I4: {} began while another was open", started.turn);
                ensure!(self.stop_seq.is_none(), "I6: {} began after an interrupt", started.turn);
                ensure!(
                    started.step == self.steps + 1,
                    "allowance: step {} after {}",
                    started.step,
                    self.steps
                );
                ensure!(started.step <= max_steps, "allowance: step {}", started.step);
                self.steps = started.step;
                self.turn = Some(TurnView {
                    id: started.turn.clone(),
                    calls: BTreeSet::new(),
                    usage: TurnUsage::default(),
                    replied: false,
                    step: started.step,
                });
            }
            SessionEvent::AttemptStarted(started) => {
                let turn = self.turn.as_ref().map(|turn| &turn.id);
                ensure!(
                    turn == Some(&started.turn),
                    "I9: attempt {} of no open turn",
                    started.attempt
                );
                let running = self.attempts.values().any(|attempt| !attempt.ended);
                ensure!(!running, "I9: attempt {} while another runs", started.attempt);
                let view = AttemptView {
                    turn: started.turn.clone(),
                    body_hash: started.body_hash.clone(),
                    sent: false,
                    ended: false,
                };
                let retried = self.last_attempt.replace(started.attempt.clone());
                let seen = retried.is_some_and(|last| provider.shown.contains(&last));
                ensure!(
                    started.ordinal == 1 || !seen,
                    "I9: {} repeats what somebody has seen",
                    started.attempt
                );
                let before = self.attempts.insert(started.attempt.clone(), view);
                ensure!(before.is_none(), "I9: attempt {} began twice", started.attempt);
            }
            SessionEvent::AttemptEnded(ended) => {
                let Some(attempt) = self.attempts.get_mut(&ended.attempt) else {
                    return Err(format!("I9: attempt {} never began", ended.attempt));
                };
                ensure!(!attempt.ended, "I9: attempt {} ended twice", ended.attempt);
                attempt.ended = true;
                let counted = provider.counted.get(&ended.attempt).copied().flatten();
                if matches!(ended.outcome, AttemptOutcome::Completed | AttemptOutcome::Cut) {
                    ensure!(
                        ended.usage.map(tokens) == counted.map(tokens),
                        "I9: attempt {} used {:?}, the provider counted {counted:?}",
                        ended.attempt,
                        ended.usage
                    );
                }
                if let (Some(turn), Some(used)) = (&mut self.turn, ended.usage) {
                    turn.usage.input += used.input;
                    turn.usage.output += used.output;
                }
            }
            SessionEvent::ToolCalled(called) => {
                let call = called.intent.call.clone();
                let bodies = i32::from(called.state == ToolState::Started);
                let view = CallView { class: called.class, bodies, ran: 0, settled: false };
                ensure!(
                    self.calls.insert(call.clone(), view).is_none(),
                    "I8: {call} was called twice"
                );
                let Some(turn) = &mut self.turn else {
                    return Err(format!("I8: {call} has no turn"));
                };
                ensure!(
                    bodies == 0 || turn.step < max_steps,
                    "allowance: {call} runs in the last step"
                );
                turn.calls.insert(call);
            }
            SessionEvent::ToolStarted(started) => {
                let Some(call) = self.calls.get_mut(&started.call) else {
                    return Err(format!("I8: {} was started and never called", started.call));
                };
                ensure!(!call.settled, "I8: {} was started after its result", started.call);
                ensure!(
                    started.body == call.bodies + 1,
                    "I8: body {} after {}",
                    started.body,
                    call.bodies
                );
                ensure!(
                    started.body <= MAX_BODIES,
                    "I8: {} bodies of {}",
                    started.body,
                    started.call
                );
                call.bodies = started.body;
            }
            SessionEvent::ToolSettled(settled) => {
                let call = self.calls.get_mut(&settled.call).filter(|call| !call.settled);
                let Some(call) = call else {
                    return Err(format!("I8: {} has a result too many", settled.call));
                };
                call.settled = true;
                self.takeovers = 0;
            }
            SessionEvent::TurnReplied(replied) => {
                for part in &replied.parts {
                    if let ReplyPart::ToolCall { call } = part {
                        ensure!(
                            self.calls.contains_key(call),
                            "I8: {call} is replied and has no intent"
                        );
                    }
                }
                let Some(turn) = &mut self.turn else {
                    return Err("I4: a reply of no turn".into());
                };
                ensure!(!turn.replied, "I4: {} has two replies", turn.id);
                turn.replied = true;
            }
            SessionEvent::TurnSettled(settled) => {
                let turn = self.turn.take().filter(|turn| turn.id == settled.turn);
                let Some(turn) = turn else {
                    return Err(format!("I4: {} was settled and not open", settled.turn));
                };
                let open = turn.calls.iter().filter(|call| !self.calls[call].settled).count();
                ensure!(open == 0, "I8: {} was settled with {open} open calls", turn.id);
                let runs =
                    self.attempts.values().any(|attempt| attempt.turn == turn.id && !attempt.ended);
                ensure!(!runs, "I9: {} was settled with an open attempt", turn.id);
                ensure!(tokens(settled.usage) == tokens(turn.usage), "I9: usage of {}", turn.id);
                if matches!(settled.outcome, TurnOutcome::Lost | TurnOutcome::Overflowed) {
                    self.steps = turn.step - 1;
                } else {
                    self.takeovers = 0;
                }
            }
            SessionEvent::InterruptRequested(requested) => {
                self.parked = seq;
                match &requested.target {
                    InterruptTarget::Turn { turn } => {
                        let open = self.turn.as_ref().map(|turn| &turn.id);
                        ensure!(open == Some(turn), "I6: {turn} was interrupted and not open");
                        self.stop_seq = Some(seq);
                    }
                    InterruptTarget::Drain => self.stop_seq = Some(seq),
                    InterruptTarget::Parked => self.parked_interrupt = seq,
                }
            }
            SessionEvent::DrainEnded(ended) => {
                ensure!(self.turn.is_none(), "I4: a drain ended with an open turn");
                let stopped = self.stop_seq.take().is_some();
                let interrupted = ended.outcome == DrainOutcome::Interrupted;
                ensure!(
                    stopped || !interrupted,
                    "I6: a drain was interrupted by nobody, seq {seq}"
                );
                let code = ended.error.as_ref().map_or("", |error| error.code.as_str());
                let parks = matches!(
                    code,
                    "context.unavailable" | "workspace.unavailable" | "session.recovery_exhausted"
                );
                if parks {
                    self.parked = self.parked.max(seq);
                }
                self.takeovers = 0;
                if let Some(claim) = recorded.claim {
                    self.ended_claim = claim.0;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn promoted(&mut self, message: &MessageId, seq: i64) -> Result<(), Violation> {
        ensure!(self.epoch > 0, "I7: {message} was promoted without a baseline");
        ensure!(self.stop_seq.is_none(), "I6: {message} was promoted after an interrupt");
        let waiting = |input: &InputView| input.status == InputStatus::Admitted;
        let Some(input) = self.inputs.get(message).filter(|input| waiting(input)).cloned() else {
            return Err(format!("I2: {message} was promoted at {seq} and did not wait"));
        };
        let earlier = |other: &InputView| {
            waiting(other) && other.delivery == input.delivery && other.seq < input.seq
        };
        let overtaken = self.inputs.values().any(|other| earlier(other) && !other.changed);
        ensure!(!overtaken || input.changed, "I2: {message} has overtaken an earlier one");
        let steer =
            self.inputs.values().any(|other| waiting(other) && other.delivery == Delivery::Steer);
        let queued = input.delivery == Delivery::Queue;
        ensure!(!queued || !steer, "I2: {message} was promoted before a steer");
        if let Some(input) = self.inputs.get_mut(message) {
            input.status = InputStatus::Promoted;
        }
        self.steps = 0;
        Ok(())
    }

    /// A request comes to the provider.
    pub(crate) fn request(
        &mut self,
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
        let tail = b"],\"tools\":";
        let messages = body.windows(tail.len()).rposition(|window| window == tail);
        let body = body[..messages.unwrap_or(0)].to_vec();
        if let Some((before, prefix)) = &self.body
            && before == components
        {
            ensure!(
                body.starts_with(prefix),
                "prefix: {attempt} does not begin with the last request"
            );
        }
        self.body = Some((components.to_owned(), body));
        Ok(())
    }

    /// A shell starts a body.
    pub(crate) fn body(&mut self, call: &CallId) -> Result<(), Violation> {
        let Some(view) = self.calls.get_mut(call) else {
            return Err(format!("I8: a body of {call} ran before its intent was written"));
        };
        view.ran += 1;
        ensure!(
            view.ran <= view.bodies,
            "I8: body {} of {call} ran, rows say {}",
            view.ran,
            view.bodies
        );
        ensure!(view.class != ToolClass::Unsafe || view.ran == 1, "I8: unsafe {call} ran twice");
        Ok(())
    }

    /// A body has its effect.
    pub(crate) fn effect(&self, call: &CallId) -> Result<(), Violation> {
        let settled = self.calls.get(call).is_none_or(|view| view.settled);
        ensure!(!settled, "I8: {call} had an effect after its result");
        Ok(())
    }

    /// Faults have stopped, and nothing is left to do.
    pub(crate) fn settled(&self, session: &SimSession) -> Result<(), Violation> {
        ensure!(!session.head.ready(), "I11: a session is still ready: {:?}", session.head);
        ensure!(!self.awake(), "I11: an input waits that somebody woke the session for");
        ensure!(self.turn.is_none(), "I11: a turn is open");
        let open = self.attempts.values().filter(|attempt| !attempt.ended).count();
        ensure!(open == 0, "I9: {open} attempts have not ended");
        let open = self.calls.values().filter(|call| !call.settled).count();
        ensure!(open == 0, "I8: {open} calls have no result");
        Ok(())
    }

    /// Whether a prompt that a client believes in was admitted.
    pub(crate) fn knows(&self, message: &MessageId) -> bool {
        self.inputs.contains_key(message)
    }
}

fn tokens(usage: TurnUsage) -> (i64, i64) {
    (usage.input, usage.output)
}
