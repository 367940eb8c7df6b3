//! Joins the pieces of tool calls and announces each call as soon as it is surely complete.
//!
//! A call is complete when another call begins after its arguments became valid JSON, or at the end. Checking
//! for valid JSON keeps calls open that a server interleaves, or that have no arguments yet.

use serde::de::IgnoredAny;

use crate::call_ids::{UNNAMED, distinct};
use crate::decode_error::DecodeError;
use crate::event::LlmEvent;
use crate::message::ToolCall;
use crate::openai_chat::frame::{CallId, FunctionDelta, ToolCallDelta};

/// The most calls of one answer. A stream with more is broken.
const MAX_CALLS: usize = 256;
/// The bound on the arguments of all calls of one answer together, in bytes.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<Call>,
    argument_bytes: usize,
}

#[derive(Debug)]
struct Call {
    index: Option<i64>,
    /// The server's id, which may not be unique; empty if the server gave none.
    given: String,
    id: String,
    name: String,
    arguments: String,
    /// The call's name is known, and an event announced it.
    announced: bool,
    closed: bool,
}

impl ToolCalls {
    /// Returns whether the answer calls any tool.
    pub(super) fn any(&self) -> bool {
        !self.calls.is_empty()
    }

    pub(super) fn push(
        &mut self,
        delta: ToolCallDelta,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        let FunctionDelta { name, arguments } = delta.function.unwrap_or_default();
        // Servers repeat absent fields as empty strings.
        let id = delta.id.map(CallId::into_text).filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        let arguments = arguments.map(|arguments| arguments.0).unwrap_or_default();
        let at = match self.locate(delta.index, id.as_deref(), name.as_deref()) {
            Some(at) => at,
            None if id.is_none() && name.is_none() && arguments.trim().is_empty() => return Ok(()),
            None => self.begin(delta.index, id, events)?,
        };
        if let Some(name) = name {
            self.calls[at].announce(name, events);
        }
        self.extend(at, arguments, events)
    }

    /// Ends all open calls, in order.
    pub(super) fn close_all(&mut self, events: &mut Vec<LlmEvent>) {
        self.calls.iter_mut().for_each(|call| call.close(events));
    }

    /// Returns the call that a delta continues, or `None` if it begins one. Most servers number the calls and
    /// send id and name once. Some give every call the number 0 and its own id (Gemini's compatible
    /// endpoint), some give no number (whole calls in one frame), and some repeat the id and name in every
    /// delta.
    fn locate(&self, index: Option<i64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        if index.is_some() {
            let at = self.calls.iter().rposition(|call| call.index == index)?;
            let another = name.is_some() && id.is_some_and(|id| id != self.calls[at].given);
            return (!another).then_some(at);
        }
        match (id, name) {
            (Some(id), _) => {
                let known = self.calls.iter().rposition(|call| call.given == id);
                if name.is_none() { known.or(last) } else { known }
            }
            (None, Some(_)) => None,
            (None, None) => last,
        }
    }

    fn begin(
        &mut self,
        index: Option<i64>,
        id: Option<String>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<usize, DecodeError> {
        let at = self.calls.len();
        if at == MAX_CALLS {
            return Err(DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
        }
        for call in &mut self.calls {
            if serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok() {
                call.close(events);
            }
        }
        // Old Ollama gives no id, so the call's position in the answer becomes its id.
        let given = id.unwrap_or_default();
        let id = if given.is_empty() { format!("call_{at}") } else { given.clone() };
        let is_taken = |id: &str| self.calls.iter().any(|call| call.id == id);
        let id = distinct(id.into(), is_taken).into_owned();
        let (name, arguments) = (String::new(), String::new());
        let (announced, closed) = (false, false);
        self.calls.push(Call { index, given, id, name, arguments, announced, closed });
        Ok(at)
    }

    fn extend(
        &mut self,
        at: usize,
        text: String,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if text.is_empty() {
            return Ok(());
        }
        let call = &mut self.calls[at];
        if call.closed && text.trim().is_empty() {
            return Ok(()); // white space after a value does not belong to it
        }
        if call.closed {
            return Err(DecodeError::malformed(
                "arguments arrive for a tool call that was complete",
            ));
        }
        self.argument_bytes += text.len();
        if self.argument_bytes > MAX_ARGUMENT_BYTES {
            let what = "bytes of tool arguments";
            return Err(DecodeError::TooLarge { what, max: MAX_ARGUMENT_BYTES });
        }
        call.arguments.push_str(&text);
        if call.announced {
            events.push(LlmEvent::ToolInputDelta { id: call.id.clone(), text });
        }
        Ok(())
    }
}

impl Call {
    /// Announces the call, once, with the arguments that came before its name.
    fn announce(&mut self, name: String, events: &mut Vec<LlmEvent>) {
        if std::mem::replace(&mut self.announced, true) {
            return;
        }
        events.push(LlmEvent::ToolInputStart { id: self.id.clone(), name: name.clone() });
        self.name = name;
        if !self.arguments.is_empty() {
            let text = self.arguments.clone();
            events.push(LlmEvent::ToolInputDelta { id: self.id.clone(), text });
        }
    }

    /// Ends the call. A call that still has no name gets one that no tool has, so that its result shows the
    /// model its mistake.
    fn close(&mut self, events: &mut Vec<LlmEvent>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.announce(UNNAMED.to_owned(), events);
        events.push(LlmEvent::ToolInputEnd { id: self.id.clone() });
        let arguments = std::mem::take(&mut self.arguments);
        let name = std::mem::take(&mut self.name);
        events.push(LlmEvent::ToolCall(ToolCall::new(self.id.clone(), name, arguments)));
    }
}
