//! Plays a worker through the store: promotion, a turn, its reply, the end of the drain.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use domain::{
    Ask, AskId, AttemptEnded, AttemptId, AttemptOutcome, AttemptStarted, CallId, Clock,
    CompactionEnded, CompactionReason, CompactionStarted, ComponentList, ControlDelivered,
    DrainEnded, DrainOutcome, EpochStarted, FencingToken, Finish, MessageId, ModelRef, PartId,
    PermissionId, PromptPromoted, RecordedEvent, ReplyPart, Seq, SessionError, SessionEvent,
    SessionId, SessionRef, SideOutcome, SystemClock, ToolAsked, ToolCalled, ToolClass, ToolIntent,
    ToolOutcomeKind, ToolSettled, ToolState, TurnId, TurnOutcome, TurnReplied, TurnSettled,
    TurnStarted, TurnUsage,
};
use history::{Components, History, ModelEntry, PendingControl, PendingInput, hash_hex};
use signals::{Delta, DeltaKind, Hint, SessionHint, Signals, Topic};
use store::{Append, DrainEnd, Hold, Started};

use crate::world::World;

/// A turn in progress: its start is committed, its reply is not.
pub(crate) struct Turn {
    at: SessionRef,
    claim: domain::Claim,
    pub(crate) turn: TurnId,
    pub(crate) attempt: AttemptId,
    pub(crate) message: MessageId,
    pub(crate) part: PartId,
    /// The body that was "sent".
    pub(crate) body: Vec<u8>,
    sent: u64,
}

fn model() -> ModelRef {
    ModelRef::new("simulated", "echo")
}

fn components() -> Components {
    Components {
        agent: "You are a test.".into(),
        tools: Vec::new(),
        tool_choice: llm_protocol::ToolChoice::default(),
        generation: llm_protocol::Generation::default(),
        options: serde_json::Map::new(),
        model: ModelEntry {
            provider: "simulated".into(),
            id: "echo".into(),
            protocol: llm_protocol::Protocol::OpenAiChat,
            context_limit: None,
            input_limit: None,
            output_limit: None,
            dialect: llm_protocol::Dialect::default(),
        },
    }
}

/// Returns the session's reference from its row.
pub(crate) async fn at(world: &World, session: &str) -> Result<SessionRef> {
    let id: SessionId = session.parse()?;
    Ok(world.store.session(world.org, id).await?.at)
}

fn hint(world: &World, at: &SessionRef, seq: Seq) {
    let topic = Topic::Session(at.org, at.session.clone());
    world.signals.publish(&topic, Hint::Session(SessionHint::Committed { seq, ends: true }));
}

/// Claims the session, promotes its inputs, and starts a turn.
pub(crate) async fn begin(world: &World, at: &SessionRef) -> Result<Turn> {
    begin_with(world, at, None).await
}

/// Like `begin`, with notices about the model.
pub(crate) async fn begin_with(
    world: &World,
    at: &SessionRef,
    notice: Option<&str>,
) -> Result<Turn> {
    let now = SystemClock::new().now_ms();
    world.store.raise_fence(at.location_ref(), FencingToken(1)).await?;
    let token = FencingToken(1);
    let Started::Ready(tx, _, known) =
        world.store.start_drain(at.clone(), token, store::KnownLog::NOTHING, Hold::Lock).await?
    else {
        bail!("the session has no work");
    };
    let claim = tx.claim();
    let mut history = History::new();
    history.extend(&known);
    let inputs = history.pending().to_vec();
    let mut mint = tx.mint(now);
    let mut events: Vec<SessionEvent> = Vec::new();
    if !known.iter().any(|event| matches!(event.event, SessionEvent::EpochStarted(_))) {
        let baseline = "You are in a test.".to_owned();
        events
            .push(EpochStarted { epoch: 1, baseline, snapshot: "{}".into(), reason: None }.into());
    }
    let mut parent = None;
    let mut chosen = model();
    for PendingInput { admitted, prompt, .. } in &inputs {
        parent = Some(prompt.message.clone());
        chosen = prompt.model.clone().unwrap_or_else(model);
        events.push(
            PromptPromoted {
                message: prompt.message.clone(),
                parts: prompt.parts.clone(),
                agent: prompt.agent.clone().unwrap_or_else(|| "build".into()),
                model: chosen.clone(),
                admitted: *admitted,
                synthetic: prompt.synthetic.clone(),
            }
            .into(),
        );
    }
    let through = Seq(tx.head().next_seq.0 + i64::try_from(events.len())? - 1);
    let fresh: Vec<RecordedEvent> = (tx.head().next_seq.0..)
        .zip(&events)
        .map(|(seq, event)| RecordedEvent {
            seq: Seq(seq),
            id: "evt_test".parse().expect("an id"),
            time: now,
            claim: None,
            event: event.clone(),
        })
        .collect();
    history.extend(&fresh);
    let bytes = components().bytes();
    let id = TurnId::mint(&mut mint);
    let body = history.encode(&components(), &id);
    let names: BTreeMap<String, String> =
        bytes.iter().map(|(name, bytes)| (name.clone(), hash_hex(bytes))).collect();
    let stored: Vec<(Vec<u8>, Vec<u8>)> = bytes
        .values()
        .map(|bytes| (hex::decode(hash_hex(bytes)).expect("hex"), bytes.clone()))
        .collect();
    let turn = Turn {
        at: at.clone(),
        claim,
        turn: id,
        attempt: AttemptId::mint(&mut mint),
        message: MessageId::mint(&mut mint),
        part: PartId::mint(&mut mint),
        body,
        sent: 0,
    };
    events.push(
        TurnStarted {
            turn: turn.turn.clone(),
            message: turn.message.clone(),
            parent: parent.unwrap_or_else(|| turn.message.clone()),
            agent: "build".into(),
            model: chosen,
            epoch: 1,
            step: 1,
            notice: notice.map(str::to_owned),
        }
        .into(),
    );
    events.push(
        AttemptStarted {
            attempt: turn.attempt.clone(),
            turn: turn.turn.clone(),
            ordinal: 1,
            body_hash: hash_hex(&turn.body),
            wire_version: llm_protocol::Protocol::OpenAiChat.wire_version(),
            epoch: 1,
            through,
            components: ComponentList::Inline(names),
            pricing: None,
        }
        .into(),
    );
    let append = Append {
        events: &events,
        promoted: i32::try_from(inputs.len())?,
        progress: false,
        end: DrainEnd::Keep,
        components: &stored,
    };
    let last = Seq(tx.head().next_seq.0 + i64::try_from(events.len())? - 1);
    tx.commit(&mut mint, now, append).await?;
    hint(world, at, last);
    Ok(turn)
}

/// Starts the waiting compaction, and ends it with this outcome.
pub(crate) async fn compact(
    world: &World,
    at: &SessionRef,
    outcome: SideOutcome,
    error: Option<SessionError>,
) -> Result<()> {
    let now = SystemClock::new().now_ms();
    world.store.raise_fence(at.location_ref(), FencingToken(1)).await?;
    let token = FencingToken(1);
    let Started::Ready(tx, _, known) =
        world.store.start_drain(at.clone(), token, store::KnownLog::NOTHING, Hold::Lock).await?
    else {
        bail!("the session has no work");
    };
    let mut history = History::new();
    history.extend(&known);
    let [control] = history.controls() else { bail!("one compaction waits") };
    let input = control.message.clone();
    let mut mint = tx.mint(now);
    let (turn, message) = (TurnId::mint(&mut mint), MessageId::mint(&mut mint));
    let completed = outcome == SideOutcome::Completed;
    let mut events: Vec<SessionEvent> = vec![
        ControlDelivered { message: input.clone(), error: None }.into(),
        CompactionStarted {
            turn: turn.clone(),
            message: message.clone(),
            reason: CompactionReason::Manual,
            input: Some(input),
            continuing: false,
            agent: "build".into(),
            model: model(),
            epoch: 1,
            prompt: "Sum up.".into(),
            keep_from: Seq(1),
            cause: None,
            scope: domain::SummaryScope::default(),
        }
        .into(),
        CompactionEnded {
            turn,
            message,
            outcome,
            checkpoint: completed.then(|| "They talked.".to_owned()),
            usage: TurnUsage::default(),
            error,
        }
        .into(),
    ];
    if completed {
        let (baseline, snapshot) = ("You are in a test.".into(), "{}".into());
        events.push(EpochStarted { epoch: 2, baseline, snapshot, reason: None }.into());
    }
    events.push(DrainEnded { outcome: DrainOutcome::Completed, error: None }.into());
    let last = Seq(tx.head().next_seq.0 + i64::try_from(events.len())? - 1);
    let (progress, end) = (true, DrainEnd::Close);
    let append = Append { events: &events, promoted: 1, progress, end, components: &[] };
    tx.commit(&mut mint, now, append).await?;
    hint(world, at, last);
    Ok(())
}

/// Handles the waiting control: writes its delivery, then the events of `make`, and ends the drain.
pub(crate) async fn deliver(
    world: &World,
    at: &SessionRef,
    make: impl FnOnce(&PendingControl, &History) -> Vec<SessionEvent>,
) -> Result<()> {
    let now = SystemClock::new().now_ms();
    world.store.raise_fence(at.location_ref(), FencingToken(1)).await?;
    let token = FencingToken(1);
    let Started::Ready(tx, _, known) =
        world.store.start_drain(at.clone(), token, store::KnownLog::NOTHING, Hold::Lock).await?
    else {
        bail!("the session has no work");
    };
    let mut history = History::new();
    history.extend(&known);
    let [control] = history.controls() else { bail!("one control waits") };
    let mut events = make(control, &history);
    let moves = events.iter().any(|event| matches!(event, SessionEvent::SessionMoved(_)));
    events.push(DrainEnded { outcome: DrainOutcome::Completed, error: None }.into());
    let mut mint = tx.mint(now);
    let last = Seq(tx.head().next_seq.0 + i64::try_from(events.len())? - 1);
    let end = if moves { DrainEnd::Moved } else { DrainEnd::Close };
    let append = Append { events: &events, promoted: 1, progress: true, end, components: &[] };
    tx.commit(&mut mint, now, append).await?;
    hint(world, at, last);
    Ok(())
}

/// Waits until the session's inbox has a control.
pub(crate) async fn asked(world: &World, at: &SessionRef) -> Result<()> {
    let look = async {
        loop {
            let inbox = world.store.inbox(at.org, at.session.clone(), Seq(0), 10).await?.items;
            if inbox.iter().any(|row| matches!(row.item, store::InboxItem::Control(_))) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), look).await?
}

impl Turn {
    /// Returns how many bytes of live text were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends live text as a hint.
    pub(crate) fn say(&mut self, world: &World, text: &str) {
        self.say_on(&*world.signals, text);
    }

    /// Sends live text through the given signals.
    pub(crate) fn say_on(&mut self, signals: &dyn Signals, text: &str) {
        let delta = Delta {
            message: self.message.clone(),
            part: self.part.clone(),
            kind: DeltaKind::Text,
            offset: self.sent,
            text: text.into(),
        };
        self.sent += text.len() as u64;
        let topic = Topic::Session(self.at.org, self.at.session.clone());
        signals.publish(&topic, Hint::Session(SessionHint::Delta(delta)));
    }

    async fn commit(&self, world: &World, events: &[SessionEvent], end: DrainEnd) -> Result<()> {
        let now = SystemClock::new().now_ms();
        let (tx, _) =
            world.store.resume_drain(self.at.clone(), self.claim, store::KnownLog::NOTHING).await?;
        let mut mint = tx.mint(now);
        let last = Seq(tx.head().next_seq.0 + i64::try_from(events.len())? - 1);
        let append = Append { events, promoted: 0, progress: true, end, components: &[] };
        tx.commit(&mut mint, now, append).await?;
        hint(world, &self.at, last);
        Ok(())
    }

    /// Commits a call that waits for leave to run `command`, and lets the session sleep. Returns the ask's id.
    pub(crate) async fn ask(&self, world: &World, command: &str) -> Result<AskId> {
        let now = SystemClock::new().now_ms();
        let (tx, _) =
            world.store.resume_drain(self.at.clone(), self.claim, store::KnownLog::NOTHING).await?;
        let mut mint = tx.mint(now);
        let ask = AskId::Permission(PermissionId::mint(&mut mint));
        let intent = ToolIntent {
            call: CallId::mint(&mut mint),
            part: PartId::mint(&mut mint),
            provider_call: "call_0".into(),
            tool: "shell".into(),
            arguments: serde_json::json!({ "command": command }).to_string(),
            metadata: None,
        };
        let call = intent.call.clone();
        let events: [SessionEvent; 2] = [
            ToolCalled {
                turn: self.turn.clone(),
                message: self.message.clone(),
                intent,
                class: ToolClass::Unsafe,
                state: ToolState::Asked,
            }
            .into(),
            ToolAsked {
                turn: self.turn.clone(),
                call,
                ask: ask.clone(),
                about: Ask::Permission {
                    action: "shell".into(),
                    resources: vec![command.into()],
                    save: vec!["git push *".into()],
                },
                expires: now + 1_000_000,
            }
            .into(),
        ];
        let last = Seq(tx.head().next_seq.0 + 1);
        let (events, end) = (&events, DrainEnd::Wait);
        let append = Append { events, promoted: 0, progress: false, end, components: &[] };
        tx.commit(&mut mint, now, append).await?;
        hint(world, &self.at, last);
        Ok(ask)
    }

    /// Commits one event.
    pub(crate) async fn write(&self, world: &World, event: impl Into<SessionEvent>) -> Result<()> {
        self.commit(world, &[event.into()], DrainEnd::Keep).await
    }

    /// Calls a tool and settles the call.
    pub(crate) async fn tool(&self, world: &World) -> Result<CallId> {
        let now = SystemClock::new().now_ms();
        let mut mint = domain::IdMint::after(domain::Stamp::default(), now);
        let call = CallId::mint(&mut mint);
        let called = ToolCalled {
            turn: self.turn.clone(),
            message: self.message.clone(),
            intent: ToolIntent {
                call: call.clone(),
                part: PartId::mint(&mut mint),
                provider_call: "call_0".into(),
                tool: "read".into(),
                arguments: r#"{"path":"a.txt"}"#.into(),
                metadata: None,
            },
            class: ToolClass::Pure,
            state: ToolState::Started,
        };
        self.write(world, called).await?;
        let settled = ToolSettled {
            turn: self.turn.clone(),
            call: call.clone(),
            outcome: ToolOutcomeKind::Completed,
            output: "hello".into(),
            title: "a.txt".into(),
            structured: None,
            managed_path: None,
            truncated: false,
            started: now,
            ended: now,
        };
        self.write(world, settled).await?;
        Ok(call)
    }

    /// Ends the turn and the drain with this text.
    pub(crate) async fn finish(
        self,
        world: &World,
        text: &str,
        call: Option<CallId>,
    ) -> Result<()> {
        let mut parts: Vec<ReplyPart> =
            call.into_iter().map(|call| ReplyPart::ToolCall { call }).collect();
        parts.push(ReplyPart::text(self.part.clone(), text));
        self.reply(world, parts).await
    }

    /// Ends the turn without a reply, and the drain with it.
    pub(crate) async fn stop(
        self,
        world: &World,
        outcome: DrainOutcome,
        error: Option<SessionError>,
        end: DrainEnd,
    ) -> Result<()> {
        let (turn, message) = (self.turn.clone(), self.message.clone());
        let (attempt, usage) = (self.attempt.clone(), TurnUsage::default());
        let (of_attempt, of_turn) = match outcome {
            DrainOutcome::Interrupted => (AttemptOutcome::Interrupted, TurnOutcome::Interrupted),
            DrainOutcome::Failed => (AttemptOutcome::Failed, TurnOutcome::Failed),
            DrainOutcome::Completed => (AttemptOutcome::Completed, TurnOutcome::Completed),
        };
        let events: Vec<SessionEvent> = vec![
            AttemptEnded {
                attempt,
                turn: turn.clone(),
                outcome: of_attempt,
                usage: None,
                error: error.clone(),
            }
            .into(),
            TurnSettled { turn, message, outcome: of_turn, usage, error: error.clone() }.into(),
            DrainEnded { outcome, error }.into(),
        ];
        self.commit(world, &events, end).await
    }

    /// Ends the turn and the drain with this reply.
    pub(crate) async fn reply(self, world: &World, parts: Vec<ReplyPart>) -> Result<()> {
        let usage = TurnUsage { input: 12, output: 3, ..TurnUsage::default() };
        let events: Vec<SessionEvent> = vec![
            AttemptEnded {
                attempt: self.attempt.clone(),
                turn: self.turn.clone(),
                outcome: AttemptOutcome::Completed,
                usage: Some(usage),
                error: None,
            }
            .into(),
            TurnReplied {
                turn: self.turn.clone(),
                message: self.message.clone(),
                parts,
                finish: Finish::Stop.into(),
            }
            .into(),
            TurnSettled {
                turn: self.turn.clone(),
                message: self.message.clone(),
                outcome: TurnOutcome::Completed,
                usage,
                error: None,
            }
            .into(),
            DrainEnded { outcome: DrainOutcome::Completed, error: None }.into(),
        ];
        self.commit(world, &events, DrainEnd::Close).await
    }
}
