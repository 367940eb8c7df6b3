//! The bytes that we send. They are hashed and rebuilt later, so a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{media, state_of, thought};
use llm_protocol::{
    CachePolicy, Dialect, Generation, LlmRequest, Message, Part, Protocol, RawJson, Role, ToolCall,
    ToolChoice, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};

const BEDROCK: Protocol = Protocol::BedrockConverse;

fn body_for(request: &LlmRequest, dialect: &Dialect) -> Value {
    serde_json::from_slice(&BEDROCK.encode_for(request, dialect)).unwrap()
}

fn body(request: &LlmRequest) -> Value {
    body_for(request, &Dialect::default())
}

fn messages(messages: Vec<Message>) -> Value {
    body(&LlmRequest::new("m", messages))["messages"].take()
}

fn state(members: &str) -> Option<RawJson> {
    state_of("bedrock", members)
}

fn hosted(provider_metadata: Option<RawJson>) -> Part {
    let call = ToolCall::new("g", "nova_grounding", r#"{"q": 1}"#);
    Part::ToolCall(ToolCall { provider_executed: true, provider_metadata, ..call })
}

fn found(provider_metadata: Option<RawJson>) -> Part {
    let result = ToolResult::text("g", "nova_grounding", "found");
    Part::ToolResult(ToolResult { provider_metadata, ..result })
}

fn tool(name: &str) -> ToolDefinition {
    ToolDefinition {
        name: name.into(),
        description: "Does.".into(),
        input_schema: RawJson::parse(r#"{"type":"object","properties":{"b":{},"a":{}}}"#).unwrap(),
    }
}

/// Returns a request with everything that version 1 can send.
fn full_request() -> LlmRequest {
    let own_call = r#""block":{"toolUse":{"toolUseId":"g","name":"nova_grounding","input":{"q": 1},"type":"server_tool_use"}}"#;
    let own_result =
        r#""block":{"toolResult":{"toolUseId":"g","content":[{"text":"found"}],"type":"t"}}"#;
    let user = vec![
        Part::text("Say \"hi\"\n\u{1F600}"),
        media("image/jpeg", "AA=="),
        media("application/pdf", "AA=="),
    ];
    let mut request = LlmRequest::new(
        "m",
        vec![
            Message { role: Role::User, content: user },
            Message::assistant(vec![
                thought("hm", state(r#""signature":"s\"1""#)),
                thought("", state(r#""redacted":"Em==""#)),
                thought("of another", None),
                hosted(state(own_call)),
                found(state(own_result)),
                Part::text("Reading."),
                Part::ToolCall(ToolCall::new("c0", "read", "{\"b\": 1.0,\"a\":\"é\"}")),
                Part::ToolCall(ToolCall::new("c 1", "read", "{\"broken\":")),
            ]),
            Message::tool(vec![
                common::seen("c0"),
                ToolResult::error("c 1", "read", "invalid JSON"),
            ]),
            Message::system("The date is now 2026-01-02."),
            Message::user("Go on."),
        ],
    );
    request.system = common::full_system();
    request.tools = vec![tool("read")];
    request.tool_choice = ToolChoice::Required;
    request.generation = common::full_generation();
    request.cache = CachePolicy::Auto;
    let guard = json!({"guardrailConfig": {"guardrailVersion": "1", "guardrailIdentifier": "g"}, "service_tier": "flex"});
    request.provider_options.insert("bedrock".into(), guard);
    let options = json!({
        "z": 1, "inferenceConfig": {"topP": null}, "tools": [{"systemTool": {"name": "nova_grounding"}}],
    });
    request.provider_options.insert("bedrock-converse".into(), options);
    request.provider_options.insert("google".into(), json!({"not": "sent"}));
    request
}

const VERSION_1: &str = concat!(
    r#"{"modelId":"m","messages":[{"role":"user","content":[{"text":"Say \"hi\"\n😀"},"#,
    r#"{"image":{"format":"jpeg","source":{"bytes":"AA=="}}},"#,
    r#"{"document":{"format":"pdf","name":"document-1","source":{"bytes":"AA=="}}}]},"#,
    r#"{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s\"1"}}},"#,
    r#"{"reasoningContent":{"redactedContent":"Em=="}},{"text":"of another"},"#,
    r#"{"toolUse":{"toolUseId":"g","name":"nova_grounding","input":{"q": 1},"type":"server_tool_use"}},"#,
    r#"{"toolResult":{"toolUseId":"g","content":[{"text":"found"}],"type":"t"}},{"text":"Reading."},"#,
    r#"{"toolUse":{"toolUseId":"c0","name":"read","input":{"b": 1.0,"a":"é"}}},"#,
    r#"{"toolUse":{"toolUseId":"c_201","name":"read","input":{"invalid_json":"{\"broken\":"}}}]},"#,
    r#"{"role":"user","content":[{"toolResult":{"toolUseId":"c0","content":[{"text":"line"},"#,
    r#"{"image":{"format":"png","source":{"bytes":"AA=="}}}]}},"#,
    r#"{"toolResult":{"toolUseId":"c_201","content":[{"text":"invalid JSON"}],"status":"error"}},"#,
    r#"{"text":"<system-update>\nThe date is now 2026-01-02.\n</system-update>"},"#,
    r#"{"text":"Go on."},{"cachePoint":{"type":"default"}}]}],"#,
    r#""system":[{"text":"Be brief."},{"cachePoint":{"type":"default"}},{"text":"Use tools."},{"cachePoint":{"type":"default"}}],"#,
    r#""toolConfig":{"tools":[{"toolSpec":{"name":"read","description":"Does.","inputSchema":{"json":{"type":"object","properties":{"b":{},"a":{}}}}}},"#,
    r#"{"cachePoint":{"type":"default"}},{"systemTool":{"name":"nova_grounding"}}],"toolChoice":{"any":{}}},"#,
    r#""additionalModelRequestFields":{"top_k":40},"guardrailConfig":{"guardrailIdentifier":"g","guardrailVersion":"1"},"#,
    r#""inferenceConfig":{"maxTokens":100,"stopSequences":["END"],"temperature":0},"serviceTier":{"type":"flex"},"z":1}"#,
);

#[test]
fn version_1_writes_these_bytes() {
    common::assert_version_1(BEDROCK, &full_request(), VERSION_1);
}

#[test]
fn state_of_another_model_or_provider_is_not_sent() {
    let foreign = |key: &str, model: &str| {
        let text = format!(
            r#"{{"{key}":{{"model":"{model}","signature":"SECRET","redacted":"SECRET","block":{{"SECRET":1}}}}}}"#
        );
        Some(RawJson::parse(text).unwrap())
    };
    for (key, model) in [("bedrock", "other"), ("anthropic", "m")] {
        let state = || foreign(key, model);
        let said =
            vec![thought("hm", state()), thought("", state()), hosted(state()), found(state())];
        let sent =
            messages(vec![Message::user("Hi"), Message::assistant(said), Message::user("So?")]);
        assert_eq!(
            sent,
            json!([
                {"role": "user", "content": [{"text": "Hi"}]},
                {"role": "assistant", "content": [
                    {"text": "hm"},
                    {"toolUse": {"toolUseId": "g", "name": "nova_grounding", "input": {"q": 1}}},
                ]},
                {"role": "user", "content": [
                    {"toolResult": {"toolUseId": "g", "content": [{"text": "found"}]}},
                    {"text": "So?"},
                ]},
            ])
        );
    }
}

#[test]
fn a_longer_conversation_begins_with_the_same_messages() {
    let mut request = full_request();
    request.cache = CachePolicy::None;
    let before = body(&request)["messages"].take();
    request
        .messages
        .push(Message::assistant(vec![Part::text("Done."), media("image/png", "AA==")]));
    let after = body(&request)["messages"].take();
    let (before, after) = (before.as_array().unwrap(), after.as_array().unwrap());
    assert_eq!(after[..before.len()], before[..]);
    let note = "[image/png is not shown: this model cannot take it here]";
    assert_eq!(
        after[3],
        json!({"role": "assistant", "content": [{"text": "Done."}, {"text": note}]})
    );
}

#[test]
fn blank_texts_and_messages_of_nothing_are_left_out() {
    let sent = messages(vec![
        Message::user("Hi"),
        Message::assistant(vec![Part::text(" \n"), thought("", None)]),
        Message::system(""),
        Message::user("Still there?"),
        Message::assistant(vec![Part::ToolCall(ToolCall::new("a", "t", ""))]),
        Message::tool(vec![ToolResult::text("a", "t", "")]),
    ]);
    assert_eq!(
        sent,
        json!([
            {"role": "user", "content": [{"text": "Hi"}, {"text": "Still there?"}]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "t", "input": {}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": []}}]},
        ])
    );
}

#[test]
fn tools_are_there_wherever_calls_are() {
    let called = vec![
        Message::assistant(vec![Part::ToolCall(ToolCall::new("a", "read", "{}"))]),
        Message::tool(vec![ToolResult::text("a", "read", "x")]),
    ];
    let any = json!({"tools": [{"toolSpec": {"name": "read", "inputSchema": {"json": {"type": "object"}}}}]});
    assert_eq!(body(&LlmRequest::new("m", called.clone()))["toolConfig"], any);

    let mut request = LlmRequest::new("m", vec![Message::user("Hi")]);
    assert_eq!(body(&request)["toolConfig"], Value::Null);
    request.tools = vec![tool("read")];
    request.tool_choice = ToolChoice::None;
    assert_eq!(body(&request)["toolConfig"], Value::Null, "it cannot be said otherwise");
    request.messages = called;
    let config = body(&request)["toolConfig"].take();
    assert_eq!(
        (&config["tools"][0]["toolSpec"]["name"], &config["toolChoice"]),
        (&json!("read"), &Value::Null)
    );
    request.tool_choice = ToolChoice::Tool("read".into());
    assert_eq!(body(&request)["toolConfig"]["toolChoice"], json!({"tool": {"name": "read"}}));
}

#[test]
fn there_are_never_more_than_four_cache_points() {
    let mut request = full_request();
    request.cache =
        serde_json::from_str(r#"{"tools":true,"system":true,"messages":{"tail":9}}"#).unwrap();
    assert_eq!(body(&request).to_string().matches("cachePoint").count(), 4);
    request.cache = CachePolicy::None;
    assert_eq!(body(&request).to_string().matches("cachePoint").count(), 0);
}

fn reasoning(model: &str, config: &Value, max_tokens: Option<u64>) -> (Value, Value) {
    let mut request = LlmRequest::new(model, vec![Message::user("Hi")]);
    request.generation =
        Generation { max_tokens, temperature: Some(0.5), top_k: Some(4), ..Generation::default() };
    request.provider_options.insert("bedrock".into(), json!({ "reasoningConfig": config }));
    let mut body = body(&request);
    (body["inferenceConfig"].take(), body["additionalModelRequestFields"].take())
}

#[test]
fn reasoning_is_asked_for_as_each_family_has_it() {
    let claude = "us.anthropic.claude-sonnet-4-5";
    let budget = json!({"type": "enabled", "budgetTokens": 2000});
    let thinking = json!({"reasoning_config": {"type": "enabled", "budget_tokens": 2000}});
    assert_eq!(reasoning(claude, &budget, None), (json!({"maxTokens": 6096}), thinking.clone()));
    assert_eq!(
        reasoning(claude, &budget, Some(2000)),
        (json!({"maxTokens": 4000}), thinking.clone())
    );
    assert_eq!(reasoning(claude, &budget, Some(2001)), (json!({"maxTokens": 2001}), thinking));
    let off = json!({"type": "disabled"});
    let kept = json!({"reasoning_config": {"type": "disabled"}, "top_k": 4});
    assert_eq!(reasoning(claude, &off, None), (json!({"temperature": 0.5}), kept));
    let effort = json!({"type": "enabled", "maxReasoningEffort": "high"});
    let nova = json!({"reasoningConfig": effort, "inferenceConfig": {"topK": 4}});
    assert_eq!(
        reasoning("us.amazon.nova-2-lite-v1:0", &effort, None),
        (json!({"temperature": 0.5}), nova)
    );
    let gpt = json!({"reasoning_effort": "high", "top_k": 4});
    assert_eq!(
        reasoning("openai.gpt-oss-120b-1:0", &effort, None),
        (json!({"temperature": 0.5}), gpt)
    );
}

#[test]
fn a_dialect_omits_controls_by_the_names_that_most_protocols_have_for_them() {
    let omit = ["temperature", "top_p", "top_k"].map(str::to_owned).to_vec();
    let mut request = full_request();
    request.cache = CachePolicy::None;
    let sent = body_for(&request, &Dialect { omit, ..Dialect::default() });
    assert_eq!(sent["inferenceConfig"], json!({"maxTokens": 100, "stopSequences": ["END"]}));
    assert_eq!(sent["additionalModelRequestFields"], Value::Null);
}

#[test]
fn cache_points_are_for_an_hour_where_that_is_asked() {
    let mut request = full_request();
    let hour = r#"{"tools":true,"system":true,"messages":{"tail":1},"ttlSeconds":3600}"#;
    request.cache = serde_json::from_str(hour).unwrap();
    request.system.push(common::full_system().remove(0));
    let sent = body(&request).to_string();
    assert_eq!(sent.matches(r#""cachePoint":{"ttl":"1h","type":"default"}"#).count(), 4, "{sent}");
    request.system.push(llm_protocol::SystemPart::text(" "));
    let sent = body(&request);
    assert_eq!(
        sent["system"].as_array().unwrap().last(),
        Some(&json!({"cachePoint": {"type": "default", "ttl": "1h"}}))
    );
}

#[test]
fn ids_and_names_are_what_bedrock_takes() {
    let id = "call:".repeat(20);
    let call = Part::ToolCall(ToolCall::new(&id, "functions.read", "{}"));
    let sent = messages(vec![
        Message::assistant(vec![call]),
        Message::tool(vec![ToolResult::text(&id, "functions.read", "x")]),
    ]);
    let call = &sent[0]["content"][0]["toolUse"];
    let given = call["toolUseId"].as_str().unwrap();
    assert!(given.len() <= 64 && !given.contains(':'), "{given}");
    assert_eq!(call["name"], "functions_read");
    assert_eq!(sent[1]["content"][0]["toolResult"]["toolUseId"], given);
}

#[test]
fn a_document_has_a_text_beside_it() {
    let kinds = |content: Vec<Part>| -> Vec<String> {
        let sent = messages(vec![Message { role: Role::User, content }]);
        let blocks = sent[0]["content"].as_array().unwrap().iter();
        blocks.map(|block| block.as_object().unwrap().keys().next().unwrap().clone()).collect()
    };
    let pdf = || media("application/pdf", "AA==");
    assert_eq!(kinds(vec![pdf()]), ["text", "document"]);
    assert_eq!(kinds(vec![pdf(), Part::text("Sum it up.")]), ["document", "text"]);
    assert_eq!(kinds(vec![media("image/png", "AA==")]), ["image"]);
}
