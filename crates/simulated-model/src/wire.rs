//! What of a chat completions request the simulated model reads. Everything else is ignored.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde_json::Value;

/// The request's body. Borrows from it, since a history of 1,000 messages comes with every turn.
#[derive(Deserialize)]
pub(crate) struct ChatRequest<'a> {
    #[serde(borrow)]
    pub(crate) messages: Vec<Message<'a>>,
    #[serde(borrow, default)]
    tools: Option<Vec<Tool<'a>>>,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    pub(crate) role: Role,
    #[serde(borrow, default)]
    pub(crate) content: Content<'a>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<MadeCall<'a>>>,
    #[serde(borrow, default)]
    pub(crate) tool_call_id: Option<Cow<'a, str>>,
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

#[derive(Deserialize)]
pub(crate) struct MadeCall<'a> {
    #[serde(borrow)]
    pub(crate) id: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) function: Named<'a>,
}

#[derive(Deserialize)]
pub(crate) struct Named<'a> {
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Tool<'a> {
    #[serde(borrow)]
    function: Named<'a>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

impl<'a> ChatRequest<'a> {
    /// Reads the body; the error is fit to be shown to the client.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, String> {
        let request: Self = serde_json::from_slice(body)
            .map_err(|error| format!("the body is not a chat completions request: {error}"))?;
        if request.messages.is_empty() {
            return Err("`messages` is empty: send at least one message".to_owned());
        }
        Ok(request)
    }

    pub(crate) fn stream(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(crate) fn include_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// Whether this request lets the model call `tool`.
    pub(crate) fn may_call(&self, tool: &str) -> bool {
        let offered =
            self.tools.iter().flatten().any(|offered| offered.function.name.as_ref() == tool);
        let chosen = &self.tool_choice["function"]["name"]; // null unless one function is named
        offered && self.tool_choice != "none" && (chosen.is_null() || *chosen == tool)
    }
}

impl<'a> Message<'a> {
    pub(crate) fn calls(&self) -> &[MadeCall<'a>] {
        self.tool_calls.as_deref().unwrap_or_default()
    }
}

/// A message's text parts: one for a plain string, none for `null`.
#[derive(Default)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_may_be_text_parts_or_nothing() {
        let body = br#"{"messages":[{"role":"user","content":"a\nb"},
            {"role":"user","content":[{"type":"text","text":"c"},{"type":"image_url","image_url":{}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",
             "function":{"name":"read","arguments":"{}"}}]}],
            "tools":[{"type":"function","function":{"name":"read"}}],
            "tool_choice":{"type":"function","function":{"name":"read"}}}"#;
        let request = ChatRequest::parse(body).unwrap_or_else(|error| panic!("{error}"));
        let texts: Vec<_> = request.messages.iter().map(|m| m.content.joined()).collect();
        assert_eq!(texts, ["a\nb", "c", ""]);
        assert_eq!(request.messages[2].calls().len(), 1);
        assert!(request.may_call("read") && !request.may_call("write") && !request.stream());
    }

    #[test]
    fn a_bad_body_is_explained() {
        assert!(ChatRequest::parse(b"{}").is_err_and(|e| e.contains("messages")));
        assert!(ChatRequest::parse(br#"{"messages":[]}"#).is_err_and(|e| e.contains("empty")));
    }
}
