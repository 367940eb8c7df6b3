//! Statements of gateways: admissions, changes of the inbox, interrupts, names, context entries.

use domain::{
    Answer, AskId, ControlAdmitted, Delivery, DeliveryChanged, EntryRemoved, EntrySet, IdMint,
    InputCancelled, InputKind, InterruptRequested, InterruptTarget, MessageId, PromptAdmitted,
    SessionEvent, TimestampMs, ToolAnswered, WakeRequested, WakeScope,
};

use super::{Admission, Answering, Change, InputStatus, Interrupted, SimStore};
use crate::mutant::StoreMutant;

/// The parts of an input by which an exact retry differs from another use of its id.
struct Asked<'a> {
    message: &'a MessageId,
    kind: InputKind,
    delivery: Delivery,
    digest: &'a str,
}

impl SimStore {
    /// `admit_prompt`.
    pub fn admit(
        &mut self,
        session: usize,
        prompt: &PromptAdmitted,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Admission {
        let asked = Asked {
            message: &prompt.message,
            kind: InputKind::of_prompt(prompt),
            delivery: prompt.delivery,
            digest: &prompt.digest,
        };
        if let Some(known) = self.known(session, &asked) {
            return known;
        }
        let mut prompt = prompt.clone();
        if self.sessions[session].head.staged_seq > 0 {
            match prompt.synthetic {
                // Of a busy session, its drain finds both.
                None if self.sessions[session].head.busy() => {}
                None => self.commit_staged(session, mint, now),
                // It waits for the Revert's end.
                Some(_) => prompt.wake = self.is(StoreMutant::StagedHoldsNothing) && prompt.wake,
            }
        }
        let seq = self.sessions[session].head.next_seq;
        self.count_pending(session, prompt.wake);
        self.log(session, prompt.into(), mint, now);
        Admission::Admitted(seq)
    }

    /// `admit_control`.
    pub fn admit_control(
        &mut self,
        session: usize,
        control: &ControlAdmitted,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Admission {
        let kind = InputKind::of_control(&control.control);
        let ControlAdmitted { message, delivery, digest, .. } = control;
        if let Some(known) =
            self.known(session, &Asked { message, kind, delivery: *delivery, digest })
        {
            return known;
        }
        let row = &self.sessions[session];
        if row.refuses(kind) {
            return Admission::Busy;
        }
        let first = row
            .inputs
            .iter()
            .find(|input| input.status == InputStatus::Admitted && input.kind == kind)
            .filter(|_| {
                kind == InputKind::Compaction && !self.is(StoreMutant::SecondControlAdmitted)
            });
        if let Some(first) = first {
            let (seq, parked) = (first.admitted_seq, first.wake_seq <= row.head.parked_seq);
            if control.wake && parked {
                let (message, delivery) = (first.id.clone(), first.delivery);
                self.wake_next(session);
                let woken = DeliveryChanged { message, delivery, wake: true };
                self.log(session, woken.into(), mint, now);
            }
            return Admission::Pending(seq);
        }
        let seq = self.sessions[session].head.next_seq;
        self.count_pending(session, control.wake);
        self.log(session, control.clone().into(), mint, now);
        Admission::Admitted(seq)
    }

    /// Answers for an id that was used before.
    fn known(&self, session: usize, asked: &Asked<'_>) -> Option<Admission> {
        if let Some(&holder) = self.inputs.get(asked.message) {
            let first =
                self.sessions[holder].inputs.iter().find(|input| input.id == *asked.message);
            let same = first.is_some_and(|first| {
                holder == session
                    && first.kind == asked.kind
                    && first.admitted_delivery == asked.delivery
                    && first.digest == asked.digest
            });
            let seq = first.map_or(0, |first| first.admitted_seq);
            let same = same || (self.is(StoreMutant::RetryComparesIdOnly) && holder == session);
            return Some(if same { Admission::Retry(seq) } else { Admission::Conflict });
        }
        self.messages.contains_key(asked.message).then_some(Admission::Conflict)
    }

    fn count_pending(&mut self, session: usize, wake: bool) {
        if wake {
            self.wake_next(session);
        }
        if !self.is(StoreMutant::PendingNotCounted) {
            self.sessions[session].head.pending += 1;
        }
    }

    /// The next event is a wake.
    fn wake_next(&mut self, session: usize) {
        let head = &mut self.sessions[session].head;
        head.wake_seq = head.next_seq;
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
        self.log(session, InputCancelled { message: message.clone() }.into(), mint, now);
        if !self.is(StoreMutant::CancelLeavesWakes) {
            self.spend_wakes(session);
        }
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
        let row = &self.sessions[session];
        let Some(input) = row.inputs.iter().find(|input| input.id == *message) else {
            return Change::Missing;
        };
        if input.status != InputStatus::Admitted || input.delivery == delivery {
            return Change::Conflict;
        }
        let wake = delivery == Delivery::Steer && row.head.staged_seq == 0;
        if wake {
            self.wake_next(session);
        }
        let message = message.clone();
        self.log(session, DeliveryChanged { message, delivery, wake }.into(), mint, now);
        Change::Done
    }

    /// `wake_session`.
    pub fn wake(&mut self, session: usize, mint: &mut IdMint, now: TimestampMs) -> Change {
        let stopping = self.is_stopping(session);
        let head = &self.sessions[session].head;
        if (head.open && head.pending == 0 && !stopping) || head.staged_seq > 0 {
            return Change::Gone;
        }
        let idle = !head.ready() && !self.is(StoreMutant::ResumeOpensNothing);
        self.wake_next(session);
        let head = &mut self.sessions[session].head;
        head.open |= idle;
        head.handed_over |= idle;
        self.log(session, WakeRequested::default().into(), mint, now);
        Change::Done
    }

    /// `is_stopping`, of the newest interrupt.
    fn is_stopping(&self, session: usize) -> bool {
        self.sessions[session]
            .events
            .iter()
            .rev()
            .find_map(
                #[expect(
                    clippy::wildcard_enum_match_arm,
                    reason = "only these begin and end a stop"
                )]
                |recorded| match &recorded.event {
                    SessionEvent::DrainEnded(_) => Some(false),
                    SessionEvent::InterruptRequested(asked) => {
                        Some(asked.target != InterruptTarget::Parked)
                    }
                    _ => None,
                },
            )
            .unwrap_or(false)
    }

    /// `interrupt_session`.
    pub fn interrupt(
        &mut self,
        session: usize,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Interrupted {
        let stopping = self.is_stopping(session);
        let sleeper_is_idle = self.is(StoreMutant::InterruptOfSleeperIsIdle);
        let row = &mut self.sessions[session];
        if !row.head.busy() || (row.head.asleep && sleeper_is_idle) {
            return Interrupted::Idle;
        }
        if row.head.open && row.head.wake_seq < row.head.interrupt_seq && stopping {
            return Interrupted::Applied(row.head.interrupt_seq);
        }
        let seq = row.head.next_seq;
        let target = match (row.head.open, row.open_turns.last()) {
            (false, _) => InterruptTarget::Parked,
            (true, None) => InterruptTarget::Drain,
            (true, Some(turn)) => InterruptTarget::Turn { turn: turn.clone() },
        };
        row.head.interrupt_seq = seq;
        row.head.parked_seq = seq;
        row.head.asleep = false;
        self.log(session, InterruptRequested { by: None, target }.into(), mint, now);
        Interrupted::Applied(seq)
    }

    /// `answer_ask`.
    pub fn answer(
        &mut self,
        session: usize,
        ask: &AskId,
        answer: &Answer,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Answering {
        let row = &self.sessions[session];
        let Some(known) = row.asks.iter().find(|known| known.ask == *ask) else {
            return Answering::Gone;
        };
        let again = self.is(StoreMutant::SecondAnswerTaken);
        if known.answer.is_some() && !again {
            let same = known.answer.as_ref() == Some(answer);
            return if same { Answering::Answered } else { Answering::Conflict };
        }
        if known.withdrawn || row.head.interrupt_seq > known.asked_seq {
            return Answering::Gone;
        }
        let (call, ask, answer) = (known.call.clone(), ask.clone(), answer.clone());
        if !self.is(StoreMutant::AnswerDoesNotStir) {
            self.sessions[session].head.asleep = false;
        }
        self.log(session, ToolAnswered { call, ask, answer, by: None }.into(), mint, now);
        Answering::Answered
    }

    /// `interrupt_and_resume`. Whether something is to go on.
    pub fn interrupt_and_resume(
        &mut self,
        session: usize,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> (Interrupted, bool) {
        let interrupted = self.interrupt(session, mint, now);
        let row = &self.sessions[session];
        let waiting = row.inputs.iter().filter(|input| input.status == InputStatus::Admitted);
        let next =
            waiting.min_by_key(|input| (input.delivery == Delivery::Queue, input.admitted_seq));
        let goes_on =
            next.is_some_and(|next| next.delivery == Delivery::Steer || next.is_control());
        if !goes_on || row.head.staged_seq > 0 {
            return (interrupted, false);
        }
        self.wake_next(session);
        self.log(session, WakeRequested { scope: WakeScope::Steer }.into(), mint, now);
        (interrupted, true)
    }

    /// `edit_session`.
    pub fn edit_session(
        &mut self,
        session: usize,
        said: impl IntoIterator<Item = SessionEvent>,
        mint: &mut IdMint,
        now: TimestampMs,
    ) {
        for event in said {
            self.log(session, event, mint, now);
        }
    }

    /// `set_entry`, with at most `most` others beside it. [`Change::Gone`]: it has this value;
    /// [`Change::Conflict`]: there are too many.
    pub fn set_entry(
        &mut self,
        session: usize,
        entry: &EntrySet,
        most: usize,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Change {
        let entries = &self.sessions[session].entries;
        if entries.get(&entry.key) == Some(&entry.value) {
            return Change::Gone;
        }
        if entries.keys().filter(|key| **key != entry.key).count() >= most {
            return Change::Conflict;
        }
        self.log(session, entry.clone().into(), mint, now);
        Change::Done
    }

    /// `remove_entry`.
    pub fn remove_entry(
        &mut self,
        session: usize,
        key: &str,
        mint: &mut IdMint,
        now: TimestampMs,
    ) -> Change {
        if !self.sessions[session].entries.contains_key(key) {
            return Change::Gone;
        }
        self.log(session, EntryRemoved { key: key.to_owned() }.into(), mint, now);
        Change::Done
    }
}
