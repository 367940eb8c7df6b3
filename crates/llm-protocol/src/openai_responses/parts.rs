//! The one open text or reasoning part.

use crate::event::LlmEvent;
use crate::json::RawJson;

/// A part of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Index of the item.
    pub(super) slot: usize,
    /// Index of the piece in a message's content; reasoning is one part.
    pub(super) piece: Option<u64>,
    pub(super) reasoning: bool,
}

#[derive(Debug, Default)]
pub(super) struct Parts {
    open: Option<(Part, String)>,
    begun: usize,
}

impl Parts {
    pub(super) fn is_open(&self, part: Part) -> bool {
        self.open.as_ref().is_some_and(|(open, _)| *open == part)
    }

    /// Returns the item of the open part.
    pub(super) fn slot(&self) -> Option<usize> {
        self.open.as_ref().map(|(part, _)| part.slot)
    }

    pub(super) fn open(&mut self, part: Part, events: &mut Vec<LlmEvent>) {
        let at = self.begun;
        self.begun += 1;
        let id = if part.reasoning { format!("reasoning-{at}") } else { format!("text-{at}") };
        events.push(if part.reasoning {
            LlmEvent::ReasoningStart { id: id.clone() }
        } else {
            LlmEvent::TextStart { id: id.clone() }
        });
        self.open = Some((part, id));
    }

    /// Adds non-empty `text` to the open part.
    pub(super) fn extend(&self, text: String, events: &mut Vec<LlmEvent>) {
        let Some((part, id)) = &self.open else { return };
        let id = id.clone();
        events.push(if part.reasoning {
            LlmEvent::ReasoningDelta { id, text }
        } else {
            LlmEvent::TextDelta { id, text }
        });
    }

    pub(super) fn close(&mut self, provider_metadata: Option<RawJson>, events: &mut Vec<LlmEvent>) {
        let Some((part, id)) = self.open.take() else { return };
        events.push(if part.reasoning {
            LlmEvent::ReasoningEnd { id, provider_metadata }
        } else {
            LlmEvent::TextEnd { id, provider_metadata }
        });
    }
}
