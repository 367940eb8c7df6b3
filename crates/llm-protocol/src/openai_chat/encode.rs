//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use std::borrow::Cow;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::json::{RawJson, Sorted, control_number};
use crate::message::{Message, Part, Role, ToolCall, ToolContent, ToolResult};
use crate::message_json::can_carry;
use crate::openai_chat::ID;
use crate::request::{Generation, LlmRequest, SystemPart, ToolChoice};

/// What an error result's text begins with: the protocol has no flag for it.
const ERROR_PREFIX: &str = "Error: ";

/// Keys that say what is asked, which options cannot replace.
const FIXED_KEYS: &[&str] =
    &["model", "messages", "tools", "tool_choice", "stream", "stream_options"];

/// Writes the body of a streamed chat completion that reports its usage.
///
/// - Parts of one message are joined by a line feed. A system message in the middle stays in its place.
/// - Tool arguments are the model's bytes, valid or not.
/// - A failed tool result begins with `Error: `.
/// - Reasoning is not sent: the protocol has no place for it. A message of nothing else is left out.
/// - Fields of `providerOptions["openai-chat"]` are added to the body, sorted, and replace a generation control
///   of the same key (null removes it: `{"max_tokens": null, "max_completion_tokens": 9}`).
#[must_use]
pub fn encode(request: &LlmRequest) -> Vec<u8> {
    serde_json::to_vec(&Body(request)).expect("keys are strings and the writer is memory")
}

struct Body<'a>(&'a LlmRequest);

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.0;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", &request.model)?;
        body.serialize_entry("messages", &WireMessages(request))?;
        if !request.tools.is_empty() {
            body.serialize_entry("tools", &WireTools(request))?;
            // Without tools, providers refuse a choice; `auto` is their default.
            match &request.tool_choice {
                ToolChoice::Auto => {}
                ToolChoice::None => body.serialize_entry("tool_choice", "none")?,
                ToolChoice::Required => body.serialize_entry("tool_choice", "required")?,
                ToolChoice::Tool(name) => {
                    let function = NamedFunction { name };
                    body.serialize_entry("tool_choice", &Function { kind: "function", function })?;
                }
            }
        }
        body.serialize_entry("stream", &true)?;
        body.serialize_entry("stream_options", &StreamOptions { include_usage: true })?;
        let no_options = Map::new();
        let options = request.provider_options.get(ID).and_then(Value::as_object);
        let options = options.unwrap_or(&no_options);
        let controls = controls(&request.generation);
        for (key, value) in controls.iter().filter(|(key, _)| !options.contains_key(*key)) {
            body.serialize_entry(key, value)?;
        }
        let mut options: Vec<_> = options.iter().collect();
        options.sort_unstable_by_key(|(key, _)| *key);
        for (key, value) in options {
            if !FIXED_KEYS.contains(&key.as_str()) && !value.is_null() {
                body.serialize_entry(key, &Sorted(value))?;
            }
        }
        body.end()
    }
}

fn controls(generation: &Generation) -> Vec<(&'static str, Value)> {
    let stop = (!generation.stop.is_empty()).then(|| Value::from(generation.stop.clone()));
    let all = [
        ("max_tokens", generation.max_tokens.map(Value::from)),
        ("temperature", generation.temperature.map(control_number)),
        ("top_p", generation.top_p.map(control_number)),
        ("top_k", generation.top_k.map(Value::from)),
        ("seed", generation.seed.map(Value::from)),
        ("stop", stop),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// `{"type":"function","function":…}`, the wrapper of definitions, choices and calls.
#[derive(Serialize)]
struct Function<F> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: F,
}

#[derive(Serialize)]
struct NamedFunction<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct DefinedFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

struct WireTools<'a>(&'a LlmRequest);

impl Serialize for WireTools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.tools.iter().map(|tool| Function {
            kind: "function",
            function: DefinedFunction {
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.input_schema,
            },
        }))
    }
}

struct WireMessages<'a>(&'a LlmRequest);

impl Serialize for WireMessages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let system = system_message(&self.0.system);
        let messages = self.0.messages.iter().flat_map(wire_messages);
        serializer.collect_seq(system.into_iter().chain(messages))
    }
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    /// Null only beside tool calls.
    content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    id: &'a str,
    #[serde(flatten)]
    call: Function<CalledFunction<'a>>,
}

#[derive(Serialize)]
struct CalledFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

fn system_message(parts: &[SystemPart]) -> Option<WireMessage<'_>> {
    let texts = parts.iter().map(|SystemPart::Text { text }| text.as_str());
    let content = Some(join(texts)?);
    Some(WireMessage { role: "system", tool_call_id: None, content, tool_calls: Vec::new() })
}

/// A tool message becomes one message a result; results inside an assistant message (of calls that another
/// provider ran) follow it, so that every call has its answer.
fn wire_messages(message: &Message) -> impl Iterator<Item = WireMessage<'_>> {
    let parts = message.content.iter().filter(|part| can_carry(message.role, part));
    let texts = parts.clone().filter_map(|part| match part {
        Part::Text(part) => Some(part.text.as_str()),
        Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) | Part::ToolResult(_) => None,
    });
    let tool_calls: Vec<_> = parts.clone().filter_map(wire_call).collect();
    let content = join(texts);
    let said = (content.is_some() || !tool_calls.is_empty()).then(|| WireMessage {
        role: message.role.as_str(),
        tool_call_id: None,
        content,
        tool_calls,
    });
    let said = if message.role == Role::Tool { None } else { said };
    said.into_iter().chain(parts.filter_map(|part| match part {
        Part::ToolResult(result) => Some(wire_result(result)),
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolCall(_) => None,
    }))
}

fn wire_call(part: &Part) -> Option<WireCall<'_>> {
    match part {
        Part::ToolCall(ToolCall { id, name, arguments, .. }) => {
            let function = CalledFunction { name, arguments };
            Some(WireCall { id, call: Function { kind: "function", function } })
        }
        Part::Text(_) | Part::Reasoning(_) | Part::Media(_) | Part::ToolResult(_) => None,
    }
}

fn wire_result(result: &ToolResult) -> WireMessage<'_> {
    let texts = result.content.iter().filter_map(|content| match content {
        ToolContent::Text { text } => Some(text.as_str()),
        ToolContent::Media { .. } => None,
    });
    let text = join(texts).unwrap_or_default();
    let content = if result.is_error { Cow::Owned(format!("{ERROR_PREFIX}{text}")) } else { text };
    WireMessage {
        role: Role::Tool.as_str(),
        tool_call_id: Some(&result.id),
        content: Some(content),
        tool_calls: Vec::new(),
    }
}

/// The texts joined by line feeds; nothing if there are none, or only one that is empty. Copies nothing for a
/// single text, so that a long history costs no more than writing it.
fn join<'a>(mut texts: impl Iterator<Item = &'a str>) -> Option<Cow<'a, str>> {
    let first = texts.next()?;
    let Some(second) = texts.next() else {
        return (!first.is_empty()).then_some(Cow::Borrowed(first));
    };
    let mut joined = format!("{first}\n{second}");
    for text in texts {
        joined.push('\n');
        joined.push_str(text);
    }
    Some(Cow::Owned(joined))
}
