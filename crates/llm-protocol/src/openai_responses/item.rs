//! The items of an answer, as far as they are known while it streams.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::error::truncate;
use crate::event::LlmEvent;
use crate::json::RawJson;
use crate::message::ToolCall;
use crate::state::StateOwner;
use crate::text::Text;

/// An item as a frame holds it. Members whose type depends on the item's are parsed once that is known.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) call_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) status: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) phase: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) action: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) queries: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) code: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) outputs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) results: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_format: Option<Text<'a>>,
}

/// The item types whose members we read.
const READ: &[&str] = &["function_call", "message", "reasoning"];

/// A piece of a message's content or of a summary.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Piece {
    pub(super) text: Option<String>,
    pub(super) refusal: Option<String>,
}

impl<'a> Item<'a> {
    /// Parses an item. An item of an unread type may hold anything, so only its type is parsed.
    pub(super) fn parse(raw: &'a RawValue) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Type<'a> {
            #[serde(rename = "type", borrow)]
            kind: Option<Text<'a>>,
        }
        let error = match serde_json::from_str(raw.get()) {
            Ok(item) => return Ok(item),
            Err(error) => error,
        };
        match serde_json::from_str::<Type<'_>>(raw.get()) {
            Ok(Type { kind: Some(kind) }) if !READ.contains(&&*kind) => {
                Ok(Self { kind: Some(kind), ..Self::default() })
            }
            Ok(_) | Err(_) => {
                let item = truncate(raw.get(), 256);
                Err(DecodeError::malformed(format!("{error} in item: {item}")))
            }
        }
    }
}

/// Returns the pieces of a list; empty if it is not one.
pub(super) fn pieces(raw: Option<&RawValue>) -> Vec<Piece> {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

/// Returns the value's text if it is a string.
pub(super) fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// Returns the arguments of a call: text, or the object itself on some servers.
pub(super) fn argument_text(raw: Option<&RawValue>) -> Option<String> {
    let raw = raw.filter(|raw| raw.get() != "null")?;
    if raw.get().starts_with('"') { string(Some(raw)) } else { Some(raw.get().to_owned()) }
}

/// The place of an item, according to a frame.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    pub(super) index: Option<u64>,
    pub(super) id: Option<&'a str>,
}

/// An item that has begun.
#[derive(Debug)]
pub(super) struct Slot {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) content: Held,
    pub(super) closed: bool,
}

/// The data that we keep of an item until it is complete.
#[derive(Debug)]
pub(super) enum Held {
    Message {
        phase: Option<RawJson>,
        said: bool,
    },
    Reasoning {
        encrypted: Option<RawJson>,
        /// The item's summary list, if it has more than the one text in the part.
        summary: Option<RawJson>,
        /// The item's content list, if the model shows its reasoning.
        content: Option<RawJson>,
        /// The piece that was extended last.
        piece: Option<(ReasoningKind, u64)>,
    },
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    /// An item that is read when it is complete, or never.
    Other,
}

/// One of the two texts that a reasoning item may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningKind {
    Summary,
    Content,
}

/// The most items of one answer. A stream with more is broken.
const MAX_ITEMS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Slots(pub(super) Vec<Slot>);

impl Slots {
    /// Returns the item that a frame refers to, by its id or its index. GitHub Copilot gives an item another
    /// id in every frame (<https://github.com/vercel/ai/pull/18548>); other servers give no index.
    pub(super) fn find(&self, place: Place<'_>) -> Option<usize> {
        let by_id = place.id.filter(|id| !id.is_empty());
        let by_id = by_id.and_then(|id| self.0.iter().rposition(|slot| slot.id == id));
        let by_index = || self.0.iter().rposition(|slot| slot.index == place.index);
        by_id.or_else(|| place.index.and_then(|_| by_index()))
    }

    pub(super) fn begin(&mut self, place: Place<'_>, content: Held) -> Result<usize, DecodeError> {
        let at = self.0.len();
        if at == MAX_ITEMS {
            return Err(DecodeError::TooLarge { what: "output items", max: MAX_ITEMS });
        }
        let id = place.id.unwrap_or_default().to_owned();
        self.0.push(Slot { index: place.index, id, content, closed: false });
        Ok(at)
    }
}

impl Held {
    /// Makes a reasoning item that has just begun.
    pub(super) fn reasoning(encrypted: Option<&RawValue>) -> Self {
        let encrypted = encrypted.map(RawJson::from);
        Self::Reasoning { encrypted, summary: None, content: None, piece: None }
    }
}

/// Returns the list if it has more than `more_than` pieces.
pub(super) fn list(raw: Option<&RawValue>, more_than: usize) -> Option<RawJson> {
    let pieces: Vec<IgnoredAny> = serde_json::from_str(raw?.get()).ok()?;
    (pieces.len() > more_than).then(|| raw.map(RawJson::from)).flatten()
}

impl Slots {
    /// Sets the arguments of a call that came without pieces.
    pub(super) fn set_arguments(&mut self, at: usize, whole: String, events: &mut Vec<LlmEvent>) {
        if let Held::Call { id, arguments, .. } = &mut self.0[at].content
            && !whole.is_empty()
        {
            events.push(LlmEvent::ToolInputDelta { id: id.clone(), text: whole.clone() });
            *arguments = whole;
        }
    }

    /// Returns whether a call with this id has begun.
    pub(super) fn has_call(&self, call: &str) -> bool {
        let is_it = |slot: &Slot| matches!(&slot.content, Held::Call { id, .. } if id == call);
        self.0.iter().any(is_it)
    }

    /// Takes the call out of this item, as far as it has come.
    pub(super) fn take_call(&mut self, at: usize) -> Option<ToolCall> {
        match &mut self.0[at].content {
            Held::Call { id, name, arguments } => {
                let take = std::mem::take::<String>;
                Some(ToolCall::new(id.clone(), take(name), take(arguments)))
            }
            Held::Message { .. } | Held::Reasoning { .. } | Held::Other => None,
        }
    }

    /// Returns the provider state of the item's part: the phase of a message, or the id and content of
    /// reasoning. Ends reasoning.
    pub(super) fn state(&mut self, at: usize, owner: &StateOwner) -> Option<RawJson> {
        let slot = &mut self.0[at];
        match &slot.content {
            Held::Message { phase, .. } => owner.write(&[("phase", phase.as_ref()?)]),
            Held::Reasoning { encrypted, summary, content, .. } => {
                slot.closed = true;
                let id = (!slot.id.is_empty()).then(|| RawJson::from(&Value::from(&*slot.id)));
                let members = [
                    ("itemId", &id),
                    ("encryptedContent", encrypted),
                    ("summary", summary),
                    ("content", content),
                ];
                let said = members.into_iter();
                let said = said.filter_map(|(name, value)| Some((name, value.as_ref()?)));
                owner.write(&said.collect::<Vec<_>>())
            }
            Held::Call { .. } | Held::Other => None,
        }
    }
}

impl Slot {
    /// Returns whether the item can be of this type. Some servers give several items the same index.
    pub(super) fn is(&self, kind: Option<&str>) -> bool {
        match &self.content {
            Held::Message { .. } => kind == Some("message"),
            Held::Reasoning { .. } => kind == Some("reasoning"),
            Held::Call { .. } => kind == Some("function_call"),
            Held::Other => !matches!(kind, Some("message" | "reasoning")),
        }
    }
}
