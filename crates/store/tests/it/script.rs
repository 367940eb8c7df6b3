//! Events as a drain writes them, and a session that has one of every kind.

use std::collections::BTreeMap;

use domain::{
    Answer, Ask, AskId, AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, Author, CallId,
    Claim, CompactionEnded, CompactionReason, CompactionReminded, CompactionStarted, ComponentList,
    ContextUpdated, ControlAdmitted, ControlDelivered, Delivery, DrainEnded, DrainOutcome,
    EntrySet, EpochStarted, Finish, IdMint, MessageId, ModelRef, NoticeKind, NoticeRecorded,
    PartId, PermissionId, PromptAdmitted, PromptPromoted, ReplyPart, RetryScheduled, Seq,
    SessionArchived, SessionDescribed, SessionError, SessionEvent, SessionRef, SessionRenamed,
    SideOutcome, Stamp, TextCheckpointed, TitleEnded, TitleStarted, TitledBy, ToolAnswered,
    ToolAsked, ToolCalled, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled, ToolStarted,
    ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
};
use store::{DrainEnd, EntryChange, SessionEdit};

use crate::files::change_files;
use crate::world::{NOW, World};

pub(crate) const USAGE: TurnUsage =
    TurnUsage { input: 120, output: 30, reasoning: 4, cache_read: 100, cache_write: 5, cost: 77 };

pub(crate) fn model() -> ModelRef {
    ModelRef::new("openai", "large")
}

pub(crate) fn error() -> SessionError {
    SessionError {
        code: "provider.rate_limit".to_owned().into(),
        message: "wait, then try again".into(),
    }
}

pub(crate) fn promoted(prompt: &PromptAdmitted) -> SessionEvent {
    let (message, parts) = (prompt.message.clone(), prompt.parts.clone());
    let agent = "build".into();
    let synthetic = prompt.synthetic.clone();
    PromptPromoted { message, parts, agent, model: model(), admitted: NOW, synthetic }.into()
}

pub(crate) fn ended(outcome: DrainOutcome) -> SessionEvent {
    let error = (outcome == DrainOutcome::Failed).then(error);
    DrainEnded { outcome, error }.into()
}

/// One Provider Turn with one attempt.
#[derive(Debug, Clone)]
pub(crate) struct TestTurn {
    pub(crate) turn: TurnId,
    pub(crate) message: MessageId,
    parent: MessageId,
    attempt: AttemptId,
}

impl TestTurn {
    pub(crate) fn new(mint: &mut IdMint, parent: &MessageId) -> Self {
        Self {
            turn: TurnId::mint(mint),
            message: MessageId::mint(mint),
            parent: parent.clone(),
            attempt: AttemptId::mint(mint),
        }
    }

    /// The turn that an event started, without its attempt.
    pub(crate) fn started(event: &TurnStarted) -> Self {
        let TurnStarted { turn, message, parent, .. } = event.clone();
        let attempt = AttemptId::mint(&mut IdMint::after(Stamp::default(), NOW));
        Self { turn, message, parent, attempt }
    }

    pub(crate) fn with_attempt(self, attempt: &AttemptId) -> Self {
        Self { attempt: attempt.clone(), ..self }
    }

    /// The turn's intent and its first attempt's.
    pub(crate) fn start(&self) -> [SessionEvent; 2] {
        let started = TurnStarted {
            turn: self.turn.clone(),
            message: self.message.clone(),
            parent: self.parent.clone(),
            agent: "build".into(),
            model: model(),
            epoch: 0,
            step: 1,
            notice: None,
        };
        [started.into(), self.attempt(self.attempt.clone(), 1)]
    }

    fn attempt(&self, attempt: AttemptId, ordinal: i32) -> SessionEvent {
        let components = BTreeMap::from([("agent".to_owned(), "ab".repeat(32))]);
        AttemptStarted {
            attempt,
            turn: self.turn.clone(),
            ordinal,
            body_hash: "cd".repeat(32),
            wire_version: 1,
            epoch: 0,
            through: Seq(1),
            components: ComponentList::Inline(components),
            pricing: None,
        }
        .into()
    }

    fn attempt_ended(&self, attempt: &AttemptId, outcome: AttemptOutcome) -> SessionEvent {
        let completed = outcome == AttemptOutcome::Completed;
        AttemptEnded {
            attempt: attempt.clone(),
            turn: self.turn.clone(),
            outcome,
            usage: completed.then_some(USAGE),
            error: (outcome == AttemptOutcome::Failed).then(error),
        }
        .into()
    }

    pub(crate) fn settled(&self, outcome: TurnOutcome, usage: TurnUsage) -> SessionEvent {
        let error = (outcome == TurnOutcome::Failed).then(error);
        let (turn, message) = (self.turn.clone(), self.message.clone());
        TurnSettled { turn, message, outcome, usage, error }.into()
    }

    /// The end of a turn that has one open attempt and no reply.
    pub(crate) fn stop(&self, outcome: TurnOutcome) -> [SessionEvent; 2] {
        let how = match outcome {
            TurnOutcome::Interrupted => AttemptOutcome::Interrupted,
            TurnOutcome::Lost => AttemptOutcome::Lost,
            TurnOutcome::Completed
            | TurnOutcome::Cut
            | TurnOutcome::Failed
            | TurnOutcome::Overflowed => AttemptOutcome::Failed,
        };
        [self.attempt_ended(&self.attempt, how), self.settled(outcome, TurnUsage::default())]
    }

    /// The end of a turn whose reply is one text.
    pub(crate) fn reply(&self, mint: &mut IdMint) -> [SessionEvent; 3] {
        let replied = TurnReplied {
            turn: self.turn.clone(),
            message: self.message.clone(),
            parts: vec![ReplyPart::text(PartId::mint(mint), "Done.")],
            finish: Finish::Stop.into(),
        };
        [
            self.attempt_ended(&self.attempt, AttemptOutcome::Completed),
            replied.into(),
            self.settled(TurnOutcome::Completed, USAGE),
        ]
    }

    fn called(&self, call: &CallId, mint: &mut IdMint, of: (ToolClass, ToolState)) -> SessionEvent {
        let intent = ToolIntent {
            call: call.clone(),
            part: PartId::mint(mint),
            provider_call: "call_1".into(),
            tool: "shell".into(),
            arguments: "{\"command\": \"ls\\n\"}".into(),
            metadata: None,
        };
        let (class, state) = of;
        ToolCalled { turn: self.turn.clone(), message: self.message.clone(), intent, class, state }
            .into()
    }

    fn tool_settled(&self, call: &CallId, outcome: ToolOutcomeKind) -> SessionEvent {
        ToolSettled {
            turn: self.turn.clone(),
            call: call.clone(),
            outcome,
            output: "a.rs\nb.rs \u{1F980}".into(),
            title: "ls".into(),
            structured: Some("{\"z\":1,\"a\":1.10}".into()),
            managed_path: Some("/tool-output/tool_1".into()),
            truncated: true,
            started: NOW,
            ended: NOW + 5,
        }
        .into()
    }
}

/// A session at whose Location token 1 is the fence, with every kind of event but a Fork's: one interrupted
/// drain, one with a Compaction, and what became of its files. It has moved, and is idle at the end.
pub(crate) async fn every_kind(world: &World) -> SessionRef {
    let session = world.session().await;
    world.fence(1).await;
    let first = world.admit(&session, "list the files").await;
    let second = world.admit(&session, "and be quick").await;
    let mut mint = world.mint();
    let turn = TestTurn::new(&mut mint, &second.message);
    let snapshot = "{\"core/date\":\"2026-11-21\"}".to_owned();
    let epoch = EpochStarted {
        epoch: 1,
        baseline: "You are \"here\".\n".into(),
        snapshot,
        reason: Some(domain::EpochReason::First),
    };
    let mut events = vec![epoch.into(), promoted(&first), promoted(&second)];
    events.extend(turn.start());
    let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
    let step = |events: Vec<SessionEvent>| go_on(world, &session, claim, events);

    let retry = AttemptId::mint(&mut mint);
    step(vec![
        turn.attempt_ended(&turn.attempt, AttemptOutcome::Failed),
        RetryScheduled { turn: turn.turn.clone(), ordinal: 2, at: NOW, error: error() }.into(),
        turn.attempt(retry.clone(), 2),
    ])
    .await;

    let (text, thought) = (PartId::mint(&mut mint), PartId::mint(&mut mint));
    let (waits, runs) = (CallId::mint(&mut mint), CallId::mint(&mut mint));
    for (offset, piece) in [(0, "I will "), (7, "look")] {
        let (turn, part, text) = (turn.turn.clone(), text.clone(), piece.to_owned());
        step(vec![TextCheckpointed { turn, part, offset, text }.into()]).await;
    }
    let asked = |ask: PermissionId| ToolAsked {
        turn: turn.turn.clone(),
        call: waits.clone(),
        ask: AskId::Permission(ask),
        about: Ask::Permission {
            action: "shell".into(),
            resources: vec!["git push".into()],
            save: vec!["git push *".into()],
        },
        expires: NOW + 1_000,
    };
    let (first, second_ask) =
        (asked(PermissionId::mint(&mut mint)), asked(PermissionId::mint(&mut mint)));
    let answered = |asked: &ToolAsked, answer| ToolAnswered {
        call: waits.clone(),
        ask: asked.ask.clone(),
        answer,
        by: Some(Author::of_key("key_1")),
    };
    let answers = [answered(&first, Answer::Once), answered(&second_ask, Answer::Granted)];
    step(vec![
        turn.called(&waits, &mut mint, (ToolClass::Unsafe, ToolState::Asked)),
        first.into(),
        second_ask.into(),
        answers[0].clone().into(),
        answers[1].clone().into(),
        turn.called(&runs, &mut mint, (ToolClass::Pure, ToolState::Started)),
    ])
    .await;
    let parts = vec![
        ReplyPart::reasoning(thought, "Which files?"),
        ReplyPart::text(text, "I will look."),
        ReplyPart::ToolCall { call: waits.clone() },
        ReplyPart::ToolCall { call: runs.clone() },
    ];
    let (id, message, finish) = (turn.turn.clone(), turn.message.clone(), Finish::ToolCalls.into());
    step(vec![
        turn.attempt_ended(&retry, AttemptOutcome::Completed),
        TurnReplied { turn: id, message, parts, finish }.into(),
        ToolStarted { turn: turn.turn.clone(), call: waits.clone(), body: 1 }.into(),
    ])
    .await;
    let lost = TestTurn::new(&mut mint, &second.message);
    let message = MessageId::mint(&mut mint);
    let (rendered, snapshot) = ("It is tomorrow.".into(), "{\"core/date\":\"2026-11-22\"}".into());
    let mut events = vec![
        turn.tool_settled(&runs, ToolOutcomeKind::Completed),
        turn.tool_settled(&waits, ToolOutcomeKind::Unknown),
        turn.settled(TurnOutcome::Completed, USAGE),
        ContextUpdated { message, rendered, snapshot }.into(),
    ];
    events.extend(lost.start());
    step(events).await;

    let last = TestTurn::new(&mut mint, &second.message);
    let notice = MessageId::mint(&mut mint);
    let mut events = lost.stop(TurnOutcome::Lost).to_vec();
    let (kind, text) = (NoticeKind::Recovery, "A worker died.".to_owned());
    events.push(NoticeRecorded { message: notice, kind, text }.into());
    events.extend(last.start());
    step(events).await;
    world
        .store
        .interrupt(world.org, session.session.clone(), None, world.tick())
        .await
        .expect("applied");
    let mut events = last.stop(TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.resume(&session, claim, &events, DrainEnd::Close).await.expect("the last write");
    let (later, control) = fill_inbox(world, &session).await;
    drain_inbox(world, &session, &later, &control).await;
    change_files(world, &session).await
}

/// Entries, a name, and an inbox: a control that is only stored, a prompt that is cancelled, and a synthetic
/// one that is made to steer.
async fn fill_inbox(world: &World, session: &SessionRef) -> (PromptAdmitted, ControlAdmitted) {
    let (store, org, id) = (&world.store, world.org, || session.session.clone());
    for (key, value) in [("plan", "{\"a\": 1.0}"), ("plan", "null"), ("gone", "1")] {
        let entry = EntrySet { key: key.into(), value: value.into() };
        let set = store.set_entry(org, id(), entry, world.tick()).await.expect("set");
        assert!(matches!(set, EntryChange::Done(_)), "{set:?}");
    }
    store.remove_entry(org, id(), "gone".into(), world.tick()).await.expect("removed");
    let renamed = SessionRenamed { title: "Files".into(), by: TitledBy::User };
    let change = SessionEdit {
        renamed: Some(renamed),
        archived: Some(SessionArchived { archived: Some(world.tick()) }),
        described: Some(SessionDescribed { metadata: "{ \"ticket\": 4.20 }".into() }),
    };
    store.edit_session(org, id(), change, world.tick()).await.expect("changed");
    let control = ControlAdmitted { wake: false, ..world.compaction() };
    world.try_control(session, &control).await.expect("admitted");
    let dropped = world.admit_only(session, "never mind").await;
    store.cancel_input(org, id(), dropped.message, world.tick()).await.expect("cancelled");
    let later = PromptAdmitted {
        delivery: Delivery::Queue,
        wake: false,
        synthetic: Some("A file has changed".into()),
        ..world.prompt("a.rs has changed")
    };
    world.try_admit(session, &later).await.expect("admitted");
    let (input, to) = (later.message.clone(), Delivery::Steer);
    store.change_delivery(org, id(), input, to, world.tick()).await.expect("changed");
    store.wake_session(org, id(), world.tick()).await.expect("woken");
    (later, control)
}

/// A Compaction that had to be reminded, a turn too large for its model, and one with a title beside it.
async fn drain_inbox(
    world: &World,
    session: &SessionRef,
    later: &PromptAdmitted,
    control: &ControlAdmitted,
) {
    let mut mint = world.mint();
    let compaction = TestTurn::new(&mut mint, &later.message);
    let again = AttemptId::mint(&mut mint);
    let (turn, message) = (compaction.turn.clone(), compaction.message.clone());
    let started = CompactionStarted {
        turn: turn.clone(),
        message: message.clone(),
        reason: CompactionReason::Manual,
        input: Some(control.message.clone()),
        continuing: false,
        agent: "build".into(),
        model: model(),
        epoch: 1,
        prompt: "Sum up.".into(),
        keep_from: Seq(5),
        cause: None,
        scope: domain::SummaryScope::default(),
    };
    let events = [
        ControlDelivered { message: control.message.clone(), error: None }.into(),
        started.into(),
        compaction.attempt(compaction.attempt.clone(), 1),
    ];
    let claim = world.drain(session, 1, &events, DrainEnd::Keep).await;
    let (draft, reminder) = ("Hello.".into(), "Sum up, I said.".into());
    go_on(
        world,
        session,
        claim,
        vec![
            compaction.attempt_ended(&compaction.attempt, AttemptOutcome::Completed),
            CompactionReminded { turn: turn.clone(), draft, reminder }.into(),
            compaction.attempt(again.clone(), 2),
        ],
    )
    .await;
    let both = TurnUsage {
        input: 2 * USAGE.input,
        output: 2 * USAGE.output,
        reasoning: 2 * USAGE.reasoning,
        cache_read: 2 * USAGE.cache_read,
        cache_write: 2 * USAGE.cache_write,
        cost: 2 * USAGE.cost,
    };
    let checkpoint = Some("Files were listed.".to_owned());
    let outcome = SideOutcome::Completed;
    let snapshot = "{\"core/date\":\"2026-11-23\"}".to_owned();
    let epoch = EpochStarted {
        epoch: 2,
        baseline: "You are still here.\n".into(),
        snapshot,
        reason: Some(domain::EpochReason::Compaction),
    };
    let large = TestTurn::new(&mut mint, &later.message);
    let mut events = vec![
        compaction.attempt_ended(&again, AttemptOutcome::Completed),
        CompactionEnded { turn, message, outcome, checkpoint, usage: both, error: None }.into(),
        epoch.into(),
        promoted(later),
    ];
    events.extend(large.start());
    go_on(world, session, claim, events).await;

    let (answered, title) =
        (TestTurn::new(&mut mint, &later.message), TestTurn::new(&mut mint, &later.message));
    let titled = TitleStarted {
        turn: title.turn.clone(),
        message: later.message.clone(),
        agent: "build".into(),
        model: model(),
        system: "Name it.".into(),
        prompt: "a.rs has changed".into(),
    };
    let mut events = large.stop(TurnOutcome::Overflowed).to_vec();
    events.extend(answered.start());
    events.extend([titled.into(), title.attempt(title.attempt.clone(), 1)]);
    go_on(world, session, claim, events).await;
    let (turn, outcome) = (title.turn.clone(), SideOutcome::Completed);
    let mut events = vec![
        title.attempt_ended(&title.attempt, AttemptOutcome::Completed),
        TitleEnded { turn, outcome, usage: USAGE, error: None }.into(),
        SessionRenamed { title: "Changed files".into(), by: TitledBy::Model }.into(),
    ];
    events.extend(answered.reply(&mut mint));
    events.push(ended(DrainOutcome::Completed));
    world.resume(session, claim, &events, DrainEnd::Close).await.expect("the last write");
}

async fn go_on(world: &World, session: &SessionRef, claim: Claim, events: Vec<SessionEvent>) {
    world.resume(session, claim, &events, DrainEnd::Keep).await.expect("the claim holds");
}
