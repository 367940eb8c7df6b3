//! The bytes that we send. They are hashed and rebuilt later, so a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{state_of, thought};
use llm_protocol::{
    CachePolicy, Dialect, Generation, Instructions, LlmRequest, Media, Message, Part, Protocol,
    RawJson, Role, SystemPart, ToolCall, ToolChoice, ToolContent, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};

fn body(request: &LlmRequest) -> Value {
    serde_json::from_slice(&Protocol::AnthropicMessages.encode(request)).unwrap()
}

fn messages(messages: Vec<Message>) -> Value {
    body(&LlmRequest::new("m", messages))["messages"].take()
}

fn state(members: &str) -> Option<RawJson> {
    state_of("anthropic", members)
}

fn image(data: &str) -> Media {
    Media { mime: "image/png".into(), data: data.into(), provider_metadata: None }
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.into(),
        description: "Does.".into(),
        input_schema: RawJson::parse(r#"{"type":"object","properties":{"b":{},"a":{}}}"#).unwrap(),
    }
}

fn hosted(call: ToolCall, provider_metadata: Option<RawJson>) -> Part {
    Part::ToolCall(ToolCall { provider_executed: true, provider_metadata, ..call })
}

/// Returns a request with everything that version 1 can send.
fn full_request() -> LlmRequest {
    let block =
        r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{"query": "x"}}"#;
    let found = r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[]}"#;
    let result = ToolResult {
        provider_metadata: state(&format!(r#""block":{found}"#)),
        ..ToolResult::text("srv", "web_search", "[]")
    };
    let mut request = LlmRequest::new(
        "m",
        vec![
            Message {
                role: Role::User,
                content: vec![Part::text("Say \"hi\"\n\u{1F600}"), Part::Media(image("AA=="))],
            },
            Message::assistant(vec![
                thought("hm", state(r#""signature":"s\"1""#)),
                thought("", state(r#""redacted":"Em==""#)),
                thought("of another", None),
                hosted(
                    ToolCall::new("srv", "web_search", r#"{"query": "x"}"#),
                    state(&format!(r#""block":{block}"#)),
                ),
                Part::ToolResult(result),
                Part::text("Reading."),
                Part::ToolCall(ToolCall::new("c0", "read", "{\"b\": 1.0,\"a\":\"é\"}")),
                Part::ToolCall(ToolCall::new("c 1", "read", "{\"broken\":")),
            ]),
            Message::tool(vec![
                common::seen("c0"),
                ToolResult::error("c 1", "read", "invalid JSON"),
            ]),
            Message::system("The date is now 2026-01-02."),
        ],
    );
    request.system = common::full_system();
    request.tools = vec![tool("read")];
    request.generation = common::full_generation();
    request.cache = CachePolicy::Auto;
    let options = json!({"metadata": {"userId": "u"}, "service_tier": "auto", "effort": "low"});
    request.provider_options.insert("anthropic".into(), options);
    let options = json!({"z": 1, "tools": [{"type": "web_search_20250305", "name": "web_search"}]});
    request.provider_options.insert("anthropic-messages".into(), options);
    request.provider_options.insert("google".into(), json!({"not": "sent"}));
    request
}

const VERSION_1: &str = concat!(
    r#"{"model":"m","system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}},"#,
    r#"{"type":"text","text":"Use tools.","cache_control":{"type":"ephemeral"}}],"messages":["#,
    r#"{"role":"user","content":[{"type":"text","text":"Say \"hi\"\n😀"},"#,
    r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},"#,
    r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s\"1"},"#,
    r#"{"type":"redacted_thinking","data":"Em=="},{"type":"text","text":"of another"},"#,
    r#"{"type":"server_tool_use","id":"srv","name":"web_search","input":{"query": "x"}},"#,
    r#"{"type":"web_search_tool_result","tool_use_id":"srv","content":[]},{"type":"text","text":"Reading."},"#,
    r#"{"type":"tool_use","id":"c0","name":"read","input":{"b": 1.0,"a":"é"}},"#,
    r#"{"type":"tool_use","id":"c_201","name":"read","input":{"invalid_json":"{\"broken\":"}}]},"#,
    r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c0","content":[{"type":"text","text":"line"},"#,
    r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},"#,
    r#"{"type":"tool_result","tool_use_id":"c_201","content":"invalid JSON","is_error":true},"#,
    r#"{"type":"text","text":"<system-update>\nThe date is now 2026-01-02.\n</system-update>","cache_control":{"type":"ephemeral"}}]}],"#,
    r#""tools":[{"name":"read","description":"Does.","input_schema":{"type":"object","properties":{"b":{},"a":{}}},"#,
    r#""cache_control":{"type":"ephemeral"}},{"name":"web_search","type":"web_search_20250305"}],"stream":true,"#,
    r#""max_tokens":100,"temperature":0,"top_p":0.95,"top_k":40,"stop_sequences":["END"],"#,
    r#""metadata":{"user_id":"u"},"output_config":{"effort":"low"},"service_tier":"auto","z":1}"#,
);

#[test]
fn version_1_writes_these_bytes() {
    common::assert_version_1(Protocol::AnthropicMessages, &full_request(), VERSION_1);
}

#[test]
fn a_longer_conversation_begins_with_the_same_messages() {
    let mut request = full_request();
    request.cache = CachePolicy::None;
    let mut before = body(&request)["messages"].take();
    request.messages.push(Message::assistant(vec![Part::text("Done.")]));
    request.messages.push(Message::user("More."));
    let after = body(&request)["messages"].take();
    let before = before.as_array_mut().unwrap();
    assert_eq!(after.as_array().unwrap()[..before.len()], before[..]);
}

#[test]
fn what_another_provider_or_model_sent_is_plain_to_this_one() {
    let foreign = RawJson::parse(r#"{"anthropic":{"model":"other","signature":"s"}}"#).unwrap();
    let call = ToolCall::new("h", "search", r#"{"q":1}"#);
    let elsewhere = RawJson::parse(r#"{"openai":{"model":"m","item":{"type":"x"}}}"#).unwrap();
    let parts = vec![
        thought("I think", Some(foreign)),
        Part::text("Searching."),
        hosted(call, Some(elsewhere)),
        Part::ToolResult(ToolResult::error("h", "search", "down")),
        hosted(ToolCall::new("lost", "search", "{}"), None),
        Part::text("So."),
        Part::ToolCall(ToolCall::new("c", "read", "{}")),
    ];
    let results = vec![ToolResult::text("c", "read", "x")];
    assert_eq!(
        messages(vec![Message::assistant(parts), Message::tool(results)]),
        json!([
            {"role": "assistant", "content": [
                {"type": "text", "text": "I think"},
                {"type": "text", "text": "Searching."},
                {"type": "tool_use", "id": "h", "name": "search", "input": {"q": 1}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "h", "content": "down", "is_error": true}
            ]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "So."},
                {"type": "tool_use", "id": "c", "name": "read", "input": {}}
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
        ])
    );
}

#[test]
fn results_of_one_batch_are_one_message_whoever_ran_the_calls() {
    let parts = vec![
        hosted(ToolCall::new("h", "search", "{}"), None),
        Part::ToolCall(ToolCall::new("c", "read", "{}")),
        Part::ToolResult(ToolResult::text("h", "search", "found")),
    ];
    let results = vec![ToolResult::text("c", "read", "x")];
    let wire = messages(vec![Message::assistant(parts), Message::tool(results)]);
    let ids = |at: usize, key: &str| -> Vec<Value> {
        wire[at]["content"].as_array().unwrap().iter().map(|block| block[key].clone()).collect()
    };
    assert_eq!(wire.as_array().unwrap().len(), 2);
    assert_eq!(ids(0, "id"), ["h", "c"]);
    assert_eq!(ids(1, "tool_use_id"), ["h", "c"]);
}

#[test]
fn ids_that_repeat_are_told_apart() {
    let turn = |result: &str| {
        [
            Message::assistant(vec![Part::ToolCall(ToolCall::new("call_0", "t", "{}"))]),
            Message::tool(vec![ToolResult::text("call_0", "t", result)]),
        ]
    };
    let wire = messages([turn("a"), turn("b")].concat());
    assert_eq!(wire[0]["content"][0]["id"], "call_0");
    assert_eq!(wire[1]["content"][0]["tool_use_id"], "call_0");
    assert_eq!(wire[2]["content"][0]["id"], "call_0_2");
    assert_eq!(wire[3]["content"][0]["tool_use_id"], "call_0_2");
}

#[test]
fn what_anthropic_refuses_is_not_sent() {
    let empty = ToolResult {
        content: vec![ToolContent::Media { mime: "image/png".into(), data: "AA==".into() }],
        is_error: true,
        ..ToolResult::text("a", "t", "")
    };
    let wire = messages(vec![
        Message::user(" \n"),
        Message::assistant(vec![Part::text(""), thought("", None)]),
        Message::tool(vec![empty, ToolResult::error("b", "t", ""), ToolResult::text("c", "t", "")]),
    ]);
    assert_eq!(
        wire,
        json!([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "is_error": true,
             "content": "[image/png is not shown: this model cannot take it here]"},
            {"type": "tool_result", "tool_use_id": "b", "is_error": true,
             "content": "the call failed and said nothing"},
            {"type": "tool_result", "tool_use_id": "c", "content": ""}
        ]}])
    );
}

#[test]
fn media_are_images_documents_or_said_to_be_left_out() {
    let media = |mime: &str, data: &str| {
        Part::Media(Media { mime: mime.into(), data: data.into(), provider_metadata: None })
    };
    let content = vec![
        media("image/webp", "https://h/a.webp"),
        media("application/pdf", "JVBE"),
        media("audio/wav", "AA=="),
    ];
    assert_eq!(
        messages(vec![Message { role: Role::User, content }])[0]["content"],
        json!([
            {"type": "image", "source": {"type": "url", "url": "https://h/a.webp"}},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}},
            {"type": "text", "text": "[audio/wav is not shown: this model cannot take it here]"}
        ])
    );
}

#[test]
fn thinking_raises_the_bound_and_takes_controls_away() {
    let mut request = LlmRequest::new("m", vec![Message::user("hi")]);
    request.generation.temperature = Some(0.5);
    request.generation.top_k = Some(5);
    request.generation.top_p = Some(0.5);
    request.generation.max_tokens = Some(1000);
    let thinking = json!({"thinking": {"type": "enabled", "budgetTokens": 2000}});
    request.provider_options.insert("anthropic".into(), thinking);
    let rest = |request: &LlmRequest| {
        let mut body = body(request);
        let body = body.as_object_mut().unwrap();
        for key in ["model", "messages", "stream", "tools"] {
            body.remove(key);
        }
        json!(body)
    };
    let enabled = json!({"type": "enabled", "budget_tokens": 2000});
    assert_eq!(rest(&request), json!({"max_tokens": 3000, "thinking": enabled}));
    request.generation.max_tokens = Some(2001);
    assert_eq!(rest(&request), json!({"max_tokens": 2001, "thinking": enabled}));
    // A forced tool call excludes thinking.
    request.tools = vec![tool("t")];
    request.tool_choice = ToolChoice::Required;
    assert_eq!(
        rest(&request),
        json!({"max_tokens": 2001, "temperature": 0.5, "top_k": 5, "top_p": 0.5, "tool_choice": {"type": "any"}})
    );
    // The body's own names, and no options.
    request.tool_choice = ToolChoice::None;
    request.provider_options.clear();
    let raw = json!({"thinking": {"type": "adaptive"}, "max_tokens": null, "temperature": 1});
    request.provider_options.insert("anthropic-messages".into(), raw);
    request.generation = Generation::default();
    assert_eq!(
        rest(&request),
        json!({"max_tokens": 4096, "temperature": 1, "thinking": {"type": "adaptive"}, "tool_choice": {"type": "none"}})
    );
}

#[test]
fn one_tool_at_a_time_is_said_with_the_choice() {
    let mut request = LlmRequest::new("m", vec![]);
    request.tools = vec![tool("t")];
    request.provider_options.insert("anthropic".into(), json!({"disable_parallel_tool_use": true}));
    assert_eq!(
        body(&request)["tool_choice"],
        json!({"type": "auto", "disable_parallel_tool_use": true})
    );
    request.tool_choice = ToolChoice::Tool("t".into());
    assert_eq!(
        body(&request)["tool_choice"],
        json!({"type": "tool", "name": "t", "disable_parallel_tool_use": true})
    );
    request.tools.clear();
    assert_eq!(body(&request).get("tool_choice"), None);
}

/// Returns the paths of the marks in a body.
fn marks(request: &LlmRequest) -> Vec<String> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    match key.as_str() {
                        "cache_control" => found.push(path.to_owned()),
                        _ => walk(value, &format!("{path}/{key}"), found),
                    }
                }
            }
            Value::Array(items) => {
                for (at, value) in items.iter().enumerate() {
                    walk(value, &format!("{path}/{at}"), found);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = Vec::new();
    walk(&body(request), "", &mut found);
    found.sort();
    found
}

#[test]
fn marks_are_four_at_most_and_only_where_they_are_accepted() {
    let mut request = LlmRequest::new("m", Vec::new());
    request.system = vec![SystemPart::text("a"), SystemPart::text("b"), SystemPart::text(" ")];
    request.tools = vec![tool("t"), tool("u")];
    request.messages = vec![
        Message::user("hi"),
        Message::assistant(vec![Part::text("x"), thought("t", state(r#""signature":"s""#))]),
        Message::user(""),
    ];
    request.cache = CachePolicy::Auto;
    let expected = ["/messages/1/content/0", "/system/0", "/system/1", "/tools/1"];
    assert_eq!(marks(&request), expected);
    let many = r#"{"tools":true,"system":true,"messages":{"tail":9},"ttlSeconds":3600}"#;
    request.cache = serde_json::from_str(many).unwrap();
    assert_eq!(marks(&request), expected);
    assert_eq!(
        body(&request)["tools"][1]["cache_control"],
        json!({"type": "ephemeral", "ttl": "1h"})
    );
    request.cache = CachePolicy::None;
    assert_eq!(marks(&request), [""; 0]);
}

#[test]
fn instructions_in_the_middle_are_native_where_the_dialect_and_their_place_allow() {
    let dialect = Dialect { instructions: Some(Instructions::System), ..Dialect::default() };
    let wire = |messages: Vec<Message>| {
        let request = LlmRequest::new("m", messages);
        let body = Protocol::AnthropicMessages.encode_for(&request, &dialect);
        serde_json::from_slice::<Value>(&body).unwrap()["messages"].take()
    };
    let said = || Message::assistant(vec![Part::text("ok")]);
    let roles = |wire: &Value| -> Vec<String> {
        let roles = wire.as_array().unwrap().iter().map(|message| &message["role"]);
        roles.map(|role| role.as_str().unwrap().to_owned()).collect()
    };
    let native = wire(vec![Message::user("a"), Message::system("b"), said()]);
    assert_eq!(roles(&native), ["user", "system", "assistant"]);
    assert_eq!(native[1]["content"], json!([{"type": "text", "text": "b"}]));
    let wrapped = wire(vec![said(), Message::system("b"), Message::user("a")]);
    assert_eq!(roles(&wrapped), ["assistant", "user", "user"]);
    assert_eq!(wrapped[1]["content"][0]["text"], "<system-update>\nb\n</system-update>");
}

#[test]
fn a_dialect_changes_the_body_and_whose_state_goes_back() {
    let dialect = Dialect {
        state_key: Some("vertex".into()),
        omit: vec!["model".into(), "temperature".into()],
        body: serde_json::from_value(json!({"anthropic_version": "vertex-2023-10-16"})).unwrap(),
        ..Dialect::default()
    };
    let ours = RawJson::parse(r#"{"vertex":{"model":"m","signature":""}}"#).unwrap();
    let said = Message::assistant(vec![
        thought("a", Some(ours)),
        thought("b", state(r#""signature":"s""#)),
    ]);
    let mut request = LlmRequest::new("m", vec![said]);
    request.generation.temperature = Some(1.0);
    let body = Protocol::AnthropicMessages.encode_for(&request, &dialect);
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({"messages": [{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "a", "signature": ""}, {"type": "text", "text": "b"}
        ]}], "stream": true, "max_tokens": 4096, "anthropic_version": "vertex-2023-10-16"})
    );
}

#[test]
fn a_conversation_with_calls_names_their_tools_where_none_are_offered() {
    let called = vec![
        Message::assistant(vec![Part::ToolCall(ToolCall::new("a", "functions.read", "{}"))]),
        Message::tool(vec![ToolResult::text("a", "functions.read", "x")]),
    ];
    let mut request = LlmRequest::new("m", called);
    let sent = body(&request);
    let any =
        json!({"name": "functions_read", "description": "", "input_schema": {"type": "object"}});
    assert_eq!((&sent["tools"], &sent["tool_choice"]), (&json!([any]), &json!({"type": "none"})));
    assert_eq!(sent["messages"][0]["content"][0]["name"], "functions_read");
    request.tools = vec![tool("t")];
    let sent = body(&request);
    assert_eq!((&sent["tools"][0]["name"], sent.get("tool_choice")), (&json!("t"), None));
}

#[test]
fn options_are_in_snake_case_at_every_depth() {
    let mut request = LlmRequest::new("m", vec![]);
    let options = json!({
        "contextManagement": {"edits": [{"type": "clear_tool_uses_20250919", "clearAtLeast": {"type": "input_tokens", "value": 1}}]},
        "mcpServers": [{"type": "url", "name": "n", "url": "https://h", "authorizationToken": "t"}],
    });
    request.provider_options.insert("anthropic".into(), options);
    let sent = body(&request);
    assert_eq!(
        sent["context_management"],
        json!({"edits": [{"type": "clear_tool_uses_20250919", "clear_at_least": {"type": "input_tokens", "value": 1}}]})
    );
    assert_eq!(sent["mcp_servers"][0]["authorization_token"], "t");
}
