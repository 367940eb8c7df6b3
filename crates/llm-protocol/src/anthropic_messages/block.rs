//! A content block that is open, and the events and the state that its end gives.

use serde_json::value::RawValue;

use crate::anthropic_messages::{hosted, is_anthropics};
use crate::event::LlmEvent;
use crate::json::RawJson;
use crate::message::ToolCall;
use crate::state::StateOwner;

#[derive(Debug)]
pub(super) enum Open {
    Text { id: String },
    Reasoning { id: String, signature: String, redacted: Option<RawJson> },
    Call(OpenCall),
}

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// What the start of the block had as input: some servers send it whole.
    pub(super) input: Option<Box<RawValue>>,
    /// The start of the block, if the provider runs the call.
    pub(super) hosted: Option<Box<RawValue>>,
}

impl Open {
    pub(super) fn stop(self, owner: &StateOwner, events: &mut Vec<LlmEvent>) {
        match self {
            Self::Text { id } => events.push(LlmEvent::TextEnd { id, provider_metadata: None }),
            Self::Reasoning { id, signature, redacted } => {
                let provider_metadata = match redacted {
                    Some(data) => owner.write(&[("redacted", &data)]),
                    None => signed(owner, &signature),
                };
                events.push(LlmEvent::ReasoningEnd { id, provider_metadata });
            }
            Self::Call(call) => call.stop(owner, events),
        }
    }
}

/// Anthropic signs all reasoning that it takes back, wherever its models run; what it broke off is unsigned and it
/// refuses that. Servers that speak its protocol and sign nothing take theirs back as it is.
fn signed(owner: &StateOwner, signature: &str) -> Option<RawJson> {
    if signature.is_empty() && is_anthropics(owner) {
        return None;
    }
    owner.write(&[("signature", signature)])
}

impl OpenCall {
    fn stop(self, owner: &StateOwner, events: &mut Vec<LlmEvent>) {
        let input = self.input.as_deref().map_or("{}", RawValue::get);
        let arguments = match self.arguments.as_str() {
            "" => input.to_owned(),
            _ => self.arguments,
        };
        let block = self.hosted.map(|start| hosted::call_block(&start, &arguments));
        events.push(LlmEvent::ToolInputEnd { id: self.id.clone() });
        events.push(LlmEvent::ToolCall(ToolCall {
            id: self.id,
            name: self.name,
            arguments,
            provider_executed: block.is_some(),
            provider_metadata: block.and_then(|block| owner.write(&[("block", &block)])),
        }));
    }
}
