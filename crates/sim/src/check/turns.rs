use std::collections::{BTreeMap, BTreeSet};

use domain::{
    Answer, AskId, AttemptEnded, AttemptId, AttemptOutcome, CallId, NoticeKind, RecordedEvent,
    ReplyPart, SessionEvent, ToolAnswered, ToolAsked, ToolCalled, ToolClass, ToolStarted,
    ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled, TurnStarted,
};

use super::requests::{Requests, tokens};
use super::{MAX_BODIES, MAX_RETRIES, Violation, ensure};
use crate::provider::Provider;

#[derive(Debug, Clone)]
struct CallView {
    class: ToolClass,
    bodies: i32,
    /// Its asks, and whether each gave leave.
    asks: BTreeMap<AskId, Option<bool>>,
    /// Bodies that a shell has really started.
    ran: i32,
    settled: bool,
    state: Option<String>,
}

#[derive(Debug, Clone)]
struct TurnView {
    requests: Requests,
    calls: BTreeSet<CallId>,
    replied: bool,
    /// The attempt whose answer came whole.
    whole: Option<AttemptId>,
    step: i32,
}

/// Turns and their calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Turns {
    turn: Option<TurnView>,
    calls: BTreeMap<CallId, CallView>,
    pub(super) steps: i32,
    /// The model has had its notice.
    noticed: bool,
    /// Retries and cuts since the last whole reply.
    pub(super) failures: u32,
}

/// Checks that the write which cuts a turn also tells the model to continue.
pub(super) fn cuts_are_continued(new: &[RecordedEvent]) -> Result<(), Violation> {
    let cut = |event: &RecordedEvent| matches!(&event.event, SessionEvent::TurnSettled(settled) if settled.outcome == TurnOutcome::Cut);
    let told = |event: &RecordedEvent| matches!(&event.event, SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::Continuation);
    ensure!(!new.iter().any(cut) || new.iter().any(told), "I9: a cut turn has no continuation");
    Ok(())
}

impl Turns {
    pub(super) fn open(&self) -> Option<&TurnId> {
        self.turn.as_ref().map(|turn| &turn.requests.id)
    }

    pub(super) fn requests(&mut self) -> Option<&mut Requests> {
        self.turn.as_mut().map(|turn| &mut turn.requests)
    }

    pub(super) fn started(
        &mut self,
        started: &TurnStarted,
        max_steps: i32,
    ) -> Result<(), Violation> {
        ensure!(self.turn.is_none(), "I4: {} began while another was open", started.turn);
        let (step, steps) = (started.step, self.steps);
        ensure!(step == steps + 1, "allowance: step {step} after {steps}");
        ensure!(step <= max_steps, "allowance: step {step}");
        self.steps = step;
        let tells = started.notice.is_some();
        ensure!(tells != self.noticed, "notice: told with {}: {tells}", started.turn);
        self.noticed = true;
        let requests = Requests::of(&started.turn);
        self.turn =
            Some(TurnView { requests, calls: BTreeSet::new(), replied: false, whole: None, step });
        Ok(())
    }

    /// Takes in a Fork's copy of a turn that is over.
    pub(super) fn copied(&mut self, started: &TurnStarted) {
        self.steps = started.step;
        self.noticed |= started.notice.is_some();
    }

    /// An attempt of a turn, of a Compaction or of a title has ended.
    pub(super) fn attempt_ended(
        &mut self,
        ended: &AttemptEnded,
        provider: &Provider,
    ) -> Result<(), Violation> {
        let counted = provider.counted.get(&ended.attempt).copied().flatten();
        if let Some(turn) = self.turn.as_mut().filter(|turn| turn.requests.id == ended.turn)
            && ended.outcome == AttemptOutcome::Completed
        {
            turn.whole = Some(ended.attempt.clone());
        }
        let whole = match ended.outcome {
            AttemptOutcome::Completed | AttemptOutcome::Failed => true,
            AttemptOutcome::Cut => {
                ensure!(self.failures < MAX_RETRIES, "retries: a cut after {}", self.failures);
                true
            }
            AttemptOutcome::Interrupted | AttemptOutcome::Lost => false,
        };
        ensure!(
            !whole || ended.usage.map(tokens) == counted.map(tokens),
            "I9: attempt {} used {:?}, the provider counted {counted:?}",
            ended.attempt,
            ended.usage
        );
        Ok(())
    }

    pub(super) fn retried(&mut self) -> Result<(), Violation> {
        ensure!(self.failures < MAX_RETRIES, "retries: one more after {}", self.failures);
        self.failures += 1;
        Ok(())
    }

    pub(super) fn called(
        &mut self,
        called: &ToolCalled,
        max_steps: i32,
        provider: &Provider,
    ) -> Result<(), Violation> {
        let call = called.intent.call.clone();
        let hosted = provider.hosted.contains(&called.intent.provider_call);
        ensure!(!hosted, "I8: {call} is the provider's own to run");
        let bodies = i32::from(called.state == ToolState::Started);
        let state = called.intent.metadata.clone();
        let (class, asks) = (called.class, BTreeMap::new());
        let view = CallView { class, bodies, asks, ran: 0, settled: false, state };
        ensure!(self.calls.insert(call.clone(), view).is_none(), "I8: {call} was called twice");
        let Some(turn) = &mut self.turn else {
            return Err(format!("I8: {call} has no turn"));
        };
        let allowed = bodies == 0 || turn.step < max_steps;
        ensure!(allowed, "allowance: {call} runs in the last step");
        turn.calls.insert(call);
        Ok(())
    }

    pub(super) fn body_started(&mut self, started: &ToolStarted) -> Result<(), Violation> {
        let (id, body) = (&started.call, started.body);
        let Some(call) = self.calls.get_mut(id) else {
            return Err(format!("I8: {id} was started and never called"));
        };
        ensure!(!call.settled, "I8: {id} was started after its result");
        let leave = call.asks.values().all(|answer| *answer == Some(true));
        ensure!(leave, "I15: {id} started without leave");
        ensure!(body == call.bodies + 1, "I8: body {body} after {}", call.bodies);
        ensure!(body <= MAX_BODIES, "I8: {body} bodies of {id}");
        call.bodies = body;
        Ok(())
    }

    pub(super) fn asked(&mut self, asked: &ToolAsked) -> Result<(), Violation> {
        let call = self.calls.get_mut(&asked.call).filter(|call| !call.settled);
        let Some(call) = call else {
            return Err(format!("I15: {} is asked of no call", asked.ask));
        };
        ensure!(call.bodies == 0, "I15: {} is asked after a body", asked.ask);
        ensure!(call.asks.insert(asked.ask.clone(), None).is_none(), "I16: {} twice", asked.ask);
        Ok(())
    }

    /// Whether somebody has refused, and whether with a word to the model.
    pub(super) fn answered(&mut self, answered: &ToolAnswered) -> Result<Option<bool>, Violation> {
        let (id, answer) = (&answered.ask, &answered.answer);
        let call = self.calls.get_mut(&answered.call).filter(|call| !call.settled);
        let Some(call) = call else { return Err(format!("I16: {id} answered too late")) };
        let known = call.asks.get_mut(id).filter(|known| known.is_none());
        let Some(known) = known else { return Err(format!("I16: {id} has two answers")) };
        *known = Some(answer.is_leave());
        let spoken = matches!(answer, Answer::Reject { message: Some(_) });
        Ok((!answer.is_leave()).then_some(spoken))
    }

    /// Whether a call waits for an answer.
    pub(super) fn waits(&self) -> bool {
        let waits = |call: &&CallView| !call.settled && call.asks.values().any(Option::is_none);
        self.calls.values().any(|call| waits(&call))
    }

    pub(super) fn call_settled(&mut self, id: &CallId) -> Result<(), Violation> {
        let call = self.calls.get_mut(id).filter(|call| !call.settled);
        let Some(call) = call else { return Err(format!("I8: {id} has a result too many")) };
        call.settled = true;
        Ok(())
    }

    pub(super) fn replied(
        &mut self,
        replied: &TurnReplied,
        provider: &Provider,
    ) -> Result<(), Violation> {
        let (mut states, mut hosted) = (Vec::new(), Vec::new());
        for part in &replied.parts {
            let state = match part {
                ReplyPart::ToolCall { call } => {
                    let Some(called) = self.calls.get(call) else {
                        return Err(format!("I8: {call} is replied and has no intent"));
                    };
                    called.state.as_ref()
                }
                ReplyPart::HostedCall { call, metadata, .. } => {
                    hosted.push(call);
                    metadata.as_ref()
                }
                ReplyPart::HostedResult { call, metadata, .. } => {
                    let open = hosted.iter().position(|open| *open == call);
                    let Some(open) = open else {
                        return Err(format!("I8: {call} has a result and was not called"));
                    };
                    hosted.swap_remove(open);
                    metadata.as_ref()
                }
                ReplyPart::Text { metadata, .. } | ReplyPart::Reasoning { metadata, .. } => {
                    metadata.as_ref()
                }
            };
            states.extend(state);
        }
        ensure!(hosted.is_empty(), "I8: {hosted:?} have no results");
        let whole = self.turn.as_ref().and_then(|turn| turn.whole.as_ref());
        if let Some(sent) = whole.and_then(|attempt| provider.states.get(attempt)) {
            let kept = states.iter().copied().eq(sent);
            ensure!(kept, "state: {:?} of {:?} is kept", states, sent);
        }
        let Some(turn) = &mut self.turn else { return Err("I4: a reply of no turn".into()) };
        ensure!(!turn.replied, "I4: {} has two replies", turn.requests.id);
        turn.replied = true;
        Ok(())
    }

    /// Whether the model has something to answer after it.
    pub(super) fn settled(
        &mut self,
        settled: &TurnSettled,
        max_steps: i32,
    ) -> Result<bool, Violation> {
        let turn = self.turn.take().filter(|turn| turn.requests.id == settled.turn);
        let Some(turn) = turn else {
            return Err(format!("I4: {} was settled and not open", settled.turn));
        };
        let id = &turn.requests.id;
        let open = turn.calls.iter().filter(|call| !self.calls[call].settled).count();
        ensure!(open == 0, "I8: {id} was settled with {open} open calls");
        ensure!(turn.requests.running.is_none(), "I9: {id} was settled with an open attempt");
        let used = turn.requests.have_used(settled.usage);
        ensure!(used, "I9: usage of {id}");
        match settled.outcome {
            TurnOutcome::Completed => self.failures = 0,
            TurnOutcome::Cut => self.failures += 1,
            TurnOutcome::Lost | TurnOutcome::Overflowed => self.steps = turn.step - 1,
            TurnOutcome::Failed | TurnOutcome::Interrupted => {}
        }
        Ok(match settled.outcome {
            TurnOutcome::Completed => !turn.calls.is_empty() && turn.step < max_steps,
            TurnOutcome::Cut | TurnOutcome::Lost | TurnOutcome::Overflowed => true,
            TurnOutcome::Failed | TurnOutcome::Interrupted => false,
        })
    }

    pub(super) fn body(&mut self, call: &CallId) -> Result<(), Violation> {
        let Some(view) = self.calls.get_mut(call) else {
            return Err(format!("I8: a body of {call} ran before its intent was written"));
        };
        view.ran += 1;
        let (ran, said) = (view.ran, view.bodies);
        ensure!(ran <= said, "I8: body {ran} of {call} ran, rows say {said}");
        ensure!(view.class != ToolClass::Unsafe || ran == 1, "I8: unsafe {call} ran twice");
        Ok(())
    }

    pub(super) fn effect(&self, call: &CallId) -> Result<(), Violation> {
        let settled = self.calls.get(call).is_none_or(|view| view.settled);
        ensure!(!settled, "I8: {call} had an effect after its result");
        Ok(())
    }

    pub(super) fn are_settled(&self) -> Result<(), Violation> {
        let open = self.calls.values().filter(|call| !call.settled).count();
        ensure!(open == 0, "I8: {open} calls have no result");
        Ok(())
    }
}
