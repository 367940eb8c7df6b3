//! Data payloads in, neutral events out. Does no I/O and reads no clock.

use serde_json::Value;

use crate::classify::{classify_in_stream, stated_error};
use crate::decode_error::DecodeError;
use crate::error::truncate;
use crate::event::{FinishReason, LlmEvent, Usage};
use crate::json::RawJson;
use crate::openai_chat::details::Details;
use crate::openai_chat::frame::{Choice, Content, Frame, Piece, ToolCallDelta, is_failure};
use crate::openai_chat::think_tags::{TextSpan, ThinkTags};
use crate::openai_chat::tool_calls::ToolCalls;
use crate::state::StateOwner;
use crate::surrogates::Halves;

/// Turns the frames of one answer into events.
///
/// It ignores JSON objects without any known field. A tool call is announced when it is complete, while the
/// rest of the answer still streams; [`Decoder::finish`] ends the answer.
#[derive(Debug)]
pub struct Decoder {
    owner: StateOwner,
    halves: Halves,
    tags: ThinkTags,
    details: Details,
    /// Copilot's opaque reasoning state, sent once per answer.
    opaque: Option<RawJson>,
    open: Option<OpenPart>,
    parts: usize,
    calls: ToolCalls,
    refused: bool,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    done: bool,
}

#[derive(Debug)]
struct OpenPart {
    kind: PartKind,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Text,
    Reasoning,
}

impl Decoder {
    /// Makes a decoder for one answer. `owner` owns its provider state.
    #[must_use]
    pub fn new(owner: StateOwner) -> Self {
        Self {
            owner,
            halves: Halves::default(),
            tags: ThinkTags::default(),
            details: Details::default(),
            opaque: None,
            open: None,
            parts: 0,
            calls: ToolCalls::default(),
            refused: false,
            reason: None,
            usage: None,
            done: false,
        }
    }

    /// Takes the data payload of one server-sent event.
    ///
    /// # Errors
    /// The provider reports an error, the frame is not JSON of this protocol, or a bound is exceeded.
    pub fn push(&mut self, data: &str) -> Result<Vec<LlmEvent>, DecodeError> {
        let data = data.trim();
        if self.done || data.is_empty() {
            return Ok(Vec::new());
        }
        let mut events = Vec::new();
        if data == "[DONE]" {
            self.done = true;
            self.close_parts(&mut events);
            return Ok(events);
        }
        let mut mended = None;
        let (mut frame, data) = self.halves.read(data, &mut mended, parse, |_| false)?;
        let usage = frame.take_usage();
        if let Some(error) = frame.error.filter(is_failure) {
            return Err(classify_in_stream(&error).into());
        }
        if frame.object.as_deref() == Some("error") {
            return Err(classify_in_stream(&serde_json::from_str(data).unwrap_or_default()).into());
        }
        let is_counted = usage.is_some();
        if let Some(usage) = usage {
            self.count(usage.into_usage());
        }
        // We ask for one choice. A server that sends more numbers them.
        let choices = frame.choices.unwrap_or_default();
        if choices.is_empty() && !is_counted {
            let json: Value = serde_json::from_str(data).unwrap_or_default();
            if let Some(error) = stated_error(&json).filter(|error| is_failure(error)) {
                return Err(classify_in_stream(error).into());
            }
        }
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            self.push_choice(choice, &mut events)?;
        }
        Ok(events)
    }

    /// Returns whether the stream has announced its end. Later frames are ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns whether the model has stopped: only counts may still come.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.done || self.reason.is_some()
    }

    /// Ends the stream: closes open parts and returns `StepFinish` and `Finish`. A server may leave out
    /// `[DONE]` after its finish reason, or the reason before `[DONE]` (then it is unknown).
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the stream had neither.
    pub fn finish(mut self) -> Result<Vec<LlmEvent>, DecodeError> {
        if !self.done && self.reason.is_none() {
            return Err(DecodeError::Truncated);
        }
        let mut events = Vec::new();
        self.close_parts(&mut events);
        let (reason, usage) = (self.final_reason(), self.usage);
        events.push(LlmEvent::StepFinish { reason, usage });
        events.push(LlmEvent::Finish { reason, usage });
        Ok(events)
    }

    /// Keeps the last usage, because some servers report as they go. Cloudflare's Workers AI sends zeros
    /// last; those do not count.
    fn count(&mut self, usage: Usage) {
        if self.usage.is_none() || usage != Usage::default() {
            self.usage = Some(usage);
        }
    }

    fn push_choice(
        &mut self,
        choice: Choice,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if let Some(error) = choice.error.filter(is_failure) {
            return Err(classify_in_stream(&error).into());
        }
        // A whole message after pieces only repeats them.
        let begun = self.parts > 0 || self.calls.any();
        let whole = choice.message.filter(|_| !begun);
        let mut delta = choice.delta.or(whole).unwrap_or_default();
        if let Some(details) = delta.reasoning_details.take() {
            self.details.push(details)?;
        }
        if let Some(opaque) = delta.reasoning_opaque.take().filter(|opaque| *opaque != "") {
            self.opaque = Some(RawJson::from(&opaque));
        }
        if let Some(text) = delta.take_reasoning() {
            self.extend_part(PartKind::Reasoning, text, events);
        }
        match delta.content {
            None => {}
            Some(Content::Text(text)) => {
                for span in self.tags.split_piece(text) {
                    self.extend_span(span, events);
                }
            }
            Some(Content::Pieces(pieces)) => {
                for Piece { text, thinking } in pieces {
                    let thought = thinking.map(Content::into_text).unwrap_or_default();
                    self.extend_part(PartKind::Reasoning, thought, events);
                    self.extend_part(PartKind::Text, text.unwrap_or_default(), events);
                }
            }
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = true;
            self.release_held(events);
            self.extend_part(PartKind::Text, text, events);
        }
        let only = delta.function_call.map(ToolCallDelta::only);
        for call in delta.tool_calls.unwrap_or_default().into_iter().chain(only) {
            self.release_held(events);
            self.close_part(events);
            self.calls.push(call, events)?;
        }
        if let Some(reason) = choice.finish_reason.or(choice.camel_reason) {
            self.reason = Some(reason);
            self.close_parts(events);
        }
        Ok(())
    }

    fn extend_span(&mut self, span: TextSpan, events: &mut Vec<LlmEvent>) {
        match span {
            TextSpan::Thought(text) => self.extend_part(PartKind::Reasoning, text, events),
            TextSpan::Answer(text) => self.extend_part(PartKind::Text, text, events),
        }
    }

    /// Writes the text that was held because it might have become a tag.
    fn release_held(&mut self, events: &mut Vec<LlmEvent>) {
        if let Some(span) = self.tags.take_held() {
            self.extend_span(span, events);
        }
    }

    fn extend_part(&mut self, kind: PartKind, text: String, events: &mut Vec<LlmEvent>) {
        if text.is_empty() {
            return; // the first and last frames carry empty text, which begins no part
        }
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.close_part(events);
        }
        let id = match &self.open {
            Some(open) => open.id.clone(),
            None => self.open_part(kind, events),
        };
        events.push(match kind {
            PartKind::Text => LlmEvent::TextDelta { id, text },
            PartKind::Reasoning => LlmEvent::ReasoningDelta { id, text },
        });
    }

    fn open_part(&mut self, kind: PartKind, events: &mut Vec<LlmEvent>) -> String {
        let at = self.parts;
        self.parts += 1;
        let id = match kind {
            PartKind::Text => format!("text-{at}"),
            PartKind::Reasoning => format!("reasoning-{at}"),
        };
        self.open = Some(OpenPart { kind, id: id.clone() });
        events.push(match kind {
            PartKind::Text => LlmEvent::TextStart { id: id.clone() },
            PartKind::Reasoning => LlmEvent::ReasoningStart { id: id.clone() },
        });
        id
    }

    fn close_part(&mut self, events: &mut Vec<LlmEvent>) {
        match self.open.take() {
            Some(OpenPart { kind: PartKind::Text, id }) => {
                events.push(LlmEvent::TextEnd { id, provider_metadata: None });
            }
            Some(OpenPart { kind: PartKind::Reasoning, id }) => {
                let provider_metadata = self.reasoning_state();
                events.push(LlmEvent::ReasoningEnd { id, provider_metadata });
            }
            None => {}
        }
    }

    fn close_parts(&mut self, events: &mut Vec<LlmEvent>) {
        self.release_held(events);
        self.close_part(events);
        self.calls.close_all(events);
        // Details without reasoning before them become a part of their own.
        if self.details.any() || self.opaque.is_some() {
            self.open_part(PartKind::Reasoning, events);
            self.close_part(events);
        }
    }

    fn reasoning_state(&mut self) -> Option<RawJson> {
        let members = [("details", self.details.take()), ("opaque", self.opaque.take())];
        let said = members.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?)));
        self.owner.write(&said.collect::<Vec<_>>())
    }

    /// Corrects the reason: OpenAI says `stop` after a forced call and after a refusal.
    fn final_reason(&self) -> FinishReason {
        let reason = self.reason.unwrap_or(FinishReason::Unknown);
        if reason != FinishReason::Stop {
            return reason;
        }
        if self.calls.any() {
            FinishReason::ToolCalls
        } else if self.refused {
            FinishReason::ContentFilter
        } else {
            FinishReason::Stop
        }
    }
}

/// Parses a frame. JSON that is not an object may be a heartbeat. Text that is not JSON, or a field of a
/// wrong type, is not this protocol.
fn parse(data: &str) -> Result<Frame<'_>, DecodeError> {
    let error = match serde_json::from_str(data) {
        Ok(frame) => return Ok(frame),
        Err(error) => error,
    };
    match serde_json::from_str(data) {
        Ok(Value::Object(_)) | Err(_) => {
            Err(DecodeError::malformed(format!("{error} in frame: {}", truncate(data, 256))))
        }
        Ok(_) => Ok(Frame::default()),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
