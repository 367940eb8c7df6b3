//! Data payloads in, neutral events out. Does no I/O and reads no clock.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::call_ids::{UNNAMED, distinct};
use crate::classify::classify_in_stream;
use crate::decode_error::DecodeError;
use crate::event::{FinishReason, LlmEvent, Usage};
use crate::gemini::frame::{Candidate, CodeResult, Frame, FunctionCall, WirePart};
use crate::json::RawJson;
use crate::message::{ToolCall, ToolContent, ToolResult};
use crate::state::StateOwner;
use crate::surrogates::Halves;
use crate::text::Text;

/// The most calls of one answer. A stream with more is broken.
const MAX_CALLS: usize = 256;
/// The bound on all arguments, signatures and hosted parts of one answer together, in bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;

/// The name of the tool for code that the provider runs.
const CODE_EXECUTION: &str = "code_execution";

/// Turns the frames of one answer into events.
///
/// It ignores frames and parts without any known field. Calls come whole. Usage may come after the finish
/// reason, so the answer ends with the stream: [`Decoder::finish`].
#[derive(Debug)]
pub struct Decoder {
    owner: StateOwner,
    halves: Halves,
    open: Option<OpenPart>,
    parts: usize,
    calls: usize,
    /// Ids of the calls that we are to run.
    ids: Vec<String>,
    /// The call of the code that is running.
    code: Option<String>,
    kept_bytes: usize,
    reason: Option<FinishReason>,
    /// Why the model stopped, in the provider's words.
    message: Option<String>,
    usage: Option<Usage>,
}

#[derive(Debug)]
struct OpenPart {
    thought: bool,
    id: String,
}

impl Decoder {
    /// Makes a decoder for one answer. `owner` owns its provider state.
    #[must_use]
    pub fn new(owner: StateOwner) -> Self {
        Self {
            owner,
            halves: Halves::default(),
            open: None,
            parts: 0,
            calls: 0,
            ids: Vec::new(),
            code: None,
            kept_bytes: 0,
            reason: None,
            message: None,
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
        // Some gateways end the stream as chat completions do.
        if data.is_empty() || data == "[DONE]" {
            return Ok(events);
        }
        let mut mended = None;
        let (frame, _) = self.halves.read(data, &mut mended, Frame::parse, Frame::keeps_raw)?;
        if let Some(error) = frame.error {
            let error: Value = serde_json::from_str(error.get()).unwrap_or_default();
            return Err(classify_in_stream(&error).into());
        }
        let usage = frame.usage_metadata.and_then(|usage| usage.into_usage());
        self.usage = usage.or(self.usage); // the last one counts: each frame has the totals so far
        if frame.prompt_feedback.is_some_and(|feedback| feedback.block_reason.is_some()) {
            self.reason = Some(FinishReason::ContentFilter);
        }
        // We ask for one candidate. A server that sends more numbers them.
        let candidates = frame.candidates.unwrap_or_default();
        for candidate in candidates.into_iter().filter(|one| one.index.unwrap_or(0) == 0) {
            self.candidate(candidate, &mut events)?;
        }
        Ok(events)
    }

    /// Returns `false`: the stream does not announce its end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        false
    }

    /// Returns whether the model has stopped: only counts may still come.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.reason.is_some()
    }

    /// Ends the stream: closes the open part and returns `StepFinish` and `Finish`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the stream gave no finish reason, and [`DecodeError::Failed`] if it says in words what
    /// went wrong.
    pub fn finish(mut self) -> Result<Vec<LlmEvent>, DecodeError> {
        let Some(reason) = self.reason else { return Err(DecodeError::Truncated) };
        if let Some(message) = self.message.take().filter(|_| reason == FinishReason::Error) {
            return Err(DecodeError::failed(&message));
        }
        let mut events = Vec::new();
        self.close(None, &mut events);
        let calls = reason == FinishReason::Stop && !self.ids.is_empty();
        let reason = if calls { FinishReason::ToolCalls } else { reason };
        let usage = self.usage;
        events.push(LlmEvent::StepFinish { reason, usage });
        events.push(LlmEvent::Finish { reason, usage });
        Ok(events)
    }

    fn candidate(
        &mut self,
        candidate: Candidate<'_>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let content = candidate.content.unwrap_or_default();
        for part in content.parts.unwrap_or_default() {
            self.part(part, events)?;
        }
        let message = candidate.finish_message.map(Text::into_string);
        self.message = message.filter(|message| !message.trim().is_empty()).or(self.message.take());
        let word = candidate.finish_reason;
        self.reason = word.and_then(|word| FinishReason::from_word(&word)).or(self.reason);
        Ok(())
    }

    fn part(&mut self, part: WirePart<'_>, events: &mut Vec<LlmEvent>) -> Result<(), DecodeError> {
        let signature = part.thought_signature;
        self.keep(signature.map_or(0, |signature| signature.get().len()))?;
        if let Some(call) = part.function_call {
            return self.call(call, signature, events);
        }
        if let Some(code) = part.executable_code {
            return self.run(code, signature, events);
        }
        if let Some(result) = part.code_execution_result {
            return self.ran(result, signature, events);
        }
        let thought = part.thought.unwrap_or(false);
        let text = part.text.map(Text::into_string).unwrap_or_default();
        self.text(thought, text, signature, events);
        Ok(())
    }

    /// Adds text. A signature ends its part, because signed parts go back exactly as they came. A signature
    /// without text signs the previous part, or is a part by itself.
    fn text(
        &mut self,
        thought: bool,
        text: String,
        signature: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) {
        if text.is_empty() {
            if signature.is_none() {
                return;
            }
            if self.open.is_none() {
                let id = self.next_part("reasoning");
                events.push(LlmEvent::ReasoningStart { id: id.clone() });
                let provider_metadata = self.state(thought, signature);
                events.push(LlmEvent::ReasoningEnd { id, provider_metadata });
            }
            return self.close(signature, events);
        }
        if self.open.as_ref().is_some_and(|open| open.thought != thought) {
            self.close(None, events);
        }
        let id = match &self.open {
            Some(open) => open.id.clone(),
            None => self.open(thought, events),
        };
        events.push(if thought {
            LlmEvent::ReasoningDelta { id, text }
        } else {
            LlmEvent::TextDelta { id, text }
        });
        if signature.is_some() {
            self.close(signature, events);
        }
    }

    fn next_part(&mut self, kind: &str) -> String {
        self.parts += 1;
        format!("{kind}-{}", self.parts - 1)
    }

    fn open(&mut self, thought: bool, events: &mut Vec<LlmEvent>) -> String {
        let id = self.next_part(if thought { "reasoning" } else { "text" });
        events.push(if thought {
            LlmEvent::ReasoningStart { id: id.clone() }
        } else {
            LlmEvent::TextStart { id: id.clone() }
        });
        self.open = Some(OpenPart { thought, id: id.clone() });
        id
    }

    fn close(&mut self, signature: Option<&RawValue>, events: &mut Vec<LlmEvent>) {
        let Some(OpenPart { thought, id }) = self.open.take() else { return };
        let provider_metadata = self.state(thought, signature);
        events.push(if thought {
            LlmEvent::ReasoningEnd { id, provider_metadata }
        } else {
            LlmEvent::TextEnd { id, provider_metadata }
        });
    }

    /// Returns the state of a text. A thought without a signature (Gemini 2.5) still goes back as a thought,
    /// not as text.
    fn state(&self, thought: bool, signature: Option<&RawValue>) -> Option<RawJson> {
        let is_thought = thought.then(|| serde_json::from_str("true").expect("it is JSON"));
        let members = [("thought", is_thought), ("thoughtSignature", signature)];
        self.owner.write(&said(members))
    }

    fn call(
        &mut self,
        call: FunctionCall<'_>,
        signature: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let name = call.name.filter(|name| !name.is_empty()).map(Text::into_string);
        let name = name.unwrap_or_else(|| UNNAMED.to_owned());
        let own_id = call.id.filter(|id| !id.is_empty()).map(Text::into_string);
        let arguments = call.args.map_or("{}", RawValue::get);
        let id = self.begin(own_id.clone(), arguments)?;
        let is_taken = |id: &str| self.ids.iter().any(|taken| taken == id);
        let id = distinct(id.into(), is_taken).into_owned();
        self.ids.push(id.clone());
        let own_id = own_id.map(|id| raw(&quoted(&id)));
        let members = [("id", own_id.as_ref().map(RawJson::raw)), ("thoughtSignature", signature)];
        let provider_metadata = self.owner.write(&said(members));
        let call = ToolCall { provider_metadata, ..ToolCall::new(id, name, arguments) };
        self.announce(call, events);
        Ok(())
    }

    /// Announces the call for code that the provider runs.
    fn run(
        &mut self,
        code: &RawValue,
        signature: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let id = self.begin(None, code.get())?;
        self.code = Some(id.clone());
        let call = ToolCall {
            provider_executed: true,
            provider_metadata: self.hosted("executableCode", code, signature),
            ..ToolCall::new(id, CODE_EXECUTION, code.get())
        };
        self.announce(call, events);
        Ok(())
    }

    /// Handles the result of that code. A result without code is dropped.
    fn ran(
        &mut self,
        result: &RawValue,
        signature: Option<&RawValue>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        self.keep(result.get().len())?;
        let Some(id) = self.code.take() else { return Ok(()) };
        let read: CodeResult<'_> = serde_json::from_str(result.get()).unwrap_or_default();
        let outcome = read.outcome.as_deref().unwrap_or_default();
        let output = read.output.as_deref().unwrap_or_default();
        let text = if output.is_empty() { outcome } else { output }.to_owned();
        self.close(None, events);
        events.push(LlmEvent::ToolResult(ToolResult {
            id,
            name: CODE_EXECUTION.to_owned(),
            content: vec![ToolContent::Text { text }],
            is_error: outcome != "OUTCOME_OK",
            provider_metadata: self.hosted("codeExecutionResult", result, signature),
        }));
        Ok(())
    }

    /// Returns the state of a hosted part: the part, verbatim.
    fn hosted(&self, kind: &str, body: &RawValue, signature: Option<&RawValue>) -> Option<RawJson> {
        let body = body.get();
        let part = match signature {
            None => format!("{{\"{kind}\":{body}}}"),
            Some(signature) => {
                format!("{{\"{kind}\":{body},\"thoughtSignature\":{}}}", signature.get())
            }
        };
        self.owner.write(&[("part", &raw(&part))])
    }

    /// Returns the id of the next call: the provider's, or its position in the answer.
    fn begin(&mut self, id: Option<String>, arguments: &str) -> Result<String, DecodeError> {
        if self.calls == MAX_CALLS {
            return Err(DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
        }
        self.calls += 1;
        self.keep(arguments.len())?;
        Ok(id.unwrap_or_else(|| format!("call_{}", self.calls - 1)))
    }

    fn announce(&mut self, call: ToolCall, events: &mut Vec<LlmEvent>) {
        self.close(None, events);
        let id = || call.id.clone();
        events.push(LlmEvent::ToolInputStart { id: id(), name: call.name.clone() });
        events.push(LlmEvent::ToolInputDelta { id: id(), text: call.arguments.clone() });
        events.push(LlmEvent::ToolInputEnd { id: id() });
        events.push(LlmEvent::ToolCall(call));
    }

    fn keep(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.kept_bytes += bytes;
        if self.kept_bytes > MAX_KEPT_BYTES {
            let what = "bytes of tool arguments and state";
            return Err(DecodeError::TooLarge { what, max: MAX_KEPT_BYTES });
        }
        Ok(())
    }
}

/// Returns the members that are present.
fn said<'a, const N: usize>(
    members: [(&'static str, Option<&'a RawValue>); N],
) -> Vec<(&'static str, &'a RawValue)> {
    members.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn raw(text: &str) -> RawJson {
    RawJson::parse(text).expect("it is made of the values of a frame")
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string is always written")
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
