//! Operations of gateways, on both sides.

use domain::{
    Control, ControlAdmitted, Delivery, EntrySet, MessageId, PromptAdmitted, SessionArchived,
    SessionDescribed, SessionRef, SessionRenamed, TitledBy,
};
use store::{
    Admission, ControlAdmission, EntryChange, InboxChange, Interrupted, MAX_ENTRIES, SessionEdit,
    StoreError,
};

use super::{Pair, SESSIONS, Sent, created};

impl Pair<'_> {
    /// Admits an input on both sides.
    pub(super) async fn admit(&mut self, operation: &str, session: usize, sent: Sent) {
        let at = self.sessions[session].clone();
        let real = match &sent {
            Sent::Prompt(prompt) => {
                let admitted = self.world.try_admit(&at, prompt).await;
                admitted.map(|admitted| match admitted.admission {
                    Admission::First => format!("admitted {}", admitted.seq),
                    Admission::Retry => format!("retry {}", admitted.seq),
                })
            }
            Sent::Control(control) => {
                let admitted = self.world.try_control(&at, control).await;
                admitted.map(|admitted| match admitted.admission {
                    ControlAdmission::First => format!("admitted {}", admitted.seq),
                    ControlAdmission::Retry => format!("retry {}", admitted.seq),
                    ControlAdmission::Pending => format!("pending {}", admitted.seq),
                })
            }
        };
        let real = match real {
            Ok(admitted) => admitted,
            Err(StoreError::Conflict { .. }) => "conflict".into(),
            Err(StoreError::Busy { .. }) => "busy".into(),
            Err(error) => panic!("{error:?}"),
        };
        let (mut mint, now) = (self.mint(), self.world.tick());
        let admitted = match &sent {
            Sent::Prompt(prompt) => self.model.admit(session, prompt, &mut mint, now),
            Sent::Control(control) => self.model.admit_control(session, control, &mut mint, now),
        };
        let model = match admitted {
            sim::Admission::Admitted(seq) => {
                self.sent.push((session, sent));
                format!("admitted {seq}")
            }
            sim::Admission::Retry(seq) => format!("retry {seq}"),
            sim::Admission::Pending(seq) => format!("pending {seq}"),
            sim::Admission::Conflict => "conflict".into(),
            sim::Admission::Busy => "busy".into(),
        };
        assert_eq!(real, model, "{operation}");
        let word = real.split(' ').next().unwrap_or_default().to_owned();
        self.same(operation, &word, &word);
    }

    pub(super) async fn admit_control(&mut self, session: usize) {
        let to = self.rng.index(2);
        // A Move is refused only beside a staged Revert.
        let staged = (0..SESSIONS).find(|at| self.model.sessions[*at].head.staged_seq > 0);
        let kind = self.rng.below(12);
        let session = staged.filter(|_| kind > 9).unwrap_or(session);
        let (operation, control) = match if kind > 9 { 4 } else { kind } {
            0..=3 => ("compaction", Control::Compaction),
            4..=5 => {
                let project = self.world.project.clone();
                let location = self.locations[to].location.clone();
                let directory = "/workspace".to_owned();
                ("move", Control::Move { project, location, directory, carry: false })
            }
            6..=7 => {
                let message = MessageId::mint(&mut self.mint());
                ("revert", Control::Revert { message, files: true })
            }
            _ => ("unrevert", Control::Unrevert),
        };
        let any = self.world.compaction();
        let (delivery, wake) = (self.delivery(), self.rng.chance(75));
        let control = ControlAdmitted { delivery, wake, control, ..any };
        self.admit(operation, session, Sent::Control(control)).await;
    }

    /// An id that was used: the same again, or something else under it.
    pub(super) async fn admit_again(&mut self, session: usize) {
        let turn = self.open[session].as_ref().map(|turn| turn.message.clone());
        if let Some(message) = turn.filter(|_| self.rng.chance(40)) {
            let prompt = PromptAdmitted { message, ..self.world.prompt("a reply's id") };
            let operation = "admit under a reply's id";
            return self.admit(operation, session, Sent::Prompt(prompt)).await;
        }
        if self.sent.is_empty() {
            return;
        }
        let (mut session, mut sent) = self.sent[self.rng.index(self.sent.len())].clone();
        let (delivery, digest) = match &mut sent {
            Sent::Prompt(prompt) => (&mut prompt.delivery, &mut prompt.digest),
            Sent::Control(control) => (&mut control.delivery, &mut control.digest),
        };
        let operation = match self.rng.below(4) {
            0 => "admit again",
            1 => {
                *digest = "another".into();
                "admit another"
            }
            2 => {
                session = (session + 1) % SESSIONS;
                "admit elsewhere"
            }
            _ => {
                let steers = *delivery == Delivery::Steer;
                *delivery = if steers { Delivery::Queue } else { Delivery::Steer };
                "admit otherwise"
            }
        };
        self.admit(operation, session, sent).await;
    }

    pub(super) async fn interrupt(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let real = self.world.store.interrupt(self.world.org, id, None, self.world.tick()).await;
        let real = match real.expect("an answer") {
            Interrupted::Applied { .. } => "applied",
            Interrupted::Idle => "idle",
        };
        let mut mint = self.mint();
        let model = match self.model.interrupt(session, &mut mint, self.world.tick()) {
            sim::Interrupted::Applied(_) => "applied",
            sim::Interrupted::Idle => "idle",
        };
        self.same("interrupt", real, model);
    }

    pub(super) async fn interrupt_and_resume(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let real =
            self.world.store.interrupt_and_resume(self.world.org, id, None, self.world.tick());
        let real = real.await.expect("an answer");
        let word = |applied: bool, goes_on: bool| match (applied, goes_on) {
            (true, true) => "applied, going on",
            (true, false) => "applied, not going on",
            (false, true) => "idle, going on",
            (false, false) => "idle, not going on",
        };
        let mut mint = self.mint();
        let now = self.world.tick();
        let (model, goes_on) = self.model.interrupt_and_resume(session, &mut mint, now);
        let model = word(model != sim::Interrupted::Idle, goes_on);
        let real = word(real.interrupt.is_some(), real.wake.is_some());
        self.same("interrupt and resume", real, model);
    }

    pub(super) async fn wake(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let real = self.world.store.wake_session(self.world.org, id, self.world.tick()).await;
        let real = changed(real);
        let mut mint = self.mint();
        let model = self.model.wake(session, &mut mint, self.world.tick());
        self.same("wake", real, change(model));
    }

    pub(super) async fn commit_revert(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let real = self.world.store.commit_revert(self.world.org, id, self.world.tick()).await;
        let real = changed(real);
        let mut mint = self.mint();
        let model = self.model.commit_revert(session, &mut mint, self.world.tick());
        self.same("commit a revert", real, change(model));
    }

    pub(super) async fn describe(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let (number, now) = (self.rng.below(10), self.world.tick());
        let renamed = SessionRenamed { title: format!("Name {number}"), by: TitledBy::User };
        let described = SessionDescribed { metadata: format!("{{\"n\":{number}}}") };
        // All kinds, alone and together.
        let said = SessionEdit {
            renamed: number.is_multiple_of(2).then_some(renamed),
            archived: Some(SessionArchived { archived: (number > 5).then_some(now) }),
            described: number.is_multiple_of(3).then_some(described),
        };
        let store = &self.world.store;
        let real = store.edit_session(self.world.org, id, said.clone(), now).await;
        let mut mint = self.mint();
        self.model.edit_session(session, said.events(), &mut mint, now);
        let head = self.model.sessions[session].head;
        assert_eq!(real.expect("an answer").0 + 1, head.next_seq);
        self.same("describe", "done", "done");
    }

    /// Deletes a session and creates it again under its id. Writes and claims of the deleted one stay in hand.
    pub(super) async fn make_again(&mut self, session: usize) {
        let place = self.rng.index(2);
        let location = self.locations[place].location.clone();
        self.sessions[session] = SessionRef { location, ..self.sessions[session].clone() };
        let at = self.sessions[session].clone();
        self.world.make_again(&at).await;
        // Both sides give it the same number.
        self.model.incarnations = self.world.head(&at).await.incarnation - 1;
        let (created, now) = (created(self.world, &at).into(), self.world.tick());
        self.model.make_anew(session, place, created, &mut self.world.mint(), now);
        self.open[session] = None;
        self.same("make again", "done", "done");
    }

    pub(super) async fn change_entry(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let org = self.world.org;
        let (key, value) = (format!("key{}", self.rng.below(3)), self.rng.below(3));
        let (store, now) = (&self.world.store, self.world.tick());
        let mut mint = self.world.mint();
        let (real, model) = if value == 0 {
            let real = store.remove_entry(org, id, key.clone(), now).await;
            (real, self.model.remove_entry(session, &key, &mut mint, now))
        } else if self.rng.chance(95) {
            let entry = EntrySet { key, value: value.to_string() };
            let real = store.set_entry(org, id, entry.clone(), now).await;
            (real, self.model.set_entry(session, &entry, MAX_ENTRIES, &mut mint, now))
        } else {
            // As many as there may be, once.
            for nth in 0..=MAX_ENTRIES {
                let entry = EntrySet { key: format!("more{nth}"), value: "0".into() };
                let (id, now) = (self.sessions[session].session.clone(), self.world.tick());
                let real = self.world.store.set_entry(org, id, entry.clone(), now).await;
                let mut mint = self.world.mint();
                let model = self.model.set_entry(session, &entry, MAX_ENTRIES, &mut mint, now);
                self.same("entry", entered(real), change(model));
            }
            return;
        };
        self.same("entry", entered(real), change(model));
    }

    fn any_sent(&mut self) -> Option<MessageId> {
        let index = (!self.sent.is_empty()).then(|| self.rng.index(self.sent.len()))?;
        Some(self.sent[index].1.message().clone())
    }

    pub(super) async fn cancel(&mut self, session: usize) {
        let Some(message) = self.any_sent() else { return };
        let (org, id) = (self.world.org, self.sessions[session].session.clone());
        let input = message.clone();
        let real = self.world.store.cancel_input(org, id, input, self.world.tick()).await;
        let real = match real.expect("an answer") {
            InboxChange::Done { .. } => "done",
            InboxChange::Unchanged => "gone",
        };
        let mut mint = self.mint();
        let model = self.model.cancel(session, &message, &mut mint, self.world.tick());
        self.same("cancel", real, if model == sim::Change::Done { "done" } else { "gone" });
    }

    pub(super) async fn change(&mut self, session: usize) {
        let Some(message) = self.any_sent() else { return };
        let to = self.delivery();
        let (org, id) = (self.world.org, self.sessions[session].session.clone());
        let input = message.clone();
        let real = self.world.store.change_delivery(org, id, input, to, self.world.tick()).await;
        let real = match real {
            Ok(InboxChange::Done { .. }) => "done",
            Ok(InboxChange::Unchanged) | Err(StoreError::Conflict { .. }) => "conflict",
            Err(StoreError::NotFound) => "missing",
            Err(error) => panic!("{error:?}"),
        };
        let mut mint = self.mint();
        let model = match self.model.change(session, &message, to, &mut mint, self.world.tick()) {
            sim::Change::Done => "done",
            sim::Change::Conflict => "conflict",
            sim::Change::Missing | sim::Change::Gone | sim::Change::Busy => "missing",
        };
        self.same("change", real, model);
    }
}

fn changed(real: Result<InboxChange, StoreError>) -> &'static str {
    match real {
        Ok(InboxChange::Done { .. }) => "done",
        Ok(InboxChange::Unchanged) => "gone",
        Err(StoreError::Busy { .. }) => "busy",
        Err(error) => panic!("{error:?}"),
    }
}

fn entered(real: Result<EntryChange, StoreError>) -> &'static str {
    match real.expect("an answer") {
        EntryChange::Done(_) => "done",
        EntryChange::Unchanged => "gone",
        EntryChange::Full => "conflict",
    }
}

fn change(model: sim::Change) -> &'static str {
    match model {
        sim::Change::Done => "done",
        sim::Change::Gone => "gone",
        sim::Change::Conflict => "conflict",
        sim::Change::Missing => "missing",
        sim::Change::Busy => "busy",
    }
}
