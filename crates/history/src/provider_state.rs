//! Takes provider state out of messages, for requests after their provider has refused it.

use domain::{AttemptEnded, ErrorCode};
use llm_protocol::{Message, Part, RawJson};

/// Provider state that was taken out of messages: the message, the part, and the state.
#[derive(Debug)]
pub(crate) struct TakenState(Vec<(usize, usize, RawJson)>);

impl TakenState {
    /// Takes the state out of these messages.
    pub(crate) fn take_from<'m>(messages: impl Iterator<Item = &'m mut Message>) -> Self {
        let mut taken = Vec::new();
        for (at, message) in messages.enumerate() {
            for (index, part) in message.content.iter_mut().enumerate() {
                if let Some(state) = state_mut(part).take() {
                    taken.push((at, index, state));
                }
            }
        }
        Self(taken)
    }

    /// Puts the state back where it was.
    pub(crate) fn put_back(self, messages: &mut [Message]) {
        for (at, index, state) in self.0 {
            let part = messages.get_mut(at).and_then(|message| message.content.get_mut(index));
            if let Some(part) = part {
                *state_mut(part) = Some(state);
            }
        }
    }
}

/// Returns whether a provider refused an attempt because of state in its request.
pub(crate) fn is_state_refusal(ended: &AttemptEnded) -> bool {
    let error = ended.error.as_ref();
    error.is_some_and(|error| error.code == ErrorCode::ProviderStateRefused)
}

/// Returns whether a message has provider state.
pub(crate) fn has_state(message: &Message) -> bool {
    message.content.iter().any(|part| match part {
        Part::Text(part) | Part::Reasoning(part) => part.provider_metadata.is_some(),
        Part::Media(media) => media.provider_metadata.is_some(),
        Part::ToolCall(call) => call.provider_metadata.is_some(),
        Part::ToolResult(result) => result.provider_metadata.is_some(),
    })
}

fn state_mut(part: &mut Part) -> &mut Option<RawJson> {
    match part {
        Part::Text(part) | Part::Reasoning(part) => &mut part.provider_metadata,
        Part::Media(media) => &mut media.provider_metadata,
        Part::ToolCall(call) => &mut call.provider_metadata,
        Part::ToolResult(result) => &mut result.provider_metadata,
    }
}
