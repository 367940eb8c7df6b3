//! An open text or reasoning part.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::decode_error::DecodeError;
use crate::event::LlmEvent;
use crate::json::RawJson;
use crate::state::StateOwner;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Reasoning,
}

#[derive(Debug)]
pub(super) struct OpenPart {
    pub(super) kind: PartKind,
    pub(super) index: u64,
    id: String,
    signature: String,
    /// Base64.
    redacted: String,
}

impl OpenPart {
    pub(super) fn begin(
        kind: PartKind,
        index: u64,
        number: usize,
        events: &mut Vec<LlmEvent>,
    ) -> Self {
        let (id, start): (_, fn(String) -> LlmEvent) = match kind {
            PartKind::Text => (format!("text-{number}"), |id| LlmEvent::TextStart { id }),
            PartKind::Reasoning => {
                (format!("reasoning-{number}"), |id| LlmEvent::ReasoningStart { id })
            }
        };
        events.push(start(id.clone()));
        Self { kind, index, id, signature: String::new(), redacted: String::new() }
    }

    pub(super) fn extend(&self, text: String, events: &mut Vec<LlmEvent>) {
        let id = self.id.clone();
        events.push(match self.kind {
            PartKind::Text => LlmEvent::TextDelta { id, text },
            PartKind::Reasoning => LlmEvent::ReasoningDelta { id, text },
        });
    }

    pub(super) fn sign(&mut self, signature: &str) {
        self.signature.push_str(signature);
    }

    /// Adds bytes in base64. Pieces that end in padding are decoded first, because their texts cannot be
    /// joined.
    pub(super) fn redact(&mut self, base64: &str) -> Result<(), DecodeError> {
        if !self.redacted.ends_with('=') {
            self.redacted.push_str(base64);
            return Ok(());
        }
        let bytes = |text: &str| {
            let invalid = |_| DecodeError::malformed("redacted reasoning is no base64");
            STANDARD.decode(text).map_err(invalid)
        };
        let mut joined = bytes(&self.redacted)?;
        joined.extend(bytes(base64)?);
        self.redacted = STANDARD.encode(joined);
        Ok(())
    }

    pub(super) fn end(self, owner: &StateOwner) -> LlmEvent {
        let text = |text: &str| RawJson::from(&Value::from(text));
        let (signature, redacted) = (text(&self.signature), text(&self.redacted));
        let mut members = Vec::new();
        if !self.signature.is_empty() {
            members.push(("signature", &signature));
        }
        if !self.redacted.is_empty() {
            members.push(("redacted", &redacted));
        }
        let (id, provider_metadata) = (self.id, owner.write(&members));
        match self.kind {
            PartKind::Text => LlmEvent::TextEnd { id, provider_metadata },
            PartKind::Reasoning => LlmEvent::ReasoningEnd { id, provider_metadata },
        }
    }
}
