//! Reads and writes messages and parts as neutral JSON.
//!
//! Serde reads tagged enums through a buffer that loses raw text. So a part is read as one flat set of fields
//! first, and becomes its type afterwards.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{RawJson, compact};
use crate::message::{Media, Message, Part, Role, TextPart, ToolCall, ToolContent, ToolResult};
use crate::surrogates;

/// The reason why a neutral message was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MessageError {
    #[error("unknown part type `{0}`: expected text, reasoning, media, tool-call or tool-result")]
    UnknownPart(String),
    #[error("a `{kind}` part needs `{field}`")]
    Missing { kind: &'static str, field: &'static str },
    #[error("a tool-call has either `input` or `inputText`, not both")]
    TwoInputs,
    #[error("a message of role `{role}` cannot carry a `{kind}` part")]
    WrongRole { role: &'static str, kind: &'static str },
    #[error("expected a `{expected}` part, found `{found}`")]
    WrongKind { expected: &'static str, found: &'static str },
}

#[derive(Deserialize)]
pub(crate) struct MessageFields {
    role: Role,
    content: Vec<Part>,
}

impl TryFrom<MessageFields> for Message {
    type Error = MessageError;

    fn try_from(fields: MessageFields) -> Result<Self, MessageError> {
        let MessageFields { role, content } = fields;
        match content.iter().find(|part| !can_carry(role, part)) {
            None => Ok(Self { role, content }),
            Some(part) => Err(MessageError::WrongRole { role: role.as_str(), kind: part.kind() }),
        }
    }
}

/// Returns whether a message of this role may contain the part. An assistant message may contain results too:
/// those of calls that its provider ran.
pub(crate) fn can_carry(role: Role, part: &Part) -> bool {
    match part {
        Part::Text(_) => role != Role::Tool,
        // A model can make images.
        Part::Media(_) => role == Role::User || role == Role::Assistant,
        Part::Reasoning(_) | Part::ToolCall(_) => role == Role::Assistant,
        Part::ToolResult(_) => role == Role::Tool || role == Role::Assistant,
    }
}

/// Reads a value that is present, even if it is `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PartFields {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    mime: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    /// `null` counts as an input: no arguments.
    #[serde(default, deserialize_with = "given")]
    input: Option<Box<RawValue>>,
    input_text: Option<String>,
    #[serde(default)]
    provider_executed: bool,
    content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
    provider_metadata: Option<RawJson>,
}

impl TryFrom<PartFields> for Part {
    type Error = MessageError;

    fn try_from(fields: PartFields) -> Result<Self, MessageError> {
        match fields.kind.as_deref() {
            Some("text") => fields.into_text("text").map(Self::Text),
            Some("reasoning") => fields.into_text("reasoning").map(Self::Reasoning),
            Some("media") => fields.into_media().map(Self::Media),
            Some("tool-call") => fields.into_call().map(Self::ToolCall),
            Some("tool-result") => fields.into_result().map(Self::ToolResult),
            other => Err(MessageError::UnknownPart(other.unwrap_or_default().to_owned())),
        }
    }
}

/// A `ToolCall` by itself may omit the type, because it serialises without one.
impl TryFrom<PartFields> for ToolCall {
    type Error = MessageError;

    fn try_from(fields: PartFields) -> Result<Self, MessageError> {
        fields.alone("tool-call")?.into_call()
    }
}

impl TryFrom<PartFields> for ToolResult {
    type Error = MessageError;

    fn try_from(fields: PartFields) -> Result<Self, MessageError> {
        fields.alone("tool-result")?.into_result()
    }
}

impl PartFields {
    fn alone(self, expected: &'static str) -> Result<Self, MessageError> {
        match self.kind.as_deref() {
            None => Ok(self),
            Some(kind) if kind == expected => Ok(self),
            Some(_) => {
                let found = Part::try_from(self)?.kind();
                Err(MessageError::WrongKind { expected, found })
            }
        }
    }

    fn into_text(self, kind: &'static str) -> Result<TextPart, MessageError> {
        let text = self.text.ok_or(MessageError::Missing { kind, field: "text" })?;
        Ok(TextPart { text, provider_metadata: self.provider_metadata })
    }

    fn into_media(self) -> Result<Media, MessageError> {
        let missing = |field| MessageError::Missing { kind: "media", field };
        Ok(Media {
            mime: self.mime.ok_or(missing("mime"))?,
            data: self.data.ok_or(missing("data"))?,
            provider_metadata: self.provider_metadata,
        })
    }

    fn into_call(self) -> Result<ToolCall, MessageError> {
        let missing = |field| MessageError::Missing { kind: "tool-call", field };
        let arguments = match (self.input, self.input_text) {
            (Some(input), None) => compact(input.get()),
            (None, Some(text)) => text,
            (Some(_), Some(_)) => return Err(MessageError::TwoInputs),
            (None, None) => return Err(missing("input")),
        };
        Ok(ToolCall {
            id: self.id.ok_or(missing("id"))?,
            name: self.name.ok_or(missing("name"))?,
            arguments,
            provider_executed: self.provider_executed,
            provider_metadata: self.provider_metadata,
        })
    }

    fn into_result(self) -> Result<ToolResult, MessageError> {
        let missing = |field| MessageError::Missing { kind: "tool-result", field };
        Ok(ToolResult {
            id: self.id.ok_or(missing("id"))?,
            name: self.name.ok_or(missing("name"))?,
            content: tool_content(&self.content.ok_or(missing("content"))?),
            is_error: self.is_error,
            provider_metadata: self.provider_metadata,
        })
    }
}

/// Reads a list as parts, a string as one text, and anything else as its JSON text without white space.
fn tool_content(raw: &RawValue) -> Vec<ToolContent> {
    if let Ok(parts) = serde_json::from_str::<Vec<ToolContent>>(raw.get()) {
        return parts;
    }
    let text = serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| compact(raw.get()));
    vec![ToolContent::Text { text }]
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            id: &'a str,
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            input: Option<&'a RawValue>,
            #[serde(skip_serializing_if = "Option::is_none")]
            input_text: Option<&'a str>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            provider_executed: bool,
            #[serde(skip_serializing_if = "Option::is_none")]
            provider_metadata: &'a Option<RawJson>,
        }
        let input = clean_json(&self.arguments);
        Fields {
            id: &self.id,
            name: &self.name,
            input,
            input_text: input.is_none().then_some(self.arguments.as_str()),
            provider_executed: self.provider_executed,
            provider_metadata: &self.provider_metadata,
        }
        .serialize(serializer)
    }
}

/// Returns the text as raw JSON if it is exactly one value. Otherwise a round trip would change it:
/// surrounding white space is lost, and `null` reads as absent. Some readers refuse half surrogate pairs.
fn clean_json(text: &str) -> Option<&RawValue> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    let is_clean =
        raw.get().len() == text.len() && text != "null" && surrogates::whole(text).is_none();
    is_clean.then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(part: &Part) -> String {
        let json = serde_json::to_string(part).unwrap();
        assert_eq!(&serde_json::from_str::<Part>(&json).unwrap(), part, "{json}");
        json
    }

    #[test]
    fn arguments_keep_the_models_bytes_through_neutral_json() {
        let call =
            |arguments: &str| round_trip(&Part::ToolCall(ToolCall::new("c", "t", arguments)));
        assert_eq!(
            call(r#"{"b":1.0,"a":1e2,"n":123456789012345678901234567890}"#),
            r#"{"type":"tool-call","id":"c","name":"t","input":{"b":1.0,"a":1e2,"n":123456789012345678901234567890}}"#
        );
        assert_eq!(
            call("{\"a\":"),
            r#"{"type":"tool-call","id":"c","name":"t","inputText":"{\"a\":"}"#
        );
        assert_eq!(
            call(r#"{"a":"\ud83d"}"#),
            r#"{"type":"tool-call","id":"c","name":"t","inputText":"{\"a\":\"\\ud83d\"}"}"#
        );
        for odd in ["", " {}", "{}\n", "null", "\"text\"", "[1]", "é\u{1F600}"] {
            call(odd);
        }
    }

    #[test]
    fn white_space_between_the_tokens_of_an_input_means_nothing() {
        let text = "{\"id\":\"c\",\"name\":\"t\",\"input\":{ \"b\" : \"x y\",\n \"a\": 1.0 }}";
        let read = serde_json::from_str::<ToolCall>(text).unwrap();
        assert_eq!(read, ToolCall::new("c", "t", r#"{"b":"x y","a":1.0}"#));
        let exact = ToolCall::new("c", "t", "{ }");
        assert_eq!(serde_json::to_string(&exact).unwrap(), r#"{"id":"c","name":"t","input":{ }}"#);
    }

    #[test]
    fn every_part_survives_neutral_json() {
        let state = RawJson::parse(r#"{"sig":"x", "n":1.50}"#).unwrap();
        let thought = TextPart { text: "hm".into(), provider_metadata: Some(state) };
        assert_eq!(
            round_trip(&Part::Reasoning(thought)),
            r#"{"type":"reasoning","text":"hm","providerMetadata":{"sig":"x", "n":1.50}}"#
        );
        let image =
            Media { mime: "image/png".into(), data: "AA==".into(), provider_metadata: None };
        assert_eq!(
            round_trip(&Part::Media(image)),
            r#"{"type":"media","mime":"image/png","data":"AA=="}"#
        );
        let seen = ToolContent::Media { mime: "image/png".into(), data: "AA==".into() };
        round_trip(&Part::ToolResult(ToolResult {
            content: vec![seen],
            ..ToolResult::text("c", "look", "")
        }));
        assert_eq!(
            round_trip(&Part::ToolResult(ToolResult::error("c", "t", "no"))),
            r#"{"type":"tool-result","id":"c","name":"t","content":[{"type":"text","text":"no"}],"isError":true}"#
        );
    }

    #[test]
    fn a_tool_result_also_reads_a_string_or_any_json() {
        let read = |content: &str| {
            let json = format!(r#"{{"id":"c","name":"t","content":{content}}}"#);
            serde_json::from_str::<ToolResult>(&json).unwrap()
        };
        assert_eq!(read(r#""hi""#), ToolResult::text("c", "t", "hi"));
        assert_eq!(read(r#"{"n": 1.0}"#), ToolResult::text("c", "t", r#"{"n":1.0}"#));
        assert_eq!(read(r#"[{"type":"text","text":"hi"}]"#), ToolResult::text("c", "t", "hi"));
        assert_eq!(read("[1, 2]"), ToolResult::text("c", "t", "[1,2]"));
    }

    // Finding llm 13: the schema allows any JSON, including `null`.
    #[test]
    fn an_input_of_null_is_one() {
        let call: Message = serde_json::from_str(
            r#"{"role":"assistant","content":[{"type":"tool-call","id":"c","name":"t","input":null}]}"#,
        )
        .unwrap();
        assert_eq!(call.content, [Part::ToolCall(ToolCall::new("c", "t", "null"))]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let error = |json: &str| serde_json::from_str::<Message>(json).unwrap_err().to_string();
        let call =
            r#"{"role":"user","content":[{"type":"tool-call","id":"c","name":"t","input":1}]}"#;
        assert!(error(call).contains("role `user` cannot carry a `tool-call`"), "{}", error(call));
        let unknown = r#"{"role":"user","content":[{"type":"sound"}]}"#;
        assert!(error(unknown).contains("unknown part type `sound`"), "{}", error(unknown));
        let empty = r#"{"role":"assistant","content":[{"type":"tool-call","id":"c","name":"t"}]}"#;
        assert!(error(empty).contains("needs `input`"), "{}", error(empty));
    }
}
