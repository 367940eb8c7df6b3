use super::*;
use crate::{Delivery, ErrorReason, FinishReason, ToolResult, Usage};

/// Returns the first rule of the schema that a value breaks. Knows only the keywords that our schemas use.
fn breaks(root: &Value, schema: &Value, value: &Value) -> Option<String> {
    let Some(rules) = schema.as_object() else {
        return (schema == &Value::Bool(false)).then(|| "nothing is allowed".to_owned());
    };
    let tell = |what: &str| Some(format!("{what}: {value} against {schema}"));
    let holds = |schema: &&Value| breaks(root, schema, value).is_none();
    for (rule, what) in rules {
        let list = || what.as_array().unwrap().iter();
        let broken = match rule.as_str() {
            "$ref" => {
                let pointer = what.as_str().unwrap().strip_prefix('#').unwrap();
                breaks(root, root.pointer(pointer).unwrap(), value)
            }
            "type" => {
                let is = |name: &str| match name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "boolean" => value.is_boolean(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                let fits =
                    what.as_str().map_or_else(|| list().any(|name| is(name.as_str().unwrap())), is);
                (!fits).then(|| tell("type")).flatten()
            }
            "const" => (what != value).then(|| tell("const")).flatten(),
            "enum" => (!list().any(|one| one == value)).then(|| tell("enum")).flatten(),
            "anyOf" => (!list().any(|one| holds(&one))).then(|| tell("anyOf")).flatten(),
            "oneOf" => (list().filter(holds).count() != 1).then(|| tell("oneOf")).flatten(),
            "required" => {
                let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                (!list().all(has)).then(|| tell("required")).flatten()
            }
            "properties" => what.as_object().unwrap().iter().find_map(|(name, schema)| {
                value.get(name).and_then(|member| breaks(root, schema, member))
            }),
            "items" => {
                value.as_array().into_iter().flatten().find_map(|item| breaks(root, what, item))
            }
            "additionalProperties" if what == &Value::Bool(false) => {
                let known = rules["properties"].as_object().unwrap();
                let mut names = value.as_object().into_iter().flat_map(|object| object.keys());
                let odd = names.any(|name| !known.contains_key(name));
                odd.then(|| tell("unknown")).flatten()
            }
            "$schema"
            | "$defs"
            | "title"
            | "description"
            | "default"
            | "format"
            | "minimum"
            | "maximum"
            | "additionalProperties" => None,
            other => panic!("a rule that this test does not know: {other}"),
        };
        if broken.is_some() {
            return broken;
        }
    }
    None
}

fn check_request(value: &Value) -> Option<String> {
    let schema = request();
    breaks(&schema, &schema, value)
}

#[test]
fn the_documented_request_fits_its_schema() {
    let value = json!({"model": "m", "system": [{"type": "text", "text": "s"}], "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "media", "mime": "image/png", "data": "AA=="}]},
            {"role": "assistant", "content": [
                {"type": "reasoning", "text": "hm", "providerMetadata": {"openai": {"itemId": "x"}}},
                {"type": "tool-call", "id": "c", "name": "t", "input": {"a": 1}, "providerExecuted": true},
                {"type": "tool-call", "id": "d", "name": "t", "inputText": "{"}]},
            {"role": "tool", "content": [
                {"type": "tool-result", "id": "c", "name": "t", "content": "ok", "isError": false},
                {"type": "tool-result", "id": "d", "name": "t", "content": [{"type": "text", "text": "ok"}]}]},
            {"role": "system", "content": [{"type": "text", "text": "now"}]}],
        "tools": [{"name": "t", "description": "d", "inputSchema": {}}], "toolChoice": {"tool": "t"},
        "generation": {"maxTokens": 5, "temperature": 0.5, "topP": 0.5, "topK": 4, "stop": ["x"], "seed": -1},
        "providerOptions": {"openai": {}}, "cache": "auto"});
    assert_eq!(check_request(&value), None);
    serde_json::from_value::<LlmRequest>(value.clone()).unwrap();
    for (pointer, other) in [
        ("/cache", json!({"system": true, "messages": {"tail": 1}, "ttlSeconds": 300})),
        ("/cache", json!("none")),
        ("/toolChoice", json!("required")),
        ("/model", json!("")),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(pointer).unwrap() = other;
        assert_eq!(check_request(&value), None);
        serde_json::from_value::<LlmRequest>(value).unwrap();
    }
}

#[test]
fn what_is_refused_does_not_fit_either() {
    for value in [
        json!({"model": "m"}),
        json!({"messages": [{"role": "owner", "content": []}]}),
        json!({"messages": [{"role": "user", "content": "hi"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}),
        json!({"messages": [{"role": "assistant", "content": [{"type": "tool-call", "id": "c", "name": "t"}]}]}),
        json!({"messages": [], "cache": "often"}),
        json!({"messages": [], "generation": {"maxTokens": "many"}}),
    ] {
        assert!(check_request(&value).is_some(), "{value}");
        assert!(serde_json::from_value::<LlmRequest>(value).is_err());
    }
}

#[test]
fn every_event_fits_its_schema() {
    let id = || "a".to_owned();
    let state = || Some(RawJson::parse(r#"{"openai":{}}"#).unwrap());
    let (reason, usage) = (FinishReason::ToolCalls, Some(Usage::default()));
    let events = [
        LlmEvent::TextStart { id: id() },
        LlmEvent::TextDelta { id: id(), text: "x".into() },
        LlmEvent::TextEnd { id: id(), provider_metadata: state() },
        LlmEvent::ReasoningStart { id: id() },
        LlmEvent::ReasoningDelta { id: id(), text: "x".into() },
        LlmEvent::ReasoningEnd { id: id(), provider_metadata: None },
        LlmEvent::ToolInputStart { id: id(), name: "t".into() },
        LlmEvent::ToolInputDelta { id: id(), text: "x".into() },
        LlmEvent::ToolInputEnd { id: id() },
        LlmEvent::ToolCall(ToolCall::new("a", "t", "{}")),
        LlmEvent::ToolCall(ToolCall::new("a", "t", "{")),
        LlmEvent::ToolResult(ToolResult::error("a", "t", "no")),
        LlmEvent::StepFinish { reason, usage: None },
        LlmEvent::Finish { reason, usage },
    ];
    let schema = event();
    for event in events {
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(breaks(&schema, &schema, &value), None);
    }
    let mut error = ErrorEvent {
        reason: ErrorReason::Quota.name(),
        retryable: false,
        retry_after_ms: Some(1),
        delivery: Delivery::Accepted,
        status: Some(402),
        message: "m".into(),
        provider_message: String::new(),
        request_id: None,
    };
    let value = serde_json::to_value(&error).unwrap();
    assert_eq!(breaks(&schema, &schema, &value), None);
    error.reason = "odd";
    let value = serde_json::to_value(&error).unwrap();
    assert!(breaks(&schema, &schema, &value).is_some());
}
