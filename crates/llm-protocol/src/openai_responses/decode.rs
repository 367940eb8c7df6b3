//! Data payloads in, neutral events out. Does no I/O and reads no clock.

use serde_json::value::RawValue;

use crate::call_ids::{UNNAMED, distinct};
use crate::decode_error::DecodeError;
use crate::event::{FinishReason, LlmEvent, Usage};
use crate::json::RawJson;
use crate::message::ToolCall;
use crate::openai_responses::calls::{Calls, announce};
use crate::openai_responses::frame::{Frame, Response, failure};
use crate::openai_responses::hosted::{self, CallItem};
use crate::openai_responses::item::{
    Held, Item, Place, ReasoningKind, Slots, argument_text, list, pieces,
};
use crate::openai_responses::parts::{Part, Parts};
use crate::state::StateOwner;
use crate::surrogates::Halves;

/// Turns the frames of one answer into events.
///
/// It ignores frames of unknown types. A tool call is announced when its item is complete, while the rest of
/// the answer still streams. The answer ends when the response is completed or incomplete; a failed one is an
/// error.
#[derive(Debug)]
pub struct Decoder {
    owner: StateOwner,
    halves: Halves,
    slots: Slots,
    parts: Parts,
    calls: Calls,
    refused: bool,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
}

impl Decoder {
    /// Makes a decoder for one answer. `owner` owns its provider state.
    #[must_use]
    pub fn new(owner: StateOwner) -> Self {
        Self {
            owner,
            halves: Halves::default(),
            slots: Slots::default(),
            parts: Parts::default(),
            calls: Calls::default(),
            refused: false,
            reason: None,
            usage: None,
        }
    }

    /// Takes the data payload of one server-sent event.
    ///
    /// # Errors
    /// The provider reports an error, the frame is not JSON of this protocol, or a bound is exceeded.
    pub fn push(&mut self, data: &str) -> Result<Vec<LlmEvent>, DecodeError> {
        let data = data.trim();
        let mut events = Vec::new();
        // Some compatible servers end the stream as chat completions do.
        if self.is_done() || data.is_empty() || data == "[DONE]" {
            return Ok(events);
        }
        let mut mended = None;
        let (mut frame, data) =
            self.halves.read(data, &mut mended, Frame::parse, Frame::keeps_raw)?;
        let kind = frame.kind.take();
        let id = frame.item_id.take();
        let place = Place { index: frame.output_index, id: id.as_deref() };
        let delta = |frame: &mut Frame<'_>| frame.delta.take().unwrap_or_default().into_string();
        let at = (frame.summary_index, frame.content_index);
        match kind.as_deref() {
            Some("response.output_text.delta") => {
                self.say(place, at.1, delta(&mut frame), &mut events)?;
            }
            Some("response.refusal.delta") => {
                self.refused = true;
                self.say(place, at.1, delta(&mut frame), &mut events)?;
            }
            Some("response.reasoning_summary_text.delta") => {
                let piece = (ReasoningKind::Summary, at.0.unwrap_or(0));
                self.think(place, piece, &delta(&mut frame), &mut events)?;
            }
            Some("response.reasoning_text.delta") => {
                let piece = (ReasoningKind::Content, at.1.unwrap_or(0));
                self.think(place, piece, &delta(&mut frame), &mut events)?;
            }
            Some("response.function_call_arguments.delta") => {
                self.extend_call(place, delta(&mut frame), &mut events)?;
            }
            Some("response.function_call_arguments.done") => {
                let whole = argument_text(frame.arguments).unwrap_or_default();
                self.complete_arguments(place, whole, &mut events)?;
            }
            Some("response.output_item.added") => self.added(&frame, &mut events)?,
            Some("response.output_item.done") => self.done(&frame, &mut events)?,
            Some("response.completed") => self.end(frame.response, true, &mut events)?,
            Some("response.incomplete") => self.end(frame.response, false, &mut events)?,
            Some("response.failed") => {
                return Err(failure(frame.response.and_then(|response| response.error)));
            }
            Some("error") => return Err(failure(frame.error.or_else(|| raw(data)))),
            None if frame.error.is_some() => return Err(failure(frame.error)),
            Some(_) | None => {}
        }
        Ok(events)
    }

    /// Returns whether the stream has announced its end. Later frames are ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.reason.is_some()
    }

    /// Returns whether the model has stopped. Nothing comes after that.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.is_done()
    }

    /// Ends the stream: returns `StepFinish` and `Finish`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the stream did not announce its end.
    pub fn finish(self) -> Result<Vec<LlmEvent>, DecodeError> {
        let reason = self.reason.ok_or(DecodeError::Truncated)?;
        let usage = self.usage;
        Ok(vec![LlmEvent::StepFinish { reason, usage }, LlmEvent::Finish { reason, usage }])
    }

    fn say(
        &mut self,
        place: Place<'_>,
        piece: Option<u64>,
        text: String,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if text.is_empty() {
            return Ok(()); // empty text begins no part
        }
        let at = match self.slots.find(place) {
            Some(at) => at,
            None => self.slots.begin(place, Held::Message { phase: None, said: false })?,
        };
        if let Held::Message { said, .. } = &mut self.slots.0[at].content {
            *said = true;
        }
        self.open(Part { slot: at, piece, reasoning: false }, events);
        self.parts.extend(text, events);
        Ok(())
    }

    fn think(
        &mut self,
        place: Place<'_>,
        piece: (ReasoningKind, u64),
        text: &str,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let at = match self.slots.find(place) {
            Some(at) => at,
            None => self.slots.begin(place, Held::reasoning(None))?,
        };
        self.add_thought(at, piece, text, events);
        Ok(())
    }

    fn add_thought(
        &mut self,
        at: usize,
        now: (ReasoningKind, u64),
        text: &str,
        events: &mut Vec<LlmEvent>,
    ) {
        let slot = &mut self.slots.0[at];
        let Held::Reasoning { piece, .. } = &mut slot.content else { return };
        if text.is_empty() || slot.closed {
            return;
        }
        let another = piece.replace(now).is_some_and(|last| last != now);
        self.open(Part { slot: at, piece: None, reasoning: true }, events);
        self.parts.extend(if another { format!("\n\n{text}") } else { text.to_owned() }, events);
    }

    fn extend_call(
        &mut self,
        place: Place<'_>,
        text: String,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let Some(at) = self.slots.find(place) else { return Ok(()) };
        let slot = &mut self.slots.0[at];
        let Held::Call { id, arguments, .. } = &mut slot.content else { return Ok(()) };
        if text.is_empty() || slot.closed {
            return Ok(());
        }
        self.calls.add(text.len())?;
        arguments.push_str(&text);
        events.push(LlmEvent::ToolInputDelta { id: id.clone(), text });
        Ok(())
    }

    /// Sets a call's arguments from the whole. If pieces came before, they already hold it.
    fn complete_arguments(
        &mut self,
        place: Place<'_>,
        whole: String,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let begun = self.slots.find(place).is_some_and(|at| {
            matches!(&self.slots.0[at].content, Held::Call { arguments, .. } if !arguments.is_empty())
        });
        if begun { Ok(()) } else { self.extend_call(place, whole, events) }
    }

    fn added(&mut self, frame: &Frame<'_>, events: &mut Vec<LlmEvent>) -> Result<(), DecodeError> {
        let Some(raw) = frame.item else { return Ok(()) };
        let item = Item::parse(raw)?;
        self.begin(&item, frame.output_index, events)?;
        Ok(())
    }

    /// Begins an item. Reasoning and calls are announced now, text with its first piece.
    fn begin(
        &mut self,
        item: &Item<'_>,
        index: Option<u64>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<usize, DecodeError> {
        let place = Place { index, id: item.id.as_deref() };
        let held = match (item.kind.as_deref(), &item.name) {
            (Some("message"), _) => {
                Held::Message { phase: item.phase.map(RawJson::from), said: false }
            }
            (Some("reasoning"), _) => Held::reasoning(item.encrypted_content),
            (Some("function_call"), Some(name)) if !name.is_empty() => {
                self.calls.begin()?;
                let id = self.call_id(item);
                let name = name.to_string();
                events.push(LlmEvent::ToolInputStart { id: id.clone(), name: name.clone() });
                Held::Call { id, name, arguments: String::new() }
            }
            _ => Held::Other,
        };
        let reasoning = matches!(held, Held::Reasoning { .. });
        let at = self.slots.begin(place, held)?;
        if reasoning {
            self.open(Part { slot: at, piece: None, reasoning }, events);
        }
        Ok(at)
    }

    fn call_id(&self, item: &Item<'_>) -> String {
        let given = item.call_id.as_deref().filter(|id| !id.is_empty());
        let given = given.or_else(|| item.id.as_deref().filter(|id| !id.is_empty()));
        let id = given.map_or_else(|| format!("call_{}", self.slots.0.len()), str::to_owned);
        distinct(id.into(), |id| self.slots.has_call(id)).into_owned()
    }

    fn done(&mut self, frame: &Frame<'_>, events: &mut Vec<LlmEvent>) -> Result<(), DecodeError> {
        let Some(raw) = frame.item else { return Ok(()) };
        self.complete(raw, frame.output_index, events)
    }

    /// Handles a complete item, parts of which may have come before.
    fn complete(
        &mut self,
        raw: &RawValue,
        index: Option<u64>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let item = Item::parse(raw)?;
        let known = self.slots.find(Place { index, id: item.id.as_deref() });
        let known = known.filter(|at| self.slots.0[*at].is(item.kind.as_deref()));
        let at = match known {
            Some(at) if self.slots.0[at].closed => return Ok(()),
            Some(at) => at,
            None => self.begin(&item, index, events)?,
        };
        match &mut self.slots.0[at].content {
            Held::Message { phase, said } => {
                *phase = item.phase.map(RawJson::from).or(phase.take());
                if !*said {
                    self.say_whole(at, &item, events);
                }
                self.close_part_of(at, events);
            }
            Held::Reasoning { encrypted, summary, content, piece } => {
                *encrypted = item.encrypted_content.map(RawJson::from).or(encrypted.take());
                *content = list(item.content, 0);
                *summary = list(item.summary, usize::from(content.is_none()));
                let thought = piece.is_some();
                if let Some(id) = item.id.as_deref() {
                    id.clone_into(&mut self.slots.0[at].id);
                }
                if !thought {
                    self.think_whole(at, &item, events);
                }
                self.close_part_of(at, events);
            }
            Held::Call { arguments, .. } => {
                let whole = argument_text(item.arguments).unwrap_or_default();
                if arguments.is_empty() {
                    self.calls.add(whole.len())?;
                    self.slots.set_arguments(at, whole, events);
                } else if !whole.is_empty() {
                    *arguments = whole; // bounded by the frame size
                }
                self.close_call(at, events);
            }
            Held::Other => self.other(at, &item, raw, events)?,
        }
        self.slots.0[at].closed = true;
        Ok(())
    }

    fn say_whole(&mut self, at: usize, item: &Item<'_>, events: &mut Vec<LlmEvent>) {
        for (index, piece) in (0..).zip(pieces(item.content)) {
            self.refused |= piece.refusal.is_some();
            let text = piece.text.or(piece.refusal).unwrap_or_default();
            if !text.is_empty() {
                self.open(Part { slot: at, piece: Some(index), reasoning: false }, events);
                self.parts.extend(text, events);
            }
        }
    }

    fn think_whole(&mut self, at: usize, item: &Item<'_>, events: &mut Vec<LlmEvent>) {
        let summary = (ReasoningKind::Summary, pieces(item.summary));
        let content = (ReasoningKind::Content, pieces(item.content));
        for (kind, pieces) in [summary, content] {
            for (index, piece) in (0..).zip(pieces) {
                self.add_thought(at, (kind, index), &piece.text.unwrap_or_default(), events);
            }
        }
    }

    fn other(
        &mut self,
        at: usize,
        item: &Item<'_>,
        raw: &RawValue,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if item.kind.as_deref() == Some("function_call") {
            // Its name came late or never. The model's result says that there is no such tool.
            let name = item.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(UNNAMED);
            let arguments = argument_text(item.arguments).unwrap_or_default();
            self.calls.begin()?;
            self.calls.add(arguments.len())?;
            self.close_part(events);
            announce(ToolCall::new(self.call_id(item), name, arguments), events);
            return Ok(());
        }
        if item.kind.as_deref().is_some_and(|kind| hosted::KEPT.contains(&kind)) {
            self.close_part(events);
            self.parts.open(Part { slot: at, piece: None, reasoning: true }, events);
            self.parts.close(self.owner.write(&[("item", &RawJson::from(raw))]), events);
            return Ok(());
        }
        let own = item.id.as_deref().filter(|id| !id.is_empty());
        let waits = item.call_id.as_deref().filter(|id| !id.is_empty());
        let id = waits.or(own).map_or_else(|| format!("call_{at}"), str::to_owned);
        match hosted::read(item, raw, id, &self.owner) {
            None => {}
            Some(CallItem::Waiting(call)) => {
                self.calls.begin()?;
                self.calls.add(call.arguments.len())?;
                announce(call, events);
            }
            Some(CallItem::Hosted(pair)) => {
                let (call, result) = *pair;
                announce(call, events);
                events.push(LlmEvent::ToolResult(result));
            }
        }
        Ok(())
    }

    fn end(
        &mut self,
        response: Option<Response<'_>>,
        complete: bool,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let response = response.unwrap_or_default();
        // Some servers send the output only here: <https://github.com/BerriAI/litellm/issues/13393>.
        if self.slots.0.is_empty() {
            let items: Vec<&RawValue> = response
                .output
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default();
            for (index, raw) in (0..).zip(items) {
                self.complete(raw, Some(index), events)?;
            }
        }
        self.close_part(events);
        for at in 0..self.slots.0.len() {
            if !std::mem::replace(&mut self.slots.0[at].closed, true) {
                self.close_call(at, events);
            }
        }
        self.usage = response.usage.map(|usage| usage.into_usage());
        let details = response.incomplete_details.and_then(|details| details.reason);
        self.reason = Some(match details.as_deref().and_then(FinishReason::from_word) {
            Some(reason) => reason,
            None if !complete => FinishReason::Unknown,
            None if self.calls.begun > 0 => FinishReason::ToolCalls,
            None if self.refused => FinishReason::ContentFilter,
            None => FinishReason::Stop,
        });
        Ok(())
    }

    fn close_call(&mut self, at: usize, events: &mut Vec<LlmEvent>) {
        if let Some(call) = self.slots.take_call(at) {
            events.push(LlmEvent::ToolInputEnd { id: call.id.clone() });
            events.push(LlmEvent::ToolCall(call));
        }
    }

    /// Makes `part` the open one, closing any other.
    fn open(&mut self, part: Part, events: &mut Vec<LlmEvent>) {
        if !self.parts.is_open(part) {
            self.close_part(events);
            self.parts.open(part, events);
        }
    }

    fn close_part_of(&mut self, at: usize, events: &mut Vec<LlmEvent>) {
        if self.parts.slot() == Some(at) {
            self.close_part(events);
        }
    }

    fn close_part(&mut self, events: &mut Vec<LlmEvent>) {
        let Some(at) = self.parts.slot() else { return };
        let state = self.slots.state(at, &self.owner);
        self.parts.close(state, events);
    }
}

fn raw(data: &str) -> Option<&RawValue> {
    serde_json::from_str(data).ok()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
