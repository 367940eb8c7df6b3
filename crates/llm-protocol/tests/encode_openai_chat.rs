//! The bytes that we send. They are hashed and rebuilt later: a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use llm_protocol::{
    Generation, LlmRequest, Message, Part, Protocol, RawJson, SystemPart, TextPart, ToolCall,
    ToolChoice, ToolContent, ToolDefinition, ToolResult, openai_chat,
};
use serde_json::{Value, json};

fn body(request: &LlmRequest) -> String {
    String::from_utf8(openai_chat::encode(request)).unwrap()
}

fn messages(messages: Vec<Message>) -> Value {
    let body = body(&LlmRequest::new("m", messages));
    serde_json::from_str::<Value>(&body).unwrap()["messages"].take()
}

/// Everything that version 1 can send.
fn full_request() -> LlmRequest {
    let thought = Part::Reasoning(TextPart { text: "hm".into(), provider_metadata: None });
    let calls = ["{\"b\": 1.0,\"a\":\"é\"}", "{\"broken\":"];
    let calls = calls
        .into_iter()
        .enumerate()
        .map(|(at, arguments)| Part::ToolCall(ToolCall::new(format!("c{at}"), "read", arguments)));
    let mut answer = vec![thought, Part::text("Reading.")];
    answer.extend(calls);
    let mut request = LlmRequest::new(
        "m/1",
        vec![
            Message::user("Say \"hi\"\n\u{1F600}"),
            Message::assistant(answer),
            Message::tool(vec![
                ToolResult::text("c0", "read", "line"),
                ToolResult::error("c1", "read", "invalid JSON"),
            ]),
            Message::system("The date is now 2026-01-02."),
        ],
    );
    request.system = vec![SystemPart::text("Be brief."), SystemPart::text("Use tools.")];
    request.tools = vec![ToolDefinition {
        name: "read".into(),
        description: "Reads a file.".into(),
        input_schema: RawJson::parse(
            r#"{"type":"object","properties":{"b":{"type":"number"},"a":{}}}"#,
        )
        .unwrap(),
    }];
    request.tool_choice = ToolChoice::Required;
    request.generation = Generation {
        max_tokens: Some(100),
        temperature: Some(0.0),
        top_p: Some(0.95),
        top_k: Some(40),
        stop: vec!["END".into()],
        seed: Some(-7),
    };
    let options = json!({"store": false, "metadata": {"z": 1, "a": [null, 2.5]}});
    request.provider_options.insert("openai-chat".into(), options);
    request.provider_options.insert("gemini".into(), json!({"not": "sent"}));
    request
}

const VERSION_1: &str = concat!(
    r#"{"model":"m/1","messages":[{"role":"system","content":"Be brief.\nUse tools."},"#,
    r#"{"role":"user","content":"Say \"hi\"\n😀"},"#,
    r#"{"role":"assistant","content":"Reading.","tool_calls":["#,
    r#"{"id":"c0","type":"function","function":{"name":"read","arguments":"{\"b\": 1.0,\"a\":\"é\"}"}},"#,
    r#"{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"broken\":"}}]},"#,
    r#"{"role":"tool","tool_call_id":"c0","content":"line"},"#,
    r#"{"role":"tool","tool_call_id":"c1","content":"Error: invalid JSON"},"#,
    r#"{"role":"system","content":"The date is now 2026-01-02."}],"#,
    r#""tools":[{"type":"function","function":{"name":"read","description":"Reads a file.","#,
    r#""parameters":{"type":"object","properties":{"b":{"type":"number"},"a":{}}}}}],"#,
    r#""tool_choice":"required","stream":true,"stream_options":{"include_usage":true},"#,
    r#""max_tokens":100,"temperature":0,"top_p":0.95,"top_k":40,"seed":-7,"stop":["END"],"#,
    r#""metadata":{"a":[null,2.5],"z":1},"store":false}"#,
);

#[test]
fn version_1_writes_these_bytes() {
    assert_eq!(openai_chat::WIRE_VERSION, 1, "keep this corpus and add one for the new version");
    assert_eq!(body(&full_request()), VERSION_1);
}

#[test]
fn a_request_read_from_neutral_json_encodes_to_the_same_bytes() {
    let request = full_request();
    let neutral = serde_json::to_string(&request).unwrap();
    let read: LlmRequest = serde_json::from_str(&neutral).unwrap();
    assert_eq!(read, request);
    assert_eq!(Protocol::OpenAiChat.encode(&read), VERSION_1.as_bytes());
}

#[test]
fn the_neutral_json_is_the_documented_one() {
    let neutral = r#"{"model":"m","system":[{"type":"text","text":"s"}],"messages":[
        {"role":"user","content":[{"type":"text","text":"hi"}]},
        {"role":"assistant","content":[{"type":"tool-call","id":"c","name":"t","input":{"a": 1}}]},
        {"role":"tool","content":[{"type":"tool-result","id":"c","name":"t","content":"ok","isError":false}]}],
        "tools":[{"name":"t","description":"d","inputSchema":{}}],"toolChoice":{"tool":"t"},
        "generation":{"maxTokens":5,"topP":0.5},"providerOptions":{},"cache":"auto"}"#;
    let request: LlmRequest = serde_json::from_str(neutral).unwrap();
    let body = body(&request);
    assert!(body.contains(r#""arguments":"{\"a\": 1}""#), "{body}");
    assert!(
        body.contains(r#""tool_choice":{"type":"function","function":{"name":"t"}}"#),
        "{body}"
    );
    assert!(body.ends_with(r#""max_tokens":5,"top_p":0.5}"#), "{body}");
}

#[test]
fn options_replace_or_remove_controls_but_not_what_is_asked() {
    let mut request = LlmRequest::new("m", vec![Message::user("hi")]);
    request.generation.max_tokens = Some(5);
    let options =
        json!({"max_tokens": null, "max_completion_tokens": 9, "model": "other", "stream": false});
    request.provider_options.insert("openai-chat".into(), options);
    assert_eq!(
        body(&request),
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9}"#
    );
}

#[test]
fn a_choice_without_tools_is_not_sent() {
    let mut request = LlmRequest::new("m", vec![]);
    request.tool_choice = ToolChoice::Required;
    assert!(!body(&request).contains("tool_choice"));
}

#[test]
fn an_assistant_message_with_calls_only_has_null_content_and_one_of_reasoning_is_left_out() {
    let thought = Part::Reasoning(TextPart { text: "hm".into(), provider_metadata: None });
    let call = Part::ToolCall(ToolCall::new("c", "t", ""));
    assert_eq!(
        messages(vec![
            Message::assistant(vec![thought.clone()]),
            Message::assistant(vec![thought, call])
        ]),
        json!([{"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "t", "arguments": ""}}
        ]}])
    );
}

#[test]
fn results_of_a_provider_that_ran_its_tools_follow_the_message() {
    let hosted = ToolCall { provider_executed: true, ..ToolCall::new("c", "search", "{}") };
    let mut result = ToolResult::text("c", "search", "found");
    result.content.push(ToolContent::Text { text: "more".into() });
    let parts = vec![Part::ToolCall(hosted), Part::ToolResult(result), Part::text("So.")];
    assert_eq!(
        messages(vec![Message::assistant(parts)]),
        json!([
            {"role": "assistant", "content": "So.", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
            ]},
            {"role": "tool", "tool_call_id": "c", "content": "found\nmore"}
        ])
    );
}

#[test]
fn an_empty_result_is_sent_and_an_empty_failure_is_still_one() {
    let results = vec![ToolResult::text("a", "t", ""), ToolResult::error("b", "t", "")];
    assert_eq!(
        messages(vec![Message::tool(results)]),
        json!([
            {"role": "tool", "tool_call_id": "a", "content": ""},
            {"role": "tool", "tool_call_id": "b", "content": "Error: "}
        ])
    );
}
