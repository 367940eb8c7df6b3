//! The log, and the part of the projector on which later outcomes depend.

use domain::{
    Claim, Delivery, EventId, IdMint, InputKind, MessageId, RecordedEvent, Seq, SessionEvent,
    SideOutcome, TimestampMs, TurnOutcome, WakeScope,
};

use super::{Input, InputStatus, SimAsk, SimSession, SimStore};

impl SimStore {
    /// Appends an event of a gateway.
    pub(super) fn log(
        &mut self,
        session: usize,
        event: SessionEvent,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        self.record(session, None, event, mint, now);
        let head = &mut self.sessions[session].head;
        head.last_id = head.last_id.max(mint.last());
    }

    /// Appends an event at the next number.
    pub(super) fn record(
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

    fn project(&mut self, session: usize, seq: Seq, event: &SessionEvent) {
        let row = &mut self.sessions[session];
        #[expect(clippy::wildcard_enum_match_arm, reason = "no outcome depends on the others")]
        match event {
            SessionEvent::PromptAdmitted(prompt) => {
                let kind = InputKind::of_prompt(prompt);
                let input = (prompt.message.clone(), kind, prompt.digest.clone());
                self.admitted(session, seq, input, prompt.delivery, prompt.wake);
            }
            SessionEvent::ControlAdmitted(control) => {
                let kind = InputKind::of_control(&control.control);
                let input = (control.message.clone(), kind, control.digest.clone());
                self.admitted(session, seq, input, control.delivery, control.wake);
            }
            SessionEvent::PromptPromoted(promoted) => {
                row.set_status(&promoted.message, InputStatus::Promoted);
                self.messages.insert(promoted.message.clone(), (session, seq.0));
            }
            SessionEvent::ControlDelivered(delivered) => {
                row.set_status(&delivered.message, InputStatus::Promoted);
            }
            SessionEvent::InputCancelled(cancelled) => {
                row.set_status(&cancelled.message, InputStatus::Cancelled);
            }
            SessionEvent::DeliveryChanged(changed) => {
                for input in row.inputs.iter_mut().filter(|input| input.id == changed.message) {
                    input.delivery = changed.delivery;
                    if changed.wake {
                        input.wake_seq = seq.0;
                    }
                }
            }
            SessionEvent::ToolAsked(asked) => row.asks.push(SimAsk {
                ask: asked.ask.clone(),
                call: asked.call.clone(),
                asked_seq: seq.0,
                expires: asked.expires,
                answer: None,
                withdrawn: false,
            }),
            SessionEvent::ToolAnswered(answered) => {
                for ask in row.asks.iter_mut().filter(|ask| ask.ask == answered.ask) {
                    ask.answer = Some(answered.answer.clone());
                }
            }
            SessionEvent::ToolSettled(settled) => {
                for ask in row.asks.iter_mut().filter(|ask| ask.call == settled.call) {
                    ask.withdrawn = ask.answer.is_none();
                }
            }
            SessionEvent::WakeRequested(wake) => row.woken(wake.scope, seq.0),
            SessionEvent::RevertStaged(staged) => {
                row.revert = Some(staged.clone());
                row.head.staged_seq = seq.0;
            }
            SessionEvent::RevertStaging(_) | SessionEvent::RevertCleared(_) => row.unstage(),
            SessionEvent::RevertCommitted(committed) => {
                row.unstage();
                let gone = |at: &(usize, i64)| at.0 == session && at.1 >= committed.from.0;
                self.messages.retain(|_, at| !gone(at));
            }
            SessionEvent::EntrySet(entry) => {
                row.entries.insert(entry.key.clone(), entry.value.clone());
            }
            SessionEvent::EntryRemoved(entry) => {
                row.entries.remove(&entry.key);
            }
            SessionEvent::TurnStarted(started) => {
                row.open_turns.push(started.turn.clone());
                self.messages.insert(started.message.clone(), (session, seq.0));
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
                if ended.outcome == SideOutcome::Completed {
                    self.messages.insert(ended.message.clone(), (session, seq.0));
                }
            }
            SessionEvent::NoticeRecorded(notice) => {
                self.messages.insert(notice.message.clone(), (session, seq.0));
            }
            _ => {}
        }
    }

    fn admitted(
        &mut self,
        session: usize,
        seq: Seq,
        (id, kind, digest): (MessageId, InputKind, String),
        delivery: Delivery,
        wake: bool,
    ) {
        self.inputs.insert(id.clone(), session);
        self.sessions[session].inputs.push(Input {
            id,
            kind,
            admitted_delivery: delivery,
            delivery,
            digest,
            admitted_seq: seq.0,
            wake_seq: if wake { seq.0 } else { 0 },
            status: InputStatus::Admitted,
        });
    }
}

impl SimSession {
    /// A wake of narrow scope is for steering inputs, and for a control before all queued prompts.
    fn woken(&mut self, scope: WakeScope, seq: i64) {
        let waits = |input: &Input| input.status == InputStatus::Admitted;
        let queued = |input: &&Input| waits(input) && input.delivery == Delivery::Queue;
        let prompts = self.inputs.iter().filter(queued).filter(|input| !input.is_control());
        let first = prompts.map(|input| input.admitted_seq).min().unwrap_or(i64::MAX);
        for input in self.inputs.iter_mut().filter(|input| waits(input)) {
            let next = input.is_control() && input.admitted_seq < first;
            if scope == WakeScope::All || input.delivery == Delivery::Steer || next {
                input.wake_seq = seq;
            }
        }
    }

    fn unstage(&mut self) {
        self.revert = None;
        self.head.staged_seq = 0;
    }

    fn set_status(&mut self, message: &MessageId, status: InputStatus) {
        for input in self.inputs.iter_mut().filter(|input| input.id == *message) {
            input.status = status;
        }
    }
}
