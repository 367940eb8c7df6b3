use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{
    AttemptId, CallId, InterruptTarget, MessageId, ModelRef, PartId, PromptAdmitted, RecordedEvent,
    ReplyPart, Seq, SessionEvent, TimestampMs, ToolClass, ToolIntent, ToolOutcomeKind, ToolSettled,
    ToolState, TurnId, TurnUsage,
};
use llm_protocol::{
    LlmRequest, Message, Part, SystemPart, TextPart, ToolCall, ToolContent, ToolResult,
};

use crate::Components;

/// What the events of a session up to some point mean for its next request. Folding an event twice is a
/// bug of the caller; folding them in pieces gives the same as at once.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Only grows.
    messages: Vec<Message>,
    state: State,
}

/// All but the conversation: little, and cheap to copy.
#[derive(Debug, Clone, Default)]
struct State {
    seq: Seq,
    pending: Vec<PendingInput>,
    epoch: Option<EpochState>,
    open: Option<OpenTurn>,
    model: Option<ModelRef>,
    agent: String,
    last_prompt: Option<MessageId>,
    steps: i32,
    interrupt: Option<Seq>,
}

/// A [`History`] as it was at some point, to go back to.
#[derive(Debug)]
pub struct Mark {
    messages: usize,
    state: State,
}

/// An admitted input that is not promoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingInput {
    /// Its place in the log.
    pub seq: Seq,
    /// When it was admitted.
    pub admitted: TimestampMs,
    /// What was admitted.
    pub prompt: Arc<PromptAdmitted>,
}

/// The active Context Epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochState {
    /// 1 for the first.
    pub number: i32,
    /// The Baseline System Context, exactly as sent.
    pub baseline: String,
    /// The Context Snapshot as JSON text.
    pub snapshot: String,
}

/// A Provider Turn that is not settled.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// Its attempt that has not ended.
    pub attempt: Option<AttemptId>,
    /// Wire requests so far.
    pub attempts: i32,
    /// The reply, once it is committed.
    pub reply: Option<Vec<ReplyPart>>,
    /// The finish reason of the reply.
    pub finish: Option<String>,
    /// Text kept before the reply was complete, in the order of its first checkpoint.
    pub checkpoints: Vec<(PartId, String)>,
    /// Its calls, in the order of their intents.
    pub calls: Vec<(CallId, CallState)>,
    /// What its ended attempts used.
    pub usage: TurnUsage,
}

/// A tool call of an open turn.
#[derive(Debug, Clone)]
pub struct CallState {
    /// What the model asked for.
    pub intent: ToolIntent,
    /// What a takeover may do with it.
    pub class: ToolClass,
    /// How far it has come.
    pub state: ToolState,
    /// Bodies begun.
    pub bodies: i32,
    /// Its result.
    pub settled: Option<ToolSettled>,
}

impl History {
    /// The fold of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Folds events, in order.
    pub fn extend<'a>(&mut self, events: impl IntoIterator<Item = &'a RecordedEvent>) {
        for recorded in events {
            self.apply(recorded.seq, recorded.time, &recorded.event);
        }
    }

    /// Where the fold is now. Events that are drafted and never written are folded and taken back by it.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { messages: self.messages.len(), state: self.state.clone() }
    }

    /// Unfolds everything since `mark`, which must be an earlier point of this very fold.
    pub fn back_to(&mut self, mark: Mark) {
        debug_assert!(mark.state.seq <= self.state.seq, "a mark is of the past");
        self.messages.truncate(mark.messages);
        self.state = mark.state;
    }

    /// Inputs that are admitted and not promoted, in the order of their admission.
    #[must_use]
    pub fn pending(&self) -> &[PendingInput] {
        &self.state.pending
    }

    /// The last event folded.
    #[must_use]
    pub fn seq(&self) -> Seq {
        self.state.seq
    }

    /// The active Context Epoch; `None` before the first.
    #[must_use]
    pub fn epoch(&self) -> Option<&EpochState> {
        self.state.epoch.as_ref()
    }

    /// The turn that is not settled.
    #[must_use]
    pub fn open_turn(&self) -> Option<&OpenTurn> {
        self.state.open.as_ref()
    }

    /// The agent chosen last.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.state.agent
    }

    /// The model chosen last, if any was.
    #[must_use]
    pub fn model(&self) -> Option<&ModelRef> {
        self.state.model.as_ref()
    }

    /// The user message promoted last.
    #[must_use]
    pub fn last_prompt(&self) -> Option<&MessageId> {
        self.state.last_prompt.as_ref()
    }

    /// Turns since the last batch of promoted inputs.
    #[must_use]
    pub fn steps(&self) -> i32 {
        self.state.steps
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Whether the model has yet to answer: its last word was a call, or it never spoke since a prompt.
    #[must_use]
    pub fn wants_turn(&self) -> bool {
        self.messages.last().is_some_and(|message| message.role != llm_protocol::Role::Assistant)
    }

    /// The body of a request for what has been folded. Takes the conversation out and puts it back
    /// rather than copying it: a session may hold a thousand messages.
    #[must_use]
    pub fn encode(&mut self, components: &Components) -> Vec<u8> {
        let mut request =
            LlmRequest::new(components.model.id.clone(), std::mem::take(&mut self.messages));
        request.system.push(SystemPart::text(components.agent.clone()));
        if let Some(epoch) = &self.state.epoch {
            request.system.push(SystemPart::text(epoch.baseline.clone()));
        }
        request.tools.clone_from(&components.tools);
        request.tool_choice.clone_from(&components.tool_choice);
        request.generation.clone_from(&components.generation);
        request.provider_options.clone_from(&components.options);
        let body = components.model.protocol.encode(&request);
        self.messages = request.messages;
        body
    }

    /// An interrupt of the drain that has not ended, by its place in the log.
    #[must_use]
    pub fn interrupt(&self) -> Option<Seq> {
        self.state.interrupt
    }

    /// Folds the event that is at `seq` since `time`, or will be once the caller's transaction commits.
    pub fn apply(&mut self, seq: Seq, time: TimestampMs, event: &SessionEvent) {
        debug_assert_eq!(seq.0, self.state.seq.0 + 1, "the log has no holes");
        self.state.seq = seq;
        match event {
            SessionEvent::SessionCreated(created) => {
                self.state.agent.clone_from(&created.agent);
                self.state.model.clone_from(&created.model);
            }
            SessionEvent::PromptPromoted(promoted) => {
                self.state.pending.retain(|input| input.prompt.message != promoted.message);
                let texts = promoted.parts.iter().map(|part| {
                    let domain::PromptPart::Text { text, .. } = part;
                    Part::text(text.clone())
                });
                self.messages
                    .push(Message { role: llm_protocol::Role::User, content: texts.collect() });
                self.state.agent.clone_from(&promoted.agent);
                self.state.model = Some(promoted.model.clone());
                self.state.last_prompt = Some(promoted.message.clone());
                self.state.steps = 0;
            }
            SessionEvent::EpochStarted(epoch) => {
                self.state.epoch = Some(EpochState {
                    number: epoch.epoch,
                    baseline: epoch.baseline.clone(),
                    snapshot: epoch.snapshot.clone(),
                });
            }
            SessionEvent::ContextUpdated(update) => {
                self.messages.push(Message::system(update.rendered.clone()));
                if let Some(epoch) = &mut self.state.epoch {
                    epoch.snapshot.clone_from(&update.snapshot);
                }
            }
            SessionEvent::TurnStarted(started) => {
                self.state.steps = started.step;
                self.state.open = Some(OpenTurn {
                    turn: started.turn.clone(),
                    message: started.message.clone(),
                    attempt: None,
                    attempts: 0,
                    reply: None,
                    finish: None,
                    checkpoints: Vec::new(),
                    calls: Vec::new(),
                    usage: TurnUsage::default(),
                });
            }
            SessionEvent::NoticeRecorded(notice) => {
                self.messages.push(Message::user(notice.text.clone()));
            }
            SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::ToolCalled(_)
            | SessionEvent::ToolStarted(_)
            | SessionEvent::ToolSettled(_)
            | SessionEvent::TurnReplied(_) => {
                if let Some(open) = &mut self.state.open {
                    open.apply(event);
                }
            }
            SessionEvent::TurnSettled(_) => {
                if let Some(open) = self.state.open.take() {
                    self.messages.extend(open.into_messages());
                }
            }
            SessionEvent::InterruptRequested(requested) => match requested.target {
                InterruptTarget::Turn { .. } | InterruptTarget::Drain => {
                    self.state.interrupt = Some(seq)
                }
                InterruptTarget::Parked => {}
            },
            SessionEvent::DrainEnded(_) => self.state.interrupt = None,
            SessionEvent::PromptAdmitted(prompt) => self.state.pending.push(PendingInput {
                seq,
                admitted: time,
                prompt: Arc::new(prompt.clone()),
            }),
            SessionEvent::RetryScheduled(_) => {}
        }
    }
}

impl OpenTurn {
    fn apply(&mut self, event: &SessionEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "called with a turn's events only")]
        match event {
            SessionEvent::AttemptStarted(started) => {
                self.attempt = Some(started.attempt.clone());
                self.attempts = started.ordinal;
            }
            SessionEvent::AttemptEnded(ended) => {
                self.attempt = None;
                if let Some(used) = ended.usage {
                    self.usage = add(self.usage, used);
                }
            }
            SessionEvent::TextCheckpointed(checkpoint) => {
                match self.checkpoints.iter_mut().find(|(part, _)| *part == checkpoint.part) {
                    Some((_, text)) => text.push_str(&checkpoint.text),
                    None => {
                        self.checkpoints.push((checkpoint.part.clone(), checkpoint.text.clone()));
                    }
                }
            }
            SessionEvent::ToolCalled(called) => self.calls.push((
                called.intent.call.clone(),
                CallState {
                    intent: called.intent.clone(),
                    class: called.class,
                    state: called.state,
                    bodies: i32::from(called.state == ToolState::Started),
                    settled: None,
                },
            )),
            SessionEvent::ToolStarted(started) => {
                if let Some(call) = self.call_mut(&started.call) {
                    call.state = ToolState::Started;
                    call.bodies = started.body;
                }
            }
            SessionEvent::ToolSettled(settled) => {
                if let Some(call) = self.call_mut(&settled.call) {
                    call.state = ToolState::Settled;
                    call.settled = Some(settled.clone());
                }
            }
            SessionEvent::TurnReplied(replied) => {
                self.reply = Some(replied.parts.clone());
                self.finish = Some(replied.finish.clone());
            }
            _ => {}
        }
    }

    /// A call by its id.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&CallState> {
        self.calls.iter().find(|(call, _)| call == id).map(|(_, state)| state)
    }

    fn call_mut(&mut self, id: &CallId) -> Option<&mut CallState> {
        self.calls.iter_mut().find(|(call, _)| call == id).map(|(_, state)| state)
    }

    /// Whether every call has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.calls.iter().all(|(_, call)| call.settled.is_some())
    }

    /// The reply, then the results of its calls in the order of the reply.
    fn into_messages(self) -> Vec<Message> {
        let Some(reply) = self.reply else { return Vec::new() };
        let calls: BTreeMap<CallId, CallState> = self.calls.into_iter().collect();
        let mut said = Vec::new();
        let mut results = Vec::new();
        for part in reply {
            match part {
                ReplyPart::Text { text, .. } if text.is_empty() => {}
                ReplyPart::Text { text, .. } => said.push(Part::text(text)),
                ReplyPart::Reasoning { text, .. } => {
                    said.push(Part::Reasoning(TextPart { text, provider_metadata: None }));
                }
                ReplyPart::ToolCall { call } => {
                    let Some(state) = calls.get(&call) else { continue };
                    let intent = &state.intent;
                    said.push(Part::ToolCall(ToolCall::new(
                        intent.provider_call.clone(),
                        intent.tool.clone(),
                        intent.arguments.clone(),
                    )));
                    let Some(settled) = &state.settled else { continue };
                    results.push(ToolResult {
                        id: intent.provider_call.clone(),
                        name: intent.tool.clone(),
                        content: vec![ToolContent::Text { text: settled.output.clone() }],
                        is_error: settled.outcome != ToolOutcomeKind::Completed,
                        provider_metadata: None,
                    });
                }
            }
        }
        let mut messages = Vec::new();
        if !said.is_empty() {
            messages.push(Message::assistant(said));
        }
        if !results.is_empty() {
            messages.push(Message::tool(results));
        }
        messages
    }
}

fn add(a: TurnUsage, b: TurnUsage) -> TurnUsage {
    TurnUsage {
        input: a.input + b.input,
        output: a.output + b.output,
        reasoning: a.reasoning + b.reasoning,
        cache_read: a.cache_read + b.cache_read,
        cache_write: a.cache_write + b.cache_write,
    }
}
