//! An open content block, and the events and state that it produces when it ends.

use serde_json::Value;
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
    Summary(OpenSummary),
}

/// A summary that the provider puts in place of the earlier conversation (`compaction`) and wants back
/// verbatim. Other providers receive the conversation itself, so they need none of it.
/// <https://docs.anthropic.com/en/docs/build-with-claude/compaction>
#[derive(Debug)]
pub(super) struct OpenSummary {
    pub(super) id: String,
    /// The start of the block.
    pub(super) start: Box<RawValue>,
    /// The content that was added later, if any.
    pub(super) content: Option<String>,
    pub(super) encrypted: Option<RawJson>,
}

#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// The input from the block's start: some servers send it whole there.
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
            Self::Summary(summary) => {
                let block = summary.block();
                let provider_metadata = owner.write(&[("block", &block)]);
                events.push(LlmEvent::ReasoningEnd { id: summary.id, provider_metadata });
            }
        }
    }
}

/// Returns the state of a reasoning part. Anthropic signs all reasoning that it accepts back, on every host;
/// reasoning that broke off is unsigned, and Anthropic refuses it. Other servers that speak this protocol and
/// sign nothing accept theirs unsigned.
fn signed(owner: &StateOwner, signature: &str) -> Option<RawJson> {
    if signature.is_empty() && is_anthropics(owner) {
        return None;
    }
    owner.write(&[("signature", signature)])
}

impl OpenSummary {
    fn block(&self) -> RawJson {
        let content = self.content.as_deref().map(|text| RawJson::from(&Value::from(text)));
        let later = [("content", &content), ("encrypted_content", &self.encrypted)];
        let came = later.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        hosted::with_members(&self.start, &came.collect::<Vec<_>>())
    }
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
