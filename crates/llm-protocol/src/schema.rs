//! The neutral request and events as JSON Schema (draft 2020-12), for programs that write or read them.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::error_event::ErrorEvent;
use crate::event::LlmEvent;
use crate::json::RawJson;
use crate::message::{ToolCall, ToolContent};
use crate::request::LlmRequest;

/// Returns the schema for reading a request.
#[must_use]
pub fn request() -> Value {
    let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
    generator.into_root_schema_for::<LlmRequest>().to_value()
}

/// Returns the schema of one written event: an event of an answer, or the error that ends it.
#[must_use]
pub fn event() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let event = generator.subschema_for::<LlmEvent>();
    let error = generator.subschema_for::<ErrorEvent>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event",
        "anyOf": [event, error],
        "$defs": generator.take_definitions(true),
    })
}

impl JsonSchema for RawJson {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        true.into()
    }
}

impl JsonSchema for ToolCall {
    fn schema_name() -> Cow<'static, str> {
        "ToolCall".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A call of a tool, as the model wrote it: its arguments are `input`, or `inputText` where \
                they are no clean JSON value.",
            "type": "object",
            "properties": {
                "id": {"type": "string", "description": "The provider's id of the call; unique within one answer."},
                "name": {"type": "string", "description": "The tool's name, which may be one that does not exist."},
                "input": {"description": "The arguments, any JSON value."},
                "inputText": {"type": "string", "description": "The arguments, where they are no clean JSON value."},
                "providerExecuted": {"type": "boolean", "description": "The provider ran it; nobody else may."},
                "providerMetadata": {"description": "Opaque state for the provider that sent it."},
            },
            "required": ["id", "name"],
            "oneOf": [{"required": ["input"]}, {"required": ["inputText"]}],
        })
    }
}

/// The schema of a tool's content: a list of parts. A request may also have a string (one text) or any other
/// value (its JSON text).
pub(crate) fn tool_content(generator: &mut SchemaGenerator) -> Schema {
    let list = generator.subschema_for::<Vec<ToolContent>>();
    if generator.contract().is_serialize() {
        return list;
    }
    json_schema!({
        "description": "What the model sees: parts, a string (one text) or any other JSON value (its text).",
        "anyOf": [list, {"type": "string"}, true],
    })
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
