//! The part of a request that the simulated model reads, in any protocol. Everything else is ignored.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};

/// A parsed request. Chat's borrows from the body, since a history of 1,000 messages comes with every turn.
pub(crate) struct Request<'a> {
    pub(crate) model: String,
    pub(crate) messages: Vec<Message<'a>>,
    /// The names of the offered tools.
    pub(crate) tools: Vec<Cow<'a, str>>,
    pub(crate) choice: Choice,
    /// The most tokens of the answer, if the request limits them.
    pub(crate) max_tokens: Option<u64>,
    pub(crate) stream: bool,
    /// Whether a stream ends with usage.
    pub(crate) include_usage: bool,
}

/// The tools that may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Any,
    None,
    Only(String),
}

pub(crate) struct Message<'a> {
    pub(crate) role: Role,
    pub(crate) content: Content<'a>,
    pub(crate) calls: Vec<MadeCall<'a>>,
    pub(crate) tool_call_id: Option<Cow<'a, str>>,
    /// The signatures of reasoning in the request. They are all valid.
    pub(crate) signatures: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MadeCall<'a> {
    pub(crate) id: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
}

impl Request<'_> {
    /// Returns whether this request lets the model call `tool`.
    pub(crate) fn may_call(&self, tool: &str) -> bool {
        let offered = self.tools.iter().any(|offered| offered == tool);
        offered
            && match &self.choice {
                Choice::Any => true,
                Choice::None => false,
                Choice::Only(chosen) => chosen == tool,
            }
    }
}

impl<'a> Message<'a> {
    pub(crate) fn new(role: Role, content: Content<'a>) -> Self {
        Self { role, content, calls: Vec::new(), tool_call_id: None, signatures: Vec::new() }
    }
}

/// The text parts of a message: one for a plain string, none for `null`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Content<'a>(pub(crate) Vec<Cow<'a, str>>);

impl Content<'_> {
    pub(crate) fn joined(&self) -> Cow<'_, str> {
        match self.0.as_slice() {
            [] => Cow::Borrowed(""),
            [one] => Cow::Borrowed(one),
            many => Cow::Owned(many.join("\n")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>, // absent in images, audio and files
}

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, null, or a list of content parts")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content(vec![Cow::Borrowed(text)]))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content(vec![Cow::Owned(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(part) = parts.next_element::<Part<'de>>()? {
            texts.extend(part.text);
        }
        Ok(Content(texts))
    }
}
