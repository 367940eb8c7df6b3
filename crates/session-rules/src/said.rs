use std::borrow::Cow;

use domain::{CallId, IdMint, MessageId, PartId, ToolIntent, ToolSettled, TurnId};
use llm_protocol::{FinishReason, LlmEvent, RawJson, Usage};

use crate::reply::{Reply, storable};

/// The part of a turn that is not in rows yet. Its next write is built from this. It is lost with the worker.
#[derive(Debug)]
pub struct Said {
    /// The turn.
    pub turn: TurnId,
    /// The assistant message that it writes.
    pub message: MessageId,
    /// The reply of the current or last attempt.
    pub reply: Reply,
    /// Calls whose intent is not committed.
    pub unintended: Vec<ToolIntent>,
    /// Results that are not committed.
    pub done: Vec<ToolSettled>,
    /// The provider's reason to stop.
    pub finish: Option<FinishReason>,
    /// The provider's counts, if they can be true.
    pub usage: Option<Usage>,
    /// The provider's counts cannot be true: what the answer cost is not known.
    pub is_miscounted: bool,
    /// The provider's name of the open text or reasoning part, and ours.
    part: Option<(String, PartId)>,
}

/// The meaning of a stream's event.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Text of the reply.
    Text(PartId, String),
    /// Reasoning that the model shows.
    Reasoning(PartId, String),
    /// A call is complete: its intent can be committed.
    Call,
    /// Nothing that anybody waits for.
    Nothing,
}

impl Said {
    /// Returns a turn without output.
    #[must_use]
    pub fn new(turn: TurnId, message: MessageId) -> Self {
        Self {
            turn,
            message,
            reply: Reply::default(),
            unintended: Vec::new(),
            done: Vec::new(),
            finish: None,
            usage: None,
            is_miscounted: false,
            part: None,
        }
    }

    /// Applies one event of the stream. `mint` makes the ids of new parts.
    pub fn take(&mut self, event: LlmEvent, mint: &mut IdMint) -> Heard {
        match event {
            LlmEvent::TextStart { id } | LlmEvent::ReasoningStart { id } => {
                self.part = Some((id, PartId::mint(mint)));
                Heard::Nothing
            }
            LlmEvent::TextDelta { id, text } => {
                let part = self.part(id, mint);
                let text = stored(text);
                self.reply.text(&part, &text);
                Heard::Text(part, text)
            }
            LlmEvent::ReasoningDelta { id, text } => {
                let part = self.part(id, mint);
                let text = stored(text);
                self.reply.reasoning(&part, &text);
                Heard::Reasoning(part, text)
            }
            LlmEvent::TextEnd { id, provider_metadata } => {
                if let Some(state) = provider_metadata.filter(kept) {
                    let part = self.part(id, mint);
                    self.reply.end_text(&part, &state);
                }
                Heard::Nothing
            }
            LlmEvent::ReasoningEnd { id, provider_metadata } => {
                if let Some(state) = provider_metadata.filter(kept) {
                    let part = self.part(id, mint);
                    self.reply.end_reasoning(&part, &state);
                }
                Heard::Nothing
            }
            LlmEvent::ToolCall(call) if call.provider_executed && !mutated!(HostedToolRun) => {
                self.reply.hosted_call(PartId::mint(mint), PartId::mint(mint), &call);
                Heard::Nothing
            }
            LlmEvent::ToolResult(result) => {
                self.reply.hosted_result(&result);
                Heard::Nothing
            }
            LlmEvent::ToolCall(call) => {
                let intent = ToolIntent {
                    call: CallId::mint(mint),
                    part: PartId::mint(mint),
                    provider_call: stored(call.id),
                    tool: stored(call.name),
                    arguments: stored(call.arguments),
                    metadata: call
                        .provider_metadata
                        .filter(kept)
                        .map(|state| state.get().to_owned()),
                };
                self.reply.call(intent.call.clone());
                self.unintended.push(intent);
                Heard::Call
            }
            LlmEvent::StepFinish { reason, usage } | LlmEvent::Finish { reason, usage } => {
                self.finish = Some(reason);
                let counted = usage.filter(Usage::is_plausible);
                self.is_miscounted |= usage.is_some() && counted.is_none();
                self.usage = counted.or(self.usage);
                Heard::Nothing
            }
            LlmEvent::ToolInputStart { .. }
            | LlmEvent::ToolInputDelta { .. }
            | LlmEvent::ToolInputEnd { .. } => Heard::Nothing,
        }
    }

    fn part(&mut self, id: String, mint: &mut IdMint) -> PartId {
        match &self.part {
            Some((open, part)) if *open == id => part.clone(),
            _ => {
                let part = PartId::mint(mint);
                self.part = Some((id, part.clone()));
                part
            }
        }
    }

    /// Returns whether anybody may have seen part of the reply. A call without a durable intent is not visible.
    #[must_use]
    pub fn is_visible(&self) -> bool {
        let seen = |call: &CallId| self.unintended.iter().all(|intent| intent.call != *call);
        self.reply.is_visible(seen)
    }

    /// Forgets the output of an attempt that showed nothing, before the next one. Returns its usage.
    pub fn forget_attempt(&mut self) -> Option<Usage> {
        self.reply = Reply::default();
        self.part = None;
        self.unintended.clear();
        self.finish = None;
        self.is_miscounted = false;
        self.usage.take()
    }
}

/// Returns whether to keep provider state.
fn kept(_: &RawJson) -> bool {
    !mutated!(StateForgotten)
}

/// Returns the text in a form that Postgres can store, almost always unchanged.
fn stored(text: String) -> String {
    let replaced = match storable(&text) {
        Cow::Owned(replaced) => Some(replaced),
        Cow::Borrowed(_) => None,
    };
    replaced.unwrap_or(text)
}
