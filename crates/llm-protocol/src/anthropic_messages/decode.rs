//! Data payloads in, neutral events out. Does no I/O and reads no clock.

use crate::anthropic_messages::block::{Open, OpenCall, OpenSummary};
use crate::anthropic_messages::frame::{Block, Delta, Frame, WireUsage, block_text};
use crate::anthropic_messages::hosted;
use crate::call_ids::{UNNAMED, distinct};
use crate::classify::classify_in_stream;
use crate::decode_error::DecodeError;
use crate::event::{FinishReason, LlmEvent};
use crate::json::RawJson;
use crate::message::{ToolContent, ToolResult};
use crate::state::StateOwner;
use crate::surrogates::Halves;
use crate::text::Text;
use serde_json::Value;
use serde_json::value::RawValue;

/// The most calls and results of one answer. A stream with more is broken.
const MAX_CALLS: usize = 256;
/// The bound on all arguments, signatures and hosted blocks of one answer together, in bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;

/// Turns the frames of one answer into events.
///
/// It ignores frames, blocks and deltas of unknown types. A tool call is announced when its block ends, while
/// the rest of the answer still streams; [`Decoder::finish`] ends the answer.
#[derive(Debug)]
pub struct Decoder {
    owner: StateOwner,
    halves: Halves,
    /// The open blocks by index. Anthropic opens one at a time.
    open: Vec<(u64, Open)>,
    parts: usize,
    calls: usize,
    called: bool,
    /// The newest block of an unknown type. Deltas to it are ignored.
    unknown: Option<u64>,
    /// Ids of the calls that we are to run.
    ids: Vec<String>,
    /// Ids and names of calls that the provider runs, for their results.
    hosted: Vec<(String, String)>,
    kept_bytes: usize,
    usage: Option<WireUsage>,
    reason: Option<FinishReason>,
    done: bool,
}

impl Decoder {
    /// Makes a decoder for one answer. `owner` owns its provider state.
    #[must_use]
    pub fn new(owner: StateOwner) -> Self {
        Self {
            owner,
            halves: Halves::default(),
            open: Vec::new(),
            parts: 0,
            calls: 0,
            called: false,
            unknown: None,
            ids: Vec::new(),
            hosted: Vec::new(),
            kept_bytes: 0,
            usage: None,
            reason: None,
            done: false,
        }
    }

    /// Takes the data payload of one server-sent event.
    ///
    /// # Errors
    /// The provider reports an error, the frame is not JSON of this protocol, or a bound is exceeded.
    pub fn push(&mut self, data: &str) -> Result<Vec<LlmEvent>, DecodeError> {
        let data = data.trim();
        let mut events = Vec::new();
        // Some gateways end the stream as chat completions do.
        if self.done || data.is_empty() || data == "[DONE]" {
            return Ok(events);
        }
        let mut mended = None;
        let (frame, data) = self.halves.read(data, &mut mended, Frame::parse, Frame::keeps_raw)?;
        let index = frame.index.unwrap_or(0);
        match frame.kind.as_deref() {
            Some("content_block_delta") => {
                if let Some(delta) = frame.delta {
                    self.extend(index, delta, &mut events)?;
                }
            }
            Some("content_block_start") => {
                if let Some(block) = frame.content_block {
                    self.start(index, block, data, &mut events)?;
                }
            }
            Some("content_block_stop") => self.stop(index, &mut events),
            Some("message_start") => self.count(frame.message.and_then(|message| message.usage)),
            Some("message_delta") => {
                self.count(frame.usage);
                let word = frame.delta.and_then(|delta| delta.stop_reason);
                self.reason = word.and_then(|word| FinishReason::from_word(&word)).or(self.reason);
            }
            Some("message_stop") => {
                self.done = true;
                self.stop_all(&mut events);
            }
            Some("error") => return Err(stated(frame.error).into()),
            // A gateway's error frame, without a type.
            None if frame.error.is_some() => return Err(stated(frame.error).into()),
            Some(_) | None => {}
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

    /// Ends the stream: closes open blocks and returns `StepFinish` and `Finish`. A message whose reason to stop has
    /// come is whole, with or without `message_stop`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message was not stopped.
    pub fn finish(mut self) -> Result<Vec<LlmEvent>, DecodeError> {
        if !self.has_stopped() {
            return Err(DecodeError::Truncated);
        }
        let mut events = Vec::new();
        self.stop_all(&mut events);
        let usage = self.usage.map(WireUsage::into_usage);
        let reason = match self.reason {
            Some(FinishReason::Stop) if self.called => FinishReason::ToolCalls,
            Some(reason) => reason,
            None => FinishReason::Unknown,
        };
        events.push(LlmEvent::StepFinish { reason, usage });
        events.push(LlmEvent::Finish { reason, usage });
        Ok(events)
    }

    fn count(&mut self, usage: Option<WireUsage>) {
        if let Some(usage) = usage {
            self.usage.get_or_insert_default().grow(usage);
        }
    }

    fn start(
        &mut self,
        index: u64,
        block: Block<'_>,
        data: &str,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        self.stop(index, events); // some servers never stop their blocks and give all of them the same index
        self.unknown = None;
        match block.kind.as_deref() {
            Some("text") => self.text(index, block.text, events),
            Some("thinking") => {
                let at = self.reasoning(index, events);
                self.think(at, block.thinking, events);
                self.sign(at, block.signature)?;
            }
            Some("redacted_thinking") => {
                let data = block.data.map_or("\"\"", RawValue::get);
                self.keep(data.len())?;
                let data = RawJson::parse(data).expect("it is a value of a frame");
                let at = self.reasoning(index, events);
                if let (_, Open::Reasoning { redacted, .. }) = &mut self.open[at] {
                    *redacted = Some(data);
                }
            }
            Some("tool_use") => self.call(index, block, None, events)?,
            Some("compaction") => {
                if let Some(start) = block_text(data) {
                    self.summary(index, start, block.content, events)?;
                }
            }
            Some(kind) if hosted::is_call(kind) => {
                self.call(index, block, block_text(data), events)?;
            }
            Some(kind) if hosted::is_result(kind) => {
                let kind = kind.to_owned();
                if let Some(raw) = block_text(data) {
                    self.result(&kind, block, raw, events)?;
                }
            }
            Some(_) | None => self.unknown = Some(index),
        }
        Ok(())
    }

    fn extend(
        &mut self,
        index: u64,
        delta: Delta<'_>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        match delta.kind.as_deref() {
            Some(_) if self.unknown == Some(index) => {}
            Some("text_delta") => self.text(index, delta.text, events),
            Some("thinking_delta") => {
                let at = self.reasoning(index, events);
                self.think(at, delta.thinking, events);
            }
            Some("signature_delta") => {
                let at = self.reasoning(index, events);
                self.sign(at, delta.signature)?;
            }
            Some("compaction_delta") => self.extend_summary(index, &delta)?,
            Some("input_json_delta") => {
                let text = delta.partial_json.map(Text::into_string).unwrap_or_default();
                if text.is_empty() {
                    return Ok(());
                }
                self.keep(text.len())?;
                let call = self.open.iter_mut().find_map(|(at, open)| match open {
                    Open::Call(call) if *at == index => Some(call),
                    Open::Call(_)
                    | Open::Text { .. }
                    | Open::Reasoning { .. }
                    | Open::Summary(_) => None,
                });
                let Some(call) = call else {
                    return Err(DecodeError::malformed("arguments arrive for no tool call"));
                };
                call.arguments.push_str(&text);
                events.push(LlmEvent::ToolInputDelta { id: call.id.clone(), text });
            }
            Some(_) | None => {} // citations, and types of the future
        }
        Ok(())
    }

    /// Adds text to the block. The part begins with its first text, so an empty block is not a part.
    fn text(&mut self, index: u64, text: Option<Text<'_>>, events: &mut Vec<LlmEvent>) {
        let Some(text) = text.map(Text::into_string).filter(|text| !text.is_empty()) else {
            return;
        };
        let known = self.open.iter().find_map(|(at, open)| match open {
            Open::Text { id } if *at == index => Some(id.clone()),
            Open::Text { .. } | Open::Reasoning { .. } | Open::Call(_) | Open::Summary(_) => None,
        });
        let id = known.unwrap_or_else(|| {
            self.stop_parts(events);
            let id = format!("text-{}", self.parts);
            self.parts += 1;
            events.push(LlmEvent::TextStart { id: id.clone() });
            self.open.push((index, Open::Text { id: id.clone() }));
            id
        });
        events.push(LlmEvent::TextDelta { id, text });
    }

    /// Returns the position of the reasoning block, and opens it if needed. Reasoning without text is a part
    /// too.
    fn reasoning(&mut self, index: u64, events: &mut Vec<LlmEvent>) -> usize {
        let known = self
            .open
            .iter()
            .position(|(at, open)| *at == index && matches!(open, Open::Reasoning { .. }));
        known.unwrap_or_else(|| {
            self.stop_parts(events);
            let id = format!("reasoning-{}", self.parts);
            self.parts += 1;
            events.push(LlmEvent::ReasoningStart { id: id.clone() });
            let open = Open::Reasoning { id, signature: String::new(), redacted: None };
            self.open.push((index, open));
            self.open.len() - 1
        })
    }

    fn think(&self, at: usize, text: Option<Text<'_>>, events: &mut Vec<LlmEvent>) {
        let text = text.map(Text::into_string).unwrap_or_default();
        if let (_, Open::Reasoning { id, .. }) = &self.open[at]
            && !text.is_empty()
        {
            events.push(LlmEvent::ReasoningDelta { id: id.clone(), text });
        }
    }

    /// Opens a summary of the conversation, which becomes a part without text.
    fn summary(
        &mut self,
        index: u64,
        start: &RawValue,
        content: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        self.keep(start.get().len())?;
        self.stop_parts(events);
        let id = format!("reasoning-{}", self.parts);
        self.parts += 1;
        events.push(LlmEvent::ReasoningStart { id: id.clone() });
        let (start, content) = (start.to_owned(), string(content));
        let summary = OpenSummary { id, start, content, encrypted: None };
        self.open.push((index, Open::Summary(summary)));
        Ok(())
    }

    fn extend_summary(&mut self, index: u64, delta: &Delta<'_>) -> Result<(), DecodeError> {
        let parts = [delta.content, delta.encrypted_content];
        self.keep(parts.iter().flatten().map(|raw| raw.get().len()).sum())?;
        for (at, open) in &mut self.open {
            if let Open::Summary(summary) = open
                && *at == index
            {
                if let Some(more) = string(delta.content) {
                    summary.content.get_or_insert_default().push_str(&more);
                }
                let encrypted = delta.encrypted_content.map(RawJson::from);
                summary.encrypted = encrypted.or(summary.encrypted.take());
            }
        }
        Ok(())
    }

    fn sign(&mut self, at: usize, more: Option<Text<'_>>) -> Result<(), DecodeError> {
        let Some(more) = more else { return Ok(()) };
        self.keep(more.len())?;
        if let (_, Open::Reasoning { signature, .. }) = &mut self.open[at] {
            signature.push_str(&more);
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u64,
        block: Block<'_>,
        hosted: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let number = self.next_call()?;
        let name = block.name.filter(|name| !name.is_empty());
        let name = name.map_or_else(|| UNNAMED.to_owned(), Text::into_string);
        let id = block.id.filter(|id| !id.is_empty());
        let mut id = id.map_or_else(|| format!("call_{number}"), Text::into_string);
        self.keep(block.input.map_or(0, |input| input.get().len()))?;
        if let Some(raw) = hosted {
            self.keep(raw.get().len())?;
            self.hosted.push((id.clone(), name.clone()));
        } else {
            self.called = true;
            id = distinct(id.into(), |id| self.ids.iter().any(|taken| taken == id)).into_owned();
            self.ids.push(id.clone());
        }
        self.stop_parts(events);
        events.push(LlmEvent::ToolInputStart { id: id.clone(), name: name.clone() });
        let call = OpenCall {
            id,
            name,
            arguments: String::new(),
            input: block.input.filter(|input| input.get() != "{}").map(RawValue::to_owned),
            hosted: hosted.map(RawValue::to_owned),
        };
        self.open.push((index, Open::Call(call)));
        Ok(())
    }

    /// Handles a result, which comes whole with the start of its block.
    fn result(
        &mut self,
        kind: &str,
        block: Block<'_>,
        raw: &RawValue,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        self.next_call()?;
        self.keep(raw.get().len())?;
        let id = block.tool_use_id.map(Text::into_string).unwrap_or_default();
        let call = self.hosted.iter().find(|(call, _)| *call == id);
        let named = |(_, name): &(String, String)| name.clone();
        let name = call.map_or_else(|| kind.trim_end_matches("_tool_result").to_owned(), named);
        let (text, is_error) = hosted::result_text(block.content, block.is_error);
        let exact = RawJson::parse(raw.get()).expect("it is a value of a frame");
        self.stop_parts(events);
        events.push(LlmEvent::ToolResult(ToolResult {
            id,
            name,
            content: vec![ToolContent::Text { text }],
            is_error,
            provider_metadata: self.owner.write(&[("block", &exact)]),
        }));
        Ok(())
    }

    fn next_call(&mut self) -> Result<usize, DecodeError> {
        if self.calls == MAX_CALLS {
            return Err(DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
        }
        self.calls += 1;
        Ok(self.calls - 1)
    }

    fn keep(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.kept_bytes += bytes;
        if self.kept_bytes > MAX_KEPT_BYTES {
            let what = "bytes of tool arguments and state";
            return Err(DecodeError::TooLarge { what, max: MAX_KEPT_BYTES });
        }
        Ok(())
    }

    fn stop(&mut self, index: u64, events: &mut Vec<LlmEvent>) {
        self.stop_where(|at, _| at == index, events);
    }

    fn stop_all(&mut self, events: &mut Vec<LlmEvent>) {
        self.stop_where(|_, _| true, events);
    }

    /// Ends text and reasoning parts, which must end before another part or a call begins.
    fn stop_parts(&mut self, events: &mut Vec<LlmEvent>) {
        self.stop_where(|_, open| !matches!(open, Open::Call(_)), events);
    }

    fn stop_where(&mut self, which: impl Fn(u64, &Open) -> bool, events: &mut Vec<LlmEvent>) {
        let mut at = 0;
        while let Some((index, open)) = self.open.get(at) {
            if which(*index, open) {
                let (_, open) = self.open.remove(at);
                open.stop(&self.owner, events);
            } else {
                at += 1;
            }
        }
    }
}

/// Returns the value's text if it is a string.
fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

fn stated(error: Option<&RawValue>) -> crate::error::ProviderError {
    let error = error.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    classify_in_stream(&error.unwrap_or_default())
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
