//! Requests of clients through gateways, and the hints of gateways, which may be lost, late or double.

use domain::{
    Answer, AskId, Control, ControlAdmitted, Delivery, EntrySet, IdMint, MessageId, ModelRef,
    PartId, PromptAdmitted, PromptPart, PromptPromoted, RecordedEvent, SessionArchived,
    SessionDescribed, SessionEvent, SessionRenamed, TimestampMs, TitledBy, TurnStarted,
};
use history::hash_hex;

use super::facts::{ENTRIES, EPOCH, LOCATIONS};
use super::{Action, World};
use crate::fault::Fault;
use crate::mutant::ShellMutant;
use crate::store::{Admission, Answering, Change, Interrupted};

/// An input that a client asks for.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Prompt(PromptAdmitted),
    Control(ControlAdmitted),
}

impl Asked {
    pub(super) fn message(&self) -> &MessageId {
        match self {
            Self::Prompt(prompt) => &prompt.message,
            Self::Control(control) => &control.message,
        }
    }

    fn wake(&self) -> bool {
        match self {
            Self::Prompt(prompt) => prompt.wake,
            Self::Control(control) => control.wake,
        }
    }

    /// Something else under the same id.
    fn differ(&mut self) {
        match self {
            Self::Prompt(prompt) => prompt.digest = hash_hex(b"another"),
            Self::Control(control) => control.digest = hash_hex(b"another"),
        }
    }
}

impl World {
    pub(super) fn client(&mut self) {
        if self.quiet {
            return;
        }
        self.after(100, 1_600, Action::Client);
        if self.goes_back() {
            return;
        }
        if self.reborn.as_mut().is_some_and(|reborn| reborn.chance(45)) {
            return self.make_anew();
        }
        let sessions = self.store.sessions.len();
        let session = self.rng.index(sessions);
        if self.reverts && self.rng.chance(50) {
            // Only an idle session accepts it.
            let idle = |session: &usize| !self.store.sessions[*session].head.ready();
            if let Some(session) = (0..sessions).rev().find(idle) {
                let control = self.with_mint(|world, mint, _| world.control(session, mint));
                return self.admit(session, control);
            }
        }
        match self.rng.below(100) {
            0..=49 => {
                let prompt = self.with_mint(Self::prompt);
                self.admit(session, prompt);
            }
            50..=51 => self.ask_again(),
            52..=54 => self.fork(session),
            // An interrupt is mostly for work that runs: it changes nothing elsewhere.
            55..=68 => {
                let open = |session: &usize| self.store.sessions[*session].head.open;
                let running = (0..sessions).find(open).filter(|_| session > 0);
                self.interrupt(running.unwrap_or(session));
            }
            69..=74 => self.cancel(session),
            75..=80 => self.change(session),
            81..=91 => {
                let control = self.with_mint(|world, mint, _| world.control(session, mint));
                self.admit(session, control);
            }
            92..=94 => {
                let woken = self.with_mint(|world, mint, now| world.store.wake(session, mint, now));
                if woken == Change::Done {
                    self.hint(|| Action::Wake { session });
                }
            }
            95 => self.describe(session),
            96..=97 => self.change_entry(session),
            _ => {
                self.with_mint(|world, mint, now| world.store.commit_revert(session, mint, now));
            }
        }
    }

    /// Runs `f` with an id mint of now. Later ids come after its ids.
    pub(super) fn with_mint<T>(
        &mut self,
        f: impl FnOnce(&mut Self, &mut IdMint, TimestampMs) -> T,
    ) -> T {
        let now = EPOCH + self.now;
        let mut mint = IdMint::seeded(self.mint.last(), now, self.scheduled);
        let made = f(self, &mut mint, now);
        self.mint.raise(mint.last());
        made
    }

    pub(super) fn prompt(&mut self, mint: &mut IdMint, _now: TimestampMs) -> Asked {
        // No other text begins with it.
        let large = if self.quiet { 0 } else { self.large_prompt() };
        let text = format!("do thing {}.{}", self.scheduled, " y".repeat(large / 2));
        let unknown = ModelRef::new("nobody", "none");
        let known = self.facts.models.default.clone();
        let model = match self.rng.below(100) {
            0..=3 => Some(unknown),
            4..=30 => Some(known),
            _ => None,
        };
        let synthetic = self.rng.chance(10).then(|| "a job has ended".to_owned());
        Asked::Prompt(PromptAdmitted {
            by: None,
            message: MessageId::mint(mint),
            delivery: self.delivery(),
            parts: vec![PromptPart::Text { id: PartId::mint(mint), text: text.clone() }],
            agent: None,
            model,
            wake: !self.rng.chance(12),
            digest: hash_hex(text.as_bytes()),
            synthetic,
        })
    }

    /// Returns the number of bytes that a prompt has besides its words.
    fn large_prompt(&mut self) -> usize {
        match self.rng.below(100) {
            0..=2 => {
                self.faults.note(Fault::LargePrompt);
                17_000
            }
            3..=5 => usize::try_from(self.rng.within(4_000, 7_600)).unwrap_or(0),
            _ => 0,
        }
    }

    /// Sends each session a last prompt after the faults. The session must answer it, whatever happened before.
    pub(super) fn last_prompts(&mut self) {
        for session in 0..self.store.sessions.len() {
            let asked = self.with_mint(Self::prompt);
            let Asked::Prompt(prompt) = asked else { unreachable!("it is a prompt") };
            let model = Some(self.facts.models.default.clone());
            let prompt = PromptAdmitted { model, wake: true, synthetic: None, ..prompt };
            self.last.push((session, prompt.message.clone()));
            self.admit(session, Asked::Prompt(prompt));
        }
    }

    fn control(&mut self, session: usize, mint: &mut IdMint) -> Asked {
        let head = self.store.sessions[session].head;
        // Controls that want an idle session mostly get one.
        let kind = match (head.ready(), head.staged_seq > 0) {
            (true, _) => self.rng.below(15),
            (false, true) => 12 + self.rng.below(8),
            (false, false) if self.reverts => 12 + self.rng.below(4),
            (false, false) => self.rng.below(20),
        };
        let control = match kind {
            0..=7 => Control::Compaction,
            8..=11 => {
                let location = self.rng.index(LOCATIONS);
                let carry = self.rng.chance(40);
                self.facts.to_move(location, carry)
            }
            12..=15 => match self.any_message(session) {
                Some(message) => Control::Revert { message, files: !self.rng.chance(20) },
                None => Control::Compaction,
            },
            _ => Control::Unrevert,
        };
        Asked::Control(ControlAdmitted {
            message: MessageId::mint(mint),
            delivery: self.delivery(),
            control,
            wake: !self.rng.chance(12),
            digest: "compaction".into(),
        })
    }

    fn delivery(&mut self) -> Delivery {
        if self.rng.chance(55) { Delivery::Steer } else { Delivery::Queue }
    }

    fn ask(&mut self, session: usize, asked: &Asked) -> Admission {
        self.with_mint(|world, mint, now| match asked {
            Asked::Prompt(prompt) => world.store.admit(session, prompt, mint, now),
            Asked::Control(control) => world.store.admit_control(session, control, mint, now),
        })
    }

    pub(super) fn admit(&mut self, session: usize, asked: Asked) {
        if self.is(ShellMutant::AckBeforeCommit) && self.rng.chance(20) {
            // The gateway has answered, and dies before its statement is sent.
            self.acknowledged.push((session, asked));
            return;
        }
        let admitted = self.ask(session, &asked);
        match admitted {
            Admission::Conflict | Admission::Retry(_) => {
                self.fail(format!("I1: {} is new, and there was {admitted:?}", asked.message()));
            }
            // The client hears of the control that waits already.
            Admission::Pending(_) => return self.hint(|| Action::Wake { session }),
            Admission::Busy => return,
            Admission::Admitted(_) => {}
        }
        if self.rng.chance(8) {
            self.faults.note(Fault::AdmissionRetried);
            let incarnation = self.store.sessions[session].head.incarnation;
            let asked = Box::new(asked);
            return self.after(20, 900, Action::Retry { session, incarnation, asked });
        }
        if asked.wake() {
            self.hint(|| Action::Wake { session });
        }
        self.acknowledged.push((session, asked));
    }

    /// Sends the same input again: the client has had no answer.
    pub(super) fn retry(&mut self, session: usize, incarnation: i64, asked: Asked) {
        if self.store.sessions[session].head.incarnation != incarnation {
            return; // what it was for is deleted
        }
        let is_forgotten = self.forgets_input(asked.message());
        let admitted = self.ask(session, &asked);
        match admitted {
            Admission::Retry(_) if !is_forgotten => {}
            // To the database it is new.
            Admission::Admitted(_) if is_forgotten => self.is_known_again(asked.message()),
            Admission::Pending(_) if is_forgotten => return self.hint(|| Action::Wake { session }),
            Admission::Busy if is_forgotten => return,
            Admission::Retry(_)
            | Admission::Admitted(_)
            | Admission::Pending(_)
            | Admission::Busy
            | Admission::Conflict => {
                let (message, how) =
                    (asked.message(), if is_forgotten { "forgotten " } else { "" });
                self.fail(format!("I1: an exact retry of {how}{message} gave {admitted:?}"));
            }
        }
        self.acknowledged.push((session, asked));
        self.hint(|| Action::Wake { session });
    }

    /// Sends a used id with another text or at another session: it must be refused.
    fn ask_again(&mut self) {
        if self.acknowledged.is_empty() {
            return;
        }
        let (session, mut asked) =
            self.acknowledged[self.rng.index(self.acknowledged.len())].clone();
        let session =
            if self.rng.chance(50) { (session + 1) % self.store.sessions.len() } else { session };
        asked.differ();
        let admitted = self.ask(session, &asked);
        let lost = self.is(ShellMutant::AckBeforeCommit);
        if admitted != Admission::Conflict && !lost {
            let message = asked.message();
            self.fail(format!("I1: something else under the id {message} gave {admitted:?}"));
        }
    }

    fn interrupt(&mut self, session: usize) {
        if self.rng.chance(25) {
            let (asked, goes_on) = self
                .with_mint(|world, mint, now| world.store.interrupt_and_resume(session, mint, now));
            if goes_on {
                self.hint(|| Action::Wake { session });
            }
            if let Interrupted::Applied(_) = asked {
                self.hint(|| Action::Interrupt { session });
            }
            return;
        }
        let sleeps = self.store.sessions[session].head.asleep;
        let asked = self.with_mint(|world, mint, now| world.store.interrupt(session, mint, now));
        if sleeps && matches!(asked, Interrupted::Idle) {
            self.fail("I6: an interrupt of a session that sleeps changed nothing".into());
        }
        if let Interrupted::Applied(_) = asked {
            self.hint(|| Action::Interrupt { session });
        }
    }

    /// Picks any prompt or answer in the session's log, in whatever state it is.
    pub(super) fn any_message(&mut self, session: usize) -> Option<MessageId> {
        let log = &self.store.sessions[session].events;
        let mut messages = Vec::new();
        for RecordedEvent { event, .. } in log {
            if let SessionEvent::PromptPromoted(PromptPromoted { message, .. })
            | SessionEvent::TurnStarted(TurnStarted { message, .. }) = event
            {
                messages.push(message.clone());
            }
        }
        let index = (!messages.is_empty()).then(|| self.rng.index(messages.len()))?;
        Some(messages[index].clone())
    }

    /// People answer some asks, late, twice or never; an errand answers those whose time is over.
    pub(super) fn people(&mut self) {
        self.after(60, 700, Action::People);
        for session in 0..self.store.sessions.len() {
            let now = EPOCH + self.now;
            let asks = self.store.sessions[session].asks.iter();
            let open: Vec<_> = asks.filter(|ask| ask.is_pending() || self.quiet).cloned().collect();
            for ask in open {
                let answer = match self.rng.below(100) {
                    _ if ask.expires <= now && ask.is_pending() => Answer::Expired,
                    _ if self.quiet => Answer::Once,
                    0..=29 => Answer::Once,
                    30..=39 => Answer::Granted,
                    40..=44 => Answer::Reject { message: None },
                    45..=54 => Answer::Reject { message: Some("not that".into()) },
                    _ => continue,
                };
                self.answer(session, &ask.ask, &answer);
                if self.rng.chance(10) {
                    // Another gateway, a moment later.
                    self.answer(session, &ask.ask, &Answer::Granted);
                }
            }
        }
    }

    fn answer(&mut self, session: usize, ask: &AskId, answer: &Answer) {
        let answered =
            self.with_mint(|world, mint, now| world.store.answer(session, ask, answer, mint, now));
        if answered == Answering::Answered {
            self.hint(|| Action::Wake { session });
        }
    }

    /// Picks any input of the session, in whatever state it is.
    fn any_input(&mut self, session: usize) -> Option<MessageId> {
        let inputs = &self.store.sessions[session].inputs;
        let index = (!inputs.is_empty()).then(|| self.rng.index(inputs.len()))?;
        Some(inputs[index].id.clone())
    }

    fn cancel(&mut self, session: usize) {
        let Some(message) = self.any_input(session) else { return };
        self.with_mint(|world, mint, now| world.store.cancel(session, &message, mint, now));
    }

    fn change(&mut self, session: usize) {
        let Some(message) = self.any_input(session) else { return };
        let delivery = self.delivery();
        self.with_mint(|world, mint, now| {
            world.store.change(session, &message, delivery, mint, now);
        });
        self.hint(|| Action::Wake { session });
    }

    /// A client says something of a session that no drain decides about.
    fn describe(&mut self, session: usize) {
        let number = self.rng.below(100);
        self.with_mint(|world, mint, now| {
            let archived = number.is_multiple_of(2).then_some(now);
            let said: SessionEvent = match number % 4 {
                0 | 1 => SessionArchived { archived }.into(),
                2 => SessionDescribed { metadata: format!("{{\"n\":{number}}}") }.into(),
                _ => SessionRenamed { title: format!("Name {number}"), by: TitledBy::User }.into(),
            };
            world.store.edit_session(session, [said], mint, now);
        });
    }

    fn change_entry(&mut self, session: usize) {
        let key = format!("key{}", self.rng.below(3));
        let value = self.rng.below(3);
        self.with_mint(|world, mint, now| {
            if value == 0 {
                world.store.remove_entry(session, &key, mint, now);
            } else {
                let entry = EntrySet { key, value: value.to_string() };
                world.store.set_entry(session, &entry, ENTRIES, mint, now);
            }
        });
    }

    /// A hint, which may be lost, late or double.
    pub(super) fn hint(&mut self, action: impl Fn() -> Action) {
        if self.quiet {
            return self.after(1, 10, action());
        }
        match self.rng.below(100) {
            0..=14 => self.faults.note(Fault::HintDropped),
            15..=24 => {
                self.faults.note(Fault::HintDuplicated);
                self.after(1, 10, action());
                self.after(1, 400, action());
            }
            25..=39 => {
                self.faults.note(Fault::HintDelayed);
                self.after(300, 3_000, action());
            }
            _ => self.after(1, 15, action()),
        }
    }
}
