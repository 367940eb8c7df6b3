//! The schemas of a session's log and its stream, for the document of our own dialect.

use std::borrow::Cow;

use domain::SessionEvent;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::frame::LiveFrame;

/// The schema of a durable event: what all have, and for each `type` its `data`.
pub(crate) struct EventSchema;

impl JsonSchema for EventSchema {
    fn schema_name() -> Cow<'static, str> {
        "Event".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kinds: Vec<Value> = SessionEvent::schemas(generator)
            .into_iter()
            .map(|(kind, about, data)| {
                json!({ "description": about, "properties": { "type": { "const": kind }, "data": data } })
            })
            .collect();
        json_schema!({
            "description": "An event of a session's log.",
            "type": "object",
            "required": ["seq", "id", "time", "type", "data"],
            "properties": {
                "seq": { "type": "integer", "minimum": 1, "description": "Its place in the session's log" },
                "id": { "type": "string", "pattern": "^evt_" },
                "time": { "type": "integer", "description": "Milliseconds since 1970" },
            },
            "oneOf": kinds,
        })
    }
}

/// The schema of a frame's data in a session's stream.
pub(crate) struct FrameSchema;

impl JsonSchema for FrameSchema {
    fn schema_name() -> Cow<'static, str> {
        "StreamFrame".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let all =
            [generator.subschema_for::<EventSchema>(), generator.subschema_for::<LiveFrame<'_>>()];
        json_schema!({
            "description": "The `data` of one server-sent event. Its `event` is the `type`. Events of the log have an \
                            `id`, after which `Last-Event-ID` goes on.",
            "oneOf": all,
        })
    }
}
