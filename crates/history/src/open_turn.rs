use std::collections::BTreeMap;
use std::sync::Arc;

use domain::{
    Answer, Ask, AskId, AttemptId, AttemptOutcome, CallId, ComponentList, Finish, MessageId,
    PartId, Pricing, ReplyPart, SessionEvent, Stored, ToolClass, ToolIntent, ToolOutcomeKind,
    ToolSettled, ToolState, TurnId, TurnUsage,
};
use llm_protocol::{Message, Part, RawJson, TextPart, ToolCall, ToolContent, ToolResult};
use serde::Deserialize;

/// The tool whose paths lead to nested instructions.
const READ: &str = "read";

/// The part of a read's structured result that is needed here.
#[derive(Deserialize)]
struct ReadResult {
    path: String,
}

/// A Provider Turn that is not settled.
#[derive(Debug, Clone)]
pub struct OpenTurn {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// The agent selected at its start. Its calls keep that agent.
    pub agent: String,
    /// Its attempt that has not ended.
    pub attempt: Option<AttemptId>,
    /// The number of wire requests so far.
    pub attempts: i32,
    /// The prices of the last wire request.
    pub pricing: Option<Arc<Pricing>>,
    /// The components of the last wire request.
    pub components: Option<ComponentList>,
    /// The reply, once it is committed.
    pub reply: Option<Vec<ReplyPart>>,
    /// The finish reason of the reply.
    pub finish: Option<Stored<Finish>>,
    /// Text kept before the reply was complete, in the order of the first checkpoints.
    pub checkpoints: Vec<(PartId, String)>,
    /// Its calls, in the order of their intents.
    pub calls: Vec<(CallId, CallState)>,
    /// The usage of its ended attempts.
    pub usage: TurnUsage,
    /// The usage of its whole reply.
    pub replied: Option<TurnUsage>,
}

/// A tool call of an open turn.
#[derive(Debug, Clone)]
pub struct CallState {
    /// The model's request.
    pub intent: ToolIntent,
    /// The actions that a takeover may take with it.
    pub class: ToolClass,
    /// Its progress.
    pub state: ToolState,
    /// The number of bodies begun.
    pub bodies: i32,
    /// Its asks, whose answers its body waits for, in the order of asking.
    pub asks: Vec<AskState>,
    /// Its result.
    pub settled: Option<ToolSettled>,
}

/// An ask of a call.
#[derive(Debug, Clone)]
pub struct AskState {
    /// Its id.
    pub ask: AskId,
    /// The question.
    pub about: Ask,
    /// The answer, once there is one.
    pub answer: Option<Answer>,
}

/// How the asks of a call stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing<'a> {
    /// An answer is missing.
    Open,
    /// Each was answered with leave: its body may run.
    Leave,
    /// It may not run, and the model goes on with these words.
    Rejected(&'a str),
    /// It may not run, and nobody said anything to the model.
    Declined(&'a Answer),
    /// The answers of questions, which are its result.
    Answered(&'a [Vec<String>]),
}

impl CallState {
    /// Returns how its asks stand; `None` if it does not wait for any.
    #[must_use]
    pub fn standing(&self) -> Option<Standing<'_>> {
        if self.state != ToolState::Asked {
            return None;
        }
        let mut standing = Standing::Leave;
        for ask in &self.asks {
            match &ask.answer {
                Some(Answer::Reject { message: Some(words) }) => {
                    return Some(Standing::Rejected(words));
                }
                Some(
                    answer @ (Answer::Reject { message: None }
                    | Answer::Dismissed
                    | Answer::Expired),
                ) => return Some(Standing::Declined(answer)),
                Some(Answer::Answers { answers }) if standing == Standing::Leave => {
                    standing = Standing::Answered(answers);
                }
                Some(
                    Answer::Once | Answer::Always { .. } | Answer::Granted | Answer::Answers { .. },
                ) => {}
                None => standing = Standing::Open,
            }
        }
        Some(standing)
    }

    /// Returns whether it has begun and may change files.
    pub(crate) fn may_have_changed_files(&self) -> bool {
        self.class != ToolClass::Pure && self.bodies > 0
    }
}

impl OpenTurn {
    pub(crate) fn new(turn: TurnId, message: MessageId, agent: String) -> Self {
        Self {
            turn,
            message,
            agent,
            attempt: None,
            attempts: 0,
            pricing: None,
            components: None,
            reply: None,
            finish: None,
            checkpoints: Vec::new(),
            calls: Vec::new(),
            usage: TurnUsage::default(),
            replied: None,
        }
    }

    pub(crate) fn apply(&mut self, event: &SessionEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "called with a turn's events only")]
        match event {
            SessionEvent::AttemptStarted(started) => {
                self.attempt = Some(started.attempt.clone());
                self.attempts = started.ordinal;
                self.pricing = started.pricing.clone().map(Arc::new);
                self.components = Some(started.components.clone());
            }
            SessionEvent::AttemptEnded(ended) => {
                self.attempt = None;
                if let Some(used) = ended.usage {
                    self.usage = self.usage.plus(used);
                    if ended.outcome == AttemptOutcome::Completed {
                        self.replied = Some(used);
                    }
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
                    asks: Vec::new(),
                    settled: None,
                },
            )),
            SessionEvent::ToolAsked(asked) => {
                if let Some(call) = self.call_mut(&asked.call) {
                    let (ask, about) = (asked.ask.clone(), asked.about.clone());
                    call.asks.push(AskState { ask, about, answer: None });
                }
            }
            SessionEvent::ToolAnswered(answered) => {
                let call = self.call_mut(&answered.call);
                let mut asks = call.into_iter().flat_map(|call| &mut call.asks);
                if let Some(ask) = asks.find(|ask| ask.ask == answered.ask) {
                    ask.answer = Some(answered.answer.clone());
                }
            }
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

    /// Returns whether a call that may change files has begun and has no result yet.
    pub(crate) fn is_changing_files(&self) -> bool {
        let is_at_it = |call: &CallState| call.settled.is_none() && call.may_have_changed_files();
        self.calls.iter().any(|(_, call)| is_at_it(call))
    }

    /// Returns a call by its id.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&CallState> {
        self.calls.iter().find(|(call, _)| call == id).map(|(_, state)| state)
    }

    fn call_mut(&mut self, id: &CallId) -> Option<&mut CallState> {
        self.calls.iter_mut().find(|(call, _)| call == id).map(|(_, state)| state)
    }

    /// Returns the paths of files that its calls have read.
    pub(crate) fn read_paths(&self) -> Vec<String> {
        let read = self.calls.iter().filter(|(_, call)| call.intent.tool == READ);
        read.filter_map(|(_, call)| call.settled.as_ref())
            .filter(|settled| settled.outcome == ToolOutcomeKind::Completed)
            .filter_map(|settled| {
                let result: ReadResult =
                    serde_json::from_str(settled.structured.as_deref()?).ok()?;
                Some(result.path)
            })
            .collect()
    }

    /// Returns whether every call has its result.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.calls.iter().all(|(_, call)| call.settled.is_some())
    }

    /// Returns the reply, then the results of its calls in the order of the reply.
    pub(crate) fn into_messages(self) -> Vec<Message> {
        let Some(reply) = self.reply else { return Vec::new() };
        let calls: BTreeMap<CallId, CallState> = self.calls.into_iter().collect();
        let mut said = Vec::new();
        let mut results = Vec::new();
        for part in reply {
            match part {
                ReplyPart::Text { text, metadata: None, .. } if text.is_empty() => {}
                ReplyPart::Text { text, metadata, .. } => {
                    said.push(Part::Text(TextPart { text, provider_metadata: kept(metadata) }));
                }
                ReplyPart::Reasoning { text, metadata, .. } => {
                    let provider_metadata = kept(metadata);
                    said.push(Part::Reasoning(TextPart { text, provider_metadata }));
                }
                ReplyPart::HostedCall { call, name, input, metadata, .. } => {
                    said.push(Part::ToolCall(ToolCall {
                        provider_executed: true,
                        provider_metadata: kept(metadata),
                        ..ToolCall::new(call, name, input)
                    }));
                }
                ReplyPart::HostedResult { call, name, output, is_error, metadata, .. } => {
                    said.push(Part::ToolResult(ToolResult {
                        is_error,
                        provider_metadata: kept(metadata),
                        ..ToolResult::text(call, name, output)
                    }));
                }
                ReplyPart::ToolCall { call } => {
                    let Some(state) = calls.get(&call) else { continue };
                    let intent = &state.intent;
                    said.push(Part::ToolCall(ToolCall {
                        provider_metadata: kept(intent.metadata.clone()),
                        ..ToolCall::new(
                            intent.provider_call.clone(),
                            intent.tool.clone(),
                            intent.arguments.clone(),
                        )
                    }));
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

/// Parses the stored state that a provider wants to receive again.
fn kept(metadata: Option<String>) -> Option<RawJson> {
    metadata.and_then(|text| RawJson::parse(text).ok())
}
