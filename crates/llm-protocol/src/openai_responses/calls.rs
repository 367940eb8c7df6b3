//! Counts and bounds the calls of an answer, and announces calls that come whole.

use crate::decode_error::DecodeError;
use crate::event::LlmEvent;
use crate::message::ToolCall;

/// Counters of the calls that we are to run.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) begun: usize,
    argument_bytes: usize,
}

/// The most calls of one answer. A stream with more is broken.
const MAX_CALLS: usize = 256;
/// The bound on the arguments of all calls of one answer together, in bytes.
const MAX_ARGUMENT_BYTES: usize = 16 * 1024 * 1024;

impl Calls {
    pub(super) fn begin(&mut self) -> Result<(), DecodeError> {
        self.begun += 1;
        if self.begun > MAX_CALLS {
            return Err(DecodeError::TooLarge { what: "tool calls", max: MAX_CALLS });
        }
        Ok(())
    }

    pub(super) fn add(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.argument_bytes += bytes;
        if self.argument_bytes > MAX_ARGUMENT_BYTES {
            let what = "bytes of tool arguments";
            return Err(DecodeError::TooLarge { what, max: MAX_ARGUMENT_BYTES });
        }
        Ok(())
    }
}

/// Announces a call that came whole.
pub(super) fn announce(call: ToolCall, events: &mut Vec<LlmEvent>) {
    let id = || call.id.clone();
    events.push(LlmEvent::ToolInputStart { id: id(), name: call.name.clone() });
    if !call.arguments.is_empty() {
        events.push(LlmEvent::ToolInputDelta { id: id(), text: call.arguments.clone() });
    }
    events.push(LlmEvent::ToolInputEnd { id: id() });
    events.push(LlmEvent::ToolCall(call));
}
