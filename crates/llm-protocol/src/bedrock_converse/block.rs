//! The blocks of an answer. Text and reasoning have no start event: they begin with their first delta.

use serde_json::value::RawValue;

use crate::arguments::owned_object;
use crate::bedrock_converse::frame::{ReasoningDelta, Start};
use crate::bedrock_converse::hosted::{HostedResult, call_block};
use crate::bedrock_converse::part::{OpenPart, PartKind};
use crate::call_ids::{UNNAMED, distinct};
use crate::decode_error::DecodeError;
use crate::event::LlmEvent;
use crate::message::ToolCall;
use crate::state::StateOwner;

/// The most calls of one answer. A stream with more is broken.
const MAX_CALLS: usize = 256;
/// The bound on the arguments, signatures and hosted results kept from one answer until its blocks stop, in
/// bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Blocks {
    owner: StateOwner,
    /// The open text or reasoning; at most one.
    part: Option<OpenPart>,
    parts: usize,
    calls: Vec<Call>,
    results: Vec<HostedResult>,
    kept_bytes: usize,
}

#[derive(Debug)]
struct Call {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    hosted: bool,
    open: bool,
}

impl Blocks {
    pub(super) fn new(owner: StateOwner) -> Self {
        let (calls, results) = (Vec::new(), Vec::new());
        Self { owner, part: None, parts: 0, calls, results, kept_bytes: 0 }
    }

    /// Returns whether a call waits for a result from us.
    pub(super) fn wants_results(&self) -> bool {
        self.calls.iter().any(|call| !call.hosted)
    }

    pub(super) fn start(
        &mut self,
        index: u64,
        start: Start<'_>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if start.tool_use.is_some() || start.tool_result.is_some() {
            self.end_part(events);
        }
        if let Some(result) = start.tool_result {
            if self.results.len() == MAX_CALLS {
                return Err(DecodeError::TooLarge { what: "tool results", max: MAX_CALLS });
            }
            self.results.push(HostedResult::new(index, result));
        }
        let Some(call) = start.tool_use else { return Ok(()) };
        let at = self.calls.len();
        if at == MAX_CALLS {
            return Err(DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
        }
        let filled = |text: Option<crate::text::Text<'_>>| {
            text.map(crate::text::Text::into_string).filter(|text| !text.is_empty())
        };
        let name = filled(call.name).unwrap_or_else(|| UNNAMED.to_owned());
        let mut id = filled(call.tool_use_id).unwrap_or_else(|| format!("call_{at}"));
        let hosted = call.kind.is_some_and(|kind| &*kind == "server_tool_use");
        if !hosted {
            let is_taken = |id: &str| self.calls.iter().any(|call| call.id == id);
            id = distinct(id.into(), is_taken).into_owned();
        }
        events.push(LlmEvent::ToolInputStart { id: id.clone(), name: name.clone() });
        let arguments = String::new();
        self.calls.push(Call { index, id, name, arguments, hosted, open: true });
        Ok(())
    }

    pub(super) fn text(&mut self, index: u64, text: String, events: &mut Vec<LlmEvent>) {
        if !text.is_empty() {
            self.part(PartKind::Text, index, events).extend(text, events);
        }
    }

    pub(super) fn reasoning(
        &mut self,
        index: u64,
        delta: ReasoningDelta<'_>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let state = [&delta.signature, &delta.redacted_content];
        let state_bytes = state.into_iter().flatten().map(|text| text.len()).sum();
        self.keep(state_bytes)?;
        let text = delta.text.map(|text| text.into_string()).filter(|text| !text.is_empty());
        if text.is_none() && state_bytes == 0 {
            return Ok(());
        }
        let part = self.part(PartKind::Reasoning, index, events);
        if let Some(text) = text {
            part.extend(text, events);
        }
        if let Some(signature) = delta.signature {
            part.sign(&signature);
        }
        match delta.redacted_content {
            Some(bytes) => part.redact(&bytes),
            None => Ok(()),
        }
    }

    pub(super) fn arguments(
        &mut self,
        index: u64,
        text: String,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        self.keep(text.len())?;
        let open = |call: &&mut Call| call.open && call.index == index;
        let Some(call) = self.calls.iter_mut().rev().find(open) else {
            return Err(DecodeError::malformed("arguments arrive for no tool call that is open"));
        };
        if !text.is_empty() {
            call.arguments.push_str(&text);
            events.push(LlmEvent::ToolInputDelta { id: call.id.clone(), text });
        }
        Ok(())
    }

    /// Adds pieces of a hosted tool's result.
    pub(super) fn result(&mut self, index: u64, pieces: &[&RawValue]) -> Result<(), DecodeError> {
        self.keep(pieces.iter().map(|piece| piece.get().len()).sum())?;
        if let Some(result) = self.results.iter_mut().rev().find(|result| result.is_open(index)) {
            result.extend(pieces);
        }
        Ok(())
    }

    /// Ends the block with this index, of any kind.
    pub(super) fn stop(&mut self, index: u64, events: &mut Vec<LlmEvent>) {
        if self.part.as_ref().is_some_and(|part| part.index == index) {
            self.end_part(events);
        }
        for call in self.calls.iter_mut().filter(|call| call.index == index) {
            call.close(&self.owner, events);
        }
        for result in &mut self.results {
            if result.is_open(index) {
                let called = self.calls.iter().find(|call| result.answers(&call.id));
                let name = called.map_or("", |call| call.name.as_str());
                events.push(LlmEvent::ToolResult(result.close(name, &self.owner)));
            }
        }
    }

    pub(super) fn stop_all(&mut self, events: &mut Vec<LlmEvent>) {
        let part = self.part.iter().map(|part| part.index);
        let calls = self.calls.iter().filter(|call| call.open).map(|call| call.index);
        let open: Vec<u64> = part.chain(calls).chain(self.open_results()).collect();
        for index in open {
            self.stop(index, events);
        }
    }

    fn open_results(&self) -> impl Iterator<Item = u64> {
        self.results.iter().filter_map(HostedResult::open_index)
    }

    /// Returns the open part of this kind and index; ends another open part and begins this one if needed.
    fn part(&mut self, kind: PartKind, index: u64, events: &mut Vec<LlmEvent>) -> &mut OpenPart {
        if self.part.as_ref().is_some_and(|part| part.kind != kind || part.index != index) {
            self.end_part(events);
        }
        self.part.get_or_insert_with(|| {
            let part = OpenPart::begin(kind, index, self.parts, events);
            self.parts += 1;
            part
        })
    }

    fn end_part(&mut self, events: &mut Vec<LlmEvent>) {
        if let Some(part) = self.part.take() {
            events.push(part.end(&self.owner));
        }
    }

    fn keep(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.kept_bytes += bytes;
        if self.kept_bytes > MAX_KEPT_BYTES {
            let what = "bytes of tool arguments and provider state";
            return Err(DecodeError::TooLarge { what, max: MAX_KEPT_BYTES });
        }
        Ok(())
    }
}

impl Call {
    fn close(&mut self, owner: &StateOwner, events: &mut Vec<LlmEvent>) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        events.push(LlmEvent::ToolInputEnd { id: self.id.clone() });
        let mut arguments = std::mem::take(&mut self.arguments);
        if arguments.is_empty() {
            arguments.push_str("{}"); // Claude writes nothing for a tool without parameters
        }
        let mut call = ToolCall::new(self.id.clone(), self.name.clone(), arguments);
        if self.hosted {
            let block = call_block(&call.id, &call.name, &owned_object(&call.arguments));
            call.provider_executed = true;
            call.provider_metadata = owner.write(&[("block", &block)]);
        }
        events.push(LlmEvent::ToolCall(call));
    }
}
