//! Events as a drain writes them, and a session that has one of every kind.

use std::collections::BTreeMap;

use domain::{
    AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CallId, Claim, ContextUpdated,
    DrainEnded, DrainOutcome, EpochStarted, IdMint, MessageId, ModelRef, NoticeKind,
    NoticeRecorded, PartId, PromptAdmitted, PromptPromoted, ReplyPart, RetryScheduled, Seq,
    SessionError, SessionEvent, SessionRef, Stamp, TextCheckpointed, ToolCalled, ToolClass,
    ToolIntent, ToolOutcomeKind, ToolSettled, ToolStarted, ToolState, TurnId, TurnOutcome,
    TurnReplied, TurnSettled, TurnStarted, TurnUsage,
};
use store::DrainEnd;

use crate::world::{NOW, World};

pub(crate) const USAGE: TurnUsage =
    TurnUsage { input: 120, output: 30, reasoning: 4, cache_read: 100, cache_write: 5 };

pub(crate) fn model() -> ModelRef {
    ModelRef { provider: "openai".into(), model: "large".into() }
}

pub(crate) fn error() -> SessionError {
    SessionError { code: "provider.rate_limit".into(), message: "wait, then try again".into() }
}

pub(crate) fn promoted(prompt: &PromptAdmitted) -> SessionEvent {
    let (message, parts) = (prompt.message.clone(), prompt.parts.clone());
    PromptPromoted { message, parts, agent: "build".into(), model: model(), admitted: NOW }.into()
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
            epoch: 1,
            step: 1,
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
            epoch: 1,
            through: Seq(1),
            components,
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

    /// What ends a turn that has one open attempt and no reply.
    pub(crate) fn stop(&self, outcome: TurnOutcome) -> [SessionEvent; 2] {
        let how = match outcome {
            TurnOutcome::Interrupted => AttemptOutcome::Interrupted,
            TurnOutcome::Lost => AttemptOutcome::Lost,
            TurnOutcome::Completed | TurnOutcome::Cut | TurnOutcome::Failed => {
                AttemptOutcome::Failed
            }
        };
        [self.attempt_ended(&self.attempt, how), self.settled(outcome, TurnUsage::default())]
    }

    /// What ends a turn whose reply is one text.
    pub(crate) fn reply(&self, mint: &mut IdMint) -> [SessionEvent; 3] {
        let replied = TurnReplied {
            turn: self.turn.clone(),
            message: self.message.clone(),
            parts: vec![ReplyPart::Text { id: PartId::mint(mint), text: "Done.".into() }],
            finish: "stop".into(),
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

/// A session at whose Location token 1 is the fence, with every kind of event and one interrupted drain.
/// It is idle at the end.
pub(crate) async fn every_kind(world: &World) -> SessionRef {
    let session = world.session().await;
    world.fence(1).await;
    let first = world.admit(&session, "list the files").await;
    let second = world.admit(&session, "and be quick").await;
    let mut mint = world.mint();
    let turn = TestTurn::new(&mut mint, &second.message);
    let snapshot = "{\"core/date\":\"2026-11-21\"}".to_owned();
    let epoch = EpochStarted { epoch: 1, baseline: "You are \"here\".\n".into(), snapshot };
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
    step(vec![
        turn.called(&waits, &mut mint, (ToolClass::Unsafe, ToolState::Intended)),
        turn.called(&runs, &mut mint, (ToolClass::Pure, ToolState::Started)),
    ])
    .await;
    let parts = vec![
        ReplyPart::Reasoning { id: thought, text: "Which files?".into() },
        ReplyPart::Text { id: text, text: "I will look.".into() },
        ReplyPart::ToolCall { call: waits.clone() },
        ReplyPart::ToolCall { call: runs.clone() },
    ];
    let (id, message, finish) = (turn.turn.clone(), turn.message.clone(), "tool-calls".to_owned());
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
    world.store.interrupt(world.org, session.session.clone(), world.tick()).await.expect("applied");
    let mut events = last.stop(TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.resume(&session, claim, &events, DrainEnd::Close).await.expect("the last write");
    session
}

async fn go_on(world: &World, session: &SessionRef, claim: Claim, events: Vec<SessionEvent>) {
    world.resume(session, claim, &events, DrainEnd::Keep).await.expect("the claim holds");
}
