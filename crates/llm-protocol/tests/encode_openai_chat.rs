//! The bytes that we send. They are hashed and rebuilt later, so a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::media;
use llm_protocol::{
    CallIdForm, Dialect, LlmRequest, Message, Part, Protocol, RawJson, Role, SystemPart, TextPart,
    ToolCall, ToolChoice, ToolContent, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};

fn body(request: &LlmRequest) -> String {
    String::from_utf8(Protocol::OpenAiChat.encode(request)).unwrap()
}

fn messages(messages: Vec<Message>) -> Value {
    let body = body(&LlmRequest::new("m", messages));
    serde_json::from_str::<Value>(&body).unwrap()["messages"].take()
}

/// Returns a request with everything that version 1 can send.
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
    request.system = common::full_system();
    request.tools = vec![ToolDefinition {
        name: "read".into(),
        description: "Reads a file.".into(),
        input_schema: RawJson::parse(
            r#"{"type":"object","properties":{"b":{"type":"number"},"a":{}}}"#,
        )
        .unwrap(),
    }];
    request.tool_choice = ToolChoice::Required;
    request.generation = common::full_generation();
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
fn each_version_writes_its_bytes() {
    common::assert_version(Protocol::OpenAiChat, 1, &full_request(), VERSION_1);
    // Since version 2, arguments are always a JSON object.
    let broken = r#""arguments":"{\"broken\":""#;
    let wrapped = r#""arguments":"{\"invalid_json\":\"{\\\"broken\\\":\"}""#;
    let version_2 = VERSION_1.replace(broken, wrapped);
    for version in [2, 3] {
        common::assert_version(Protocol::OpenAiChat, version, &full_request(), &version_2);
    }
    assert_eq!(
        Protocol::OpenAiChat.wire_version(),
        3,
        "keep these and add one for the new version"
    );
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
    assert!(body.contains(r#""arguments":"{\"a\":1}""#), "{body}");
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
            {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
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

fn dialect(json: Value) -> Dialect {
    serde_json::from_value(json).unwrap()
}

/// Returns the body for a deployment with this dialect.
fn body_for(request: &LlmRequest, differs: Value) -> Value {
    let body = Protocol::OpenAiChat.encode_for(request, &dialect(differs));
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn media_make_the_content_a_list_in_the_order_of_the_parts() {
    let content = vec![
        Part::text("What is"),
        media("image/png", "AA=="),
        media("image/jpeg", "https://host/a.jpg"),
        media("audio/mpeg", "BB=="),
        media("application/pdf", "CC=="),
        media("video/mp4", "DD=="),
    ];
    let drawn = Message::assistant(vec![Part::text("Here."), media("image/png", "AA==")]);
    assert_eq!(
        messages(vec![Message { role: Role::User, content }, drawn]),
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "What is"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "image_url", "image_url": {"url": "https://host/a.jpg"}},
                {"type": "input_audio", "input_audio": {"data": "BB==", "format": "mp3"}},
                {"type": "file", "file": {"filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,CC=="}},
                {"type": "text", "text": "[video/mp4 is not shown: this model cannot take it here]"},
            ]},
            {"role": "assistant",
             "content": "Here.\n[image/png is not shown: this model cannot take it here]"},
        ])
    );
}

#[test]
fn media_of_results_follow_them_all_in_a_user_message() {
    let image = |data: &str| ToolContent::Media { mime: "image/png".into(), data: data.into() };
    let seen = ToolResult {
        content: vec![ToolContent::Text { text: "a dot".into() }, image("AA==")],
        ..ToolResult::text("c0", "look", "")
    };
    let failed = ToolResult {
        content: vec![image("BB=="), ToolContent::Media { mime: "x/y".into(), data: "".into() }],
        ..ToolResult::error("c2", "look", "")
    };
    let results = vec![seen, ToolResult::text("c1", "read", "line"), failed];
    assert_eq!(
        messages(vec![Message::tool(results)]),
        json!([
            {"role": "tool", "tool_call_id": "c0",
             "content": "a dot\n[image/png: in the next message]"},
            {"role": "tool", "tool_call_id": "c1", "content": "line"},
            {"role": "tool", "tool_call_id": "c2", "content":
             "Error: [image/png: in the next message]\n[x/y is not shown: this model cannot take it here]"},
            {"role": "user", "content": [
                {"type": "text", "text": "[result of look c0]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "text", "text": "[result of look c2]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,BB=="}},
            ]},
        ])
    );
}

#[test]
fn a_dialect_says_who_instructs_and_how_answers_are_bounded_and_what_is_left_out() {
    let mut request = LlmRequest::new("m", vec![Message::user("hi"), Message::system("Now.")]);
    request.system.push(SystemPart::text("First."));
    request.generation.max_tokens = Some(9);
    request.generation.temperature = Some(0.0);
    let developer = json!({"instructions": "developer", "maxTokensField": "max_completion_tokens",
        "omit": ["temperature", "stream_options"], "body": {"safe": true, "model": "no"}});
    assert_eq!(
        body_for(&request, developer),
        json!({"model": "m", "messages": [
            {"role": "developer", "content": "First."},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": "Now."},
        ], "stream": true, "max_completion_tokens": 9, "safe": true})
    );
    assert_eq!(
        body_for(&request, json!({"instructions": "wrapped"}))["messages"],
        json!([
            {"role": "system", "content": "First."},
            {"role": "user", "content": "hi"},
            {"role": "user", "content": "<system-update>\nNow.\n</system-update>"},
        ])
    );
}

// Finding next report 20, 21: chat templates refuse instructions in the middle, and two messages of one role in a row.
#[test]
fn neighbours_of_one_role_are_joined_where_wanted() {
    let call = Part::ToolCall(ToolCall::new("c", "look", "{}"));
    let image = ToolContent::Media { mime: "image/png".into(), data: "AA==".into() };
    let result = ToolResult { content: vec![image], ..ToolResult::text("c", "look", "") };
    let request = LlmRequest::new(
        "m",
        vec![
            Message::user("one"),
            Message::user("two"),
            Message::system("Now."),
            Message::assistant(vec![Part::text("So")]),
            Message::assistant(vec![Part::text("on."), call]),
            Message::tool(vec![result]),
            Message::user("three"),
        ],
    );
    assert_eq!(
        body_for(&request, json!({"instructions": "wrapped", "joinsMessages": true}))["messages"],
        json!([
            {"role": "user", "content": "one\n\ntwo\n\n<system-update>\nNow.\n</system-update>"},
            {"role": "assistant", "content": "So\n\non.", "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "[image/png: in the next message]"},
            {"role": "user", "content": [
                {"type": "text", "text": "[result of look c]"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
                {"type": "text", "text": "three"},
            ]},
        ])
    );
    let apart = body_for(&request, json!({"instructions": "wrapped"}));
    assert_eq!(apart["messages"].as_array().unwrap().len(), 8, "as requests of before");
}

#[test]
fn reasoning_goes_back_in_the_field_that_takes_it() {
    let thought = |text: &str, state: &str| {
        let provider_metadata = Some(RawJson::parse(state).unwrap());
        Part::Reasoning(TextPart { text: text.into(), provider_metadata })
    };
    let state = |list: &str| format!(r#"{{"openrouter":{{"model":"m","details":{list}}}}}"#);
    let said = Message::assistant(vec![
        thought("hm", &state(r#"[{"type":"reasoning.text", "text":"hm","signature":"s"}]"#)),
        Part::text("So."),
        thought("", &state(r#"[{"data":"x"}]"#)),
    ]);
    let mut request = LlmRequest::new("m", vec![said]);
    let message = |request: &LlmRequest, differs| body_for(request, differs)["messages"][0].take();
    let text = message(&request, json!({"reasoningField": "reasoning_content"}));
    let said = json!({"role": "assistant", "content": "So.", "reasoning_content": "hm\n"});
    assert_eq!(text, said);
    let openrouter = || json!({"stateKey": "openrouter", "reasoningField": "reasoning_details"});
    assert_eq!(
        message(&request, openrouter()),
        json!({"role": "assistant", "content": "So.", "reasoning_details": [
            {"type": "reasoning.text", "text": "hm", "signature": "s"}, {"data": "x"}]})
    );
    request.model = "another".into();
    assert_eq!(message(&request, openrouter()), json!({"role": "assistant", "content": "So."}));
}

// Finding reports 9: DeepSeek and Kimi refuse a message with calls that lacks the field.
#[test]
fn calls_have_their_reasoning_even_if_there_is_none() {
    let call = || Part::ToolCall(ToolCall::new("c", "read", "{}"));
    let thought =
        |text: &str| Part::Reasoning(TextPart { text: text.into(), provider_metadata: None });
    let differs = || json!({"reasoningField": "reasoning_content", "reasoningWithCalls": true});
    let reasoning = |parts: Vec<Part>, differs: Value| {
        let request = LlmRequest::new("m", vec![Message::assistant(parts)]);
        body_for(&request, differs)["messages"][0].get("reasoning_content").cloned()
    };
    assert_eq!(reasoning(vec![call()], differs()), Some(json!("")));
    assert_eq!(reasoning(vec![Part::text("So."), call(), call()], differs()), Some(json!("")));
    assert_eq!(reasoning(vec![thought(""), call()], differs()), Some(json!("")));
    assert_eq!(reasoning(vec![thought("hm"), call()], differs()), Some(json!("hm")));
    assert_eq!(reasoning(vec![Part::text("So.")], differs()), None, "no call, no need");
    let plain = json!({"reasoningField": "reasoning_content"});
    assert_eq!(reasoning(vec![call()], plain), None, "others may not know the field");
}

#[test]
fn cache_marks_are_in_the_messages_where_the_deployment_has_them() {
    let image =
        Message { role: Role::User, content: vec![Part::text("x"), media("image/png", "AA==")] };
    let result =
        Message::tool(vec![ToolResult::text("a", "t", "1"), ToolResult::text("b", "t", "2")]);
    let mut request = LlmRequest::new("m", vec![Message::user("hi"), image, result]);
    request.system = ["one", "two", "three"].map(SystemPart::text).into();
    request.cache =
        serde_json::from_value(json!({"system": true, "messages": {"tail": 3}})).unwrap();
    let mark = || json!({"type": "ephemeral"});
    assert_eq!(
        body_for(&request, json!({"inlineCache": true}))["messages"],
        json!([
            {"role": "system", "content": [
                {"type": "text", "text": "one", "cache_control": mark()},
                {"type": "text", "text": "two"},
                {"type": "text", "text": "three", "cache_control": mark()},
            ]},
            {"role": "user", "content": "hi"},
            {"role": "user", "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="},
                 "cache_control": mark()},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": [
                {"type": "text", "text": "2", "cache_control": mark()}]},
        ])
    );
    request.cache =
        serde_json::from_value(json!({"messages": "latest-user-message", "ttlSeconds": 3600}))
            .unwrap();
    let marked = body_for(&request, json!({"inlineCache": true}));
    assert_eq!(marked.to_string().matches("cache_control").count(), 1);
    let hour = json!({"type": "ephemeral", "ttl": "1h"});
    assert_eq!(marked["messages"][2]["content"][1]["cache_control"], hour);
    // other deployments get no marks, and texts stay plain
    assert!(!body(&request).contains("cache_control"));
    assert_eq!(body_for(&request, json!({}))["messages"][0]["content"], "one\ntwo\nthree");
}

#[test]
fn options_are_read_in_the_names_of_the_ai_sdk_and_tools_of_the_provider_follow_ours() {
    let mut request = LlmRequest::new("m", vec![]);
    let family = json!({"reasoningEffort": "low", "text_verbosity": "high", "odd": 1});
    request.provider_options.insert("openai".into(), family);
    request.provider_options.insert("xai".into(), json!({"reasoningEffort": "high"}));
    let own = json!({"verbosity": "medium", "tools": [{"type": "web_search"}]});
    request.provider_options.insert("openai-chat".into(), own);
    assert_eq!(
        body_for(&request, json!({"stateKey": "xai", "body": {"reasoning_effort": "none"}})),
        json!({"model": "m", "messages": [], "tools": [{"type": "web_search"}], "stream": true,
            "stream_options": {"include_usage": true}, "reasoning_effort": "high",
            "verbosity": "medium"})
    );
}

#[test]
fn nothing_stands_between_the_results_of_a_batch() {
    let image = |id: &str| {
        let content = vec![ToolContent::Media { mime: "image/png".into(), data: "AA==".into() }];
        Message::tool(vec![ToolResult { content, ..ToolResult::text(id, "look", "") }])
    };
    let roles = |messages: Vec<Message>| -> Vec<String> {
        let wire = self::messages(messages);
        wire.as_array()
            .unwrap()
            .iter()
            .map(|one| one["role"].as_str().unwrap().to_owned())
            .collect()
    };
    let batch = vec![image("a"), image("b"), Message::user("And?")];
    assert_eq!(roles(batch.clone()), ["tool", "tool", "user", "user"]);
    let shown = messages(batch)[2]["content"].take();
    assert_eq!(
        [0, 2].map(|at| shown[at]["text"].clone()),
        ["[result of look a]", "[result of look b]"]
    );
}

// Finding llm 1: arguments that are not JSON do not end a conversation. The bytes of the first wire version
// stay.
#[test]
fn malformed_arguments_are_an_object_that_holds_them() {
    let said = |arguments: &str| {
        let call = Part::ToolCall(ToolCall::new("c", "glob", arguments));
        LlmRequest::new("m", vec![Message::assistant(vec![call])])
    };
    let cut = r#"{"pattern":"*""#;
    for protocol in [Protocol::OpenAiChat, Protocol::OpenAiResponses] {
        let request = said(cut);
        let newest = String::from_utf8(protocol.encode(&request)).unwrap();
        let wrapped = r#""arguments":"{\"invalid_json\":\"{\\\"pattern\\\":\\\"*\\\"\"}""#;
        assert!(newest.contains(wrapped), "{newest}");
        let first = protocol.encode_version(1, &request, &Dialect::default()).unwrap();
        let first = String::from_utf8(first).unwrap();
        assert!(first.contains(r#""arguments":"{\"pattern\":\"*\"""#), "{first}");
        let newest = protocol.encode_version(2, &request, &Dialect::default()).unwrap();
        assert_eq!(newest, protocol.encode(&request));
        for other in [0, 4] {
            assert_eq!(protocol.encode_version(other, &request, &Dialect::default()), None);
        }
        let empty = String::from_utf8(protocol.encode(&said(""))).unwrap();
        assert!(empty.contains(r#""arguments":"{}""#), "{empty}");
    }
}

/// Returns the name and the id of a call, and the id of its result, as a version of the wire sends them.
fn called(version: u32, id: &str, name: &str) -> [String; 3] {
    let call = Part::ToolCall(ToolCall::new(id, name, "{}"));
    let answer = Message::tool(vec![ToolResult::text(id, name, "text")]);
    let request = LlmRequest::new("m", vec![Message::assistant(vec![call]), answer]);
    let body = Protocol::OpenAiChat.encode_version(version, &request, &Dialect::default()).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let call = "/messages/0/tool_calls/0";
    [format!("{call}/function/name"), format!("{call}/id"), "/messages/1/tool_call_id".to_owned()]
        .map(|place| body.pointer(&place).unwrap().as_str().unwrap().to_owned())
}

// Finding: report 30-a12 (mastra-ai/mastra#13632).
#[test]
fn names_that_openai_refuses_are_rewritten_since_version_3() {
    let long = "n".repeat(300);
    for (name, accepted) in [
        ("view_file\" path=\"a", "view_file__path__a"),
        ("browser.tabs.open", "browser_tabs_open"),
        (long.as_str(), &long[..64]),
        ("read_file-2", "read_file-2"),
        ("", "unnamed"),
    ] {
        assert_eq!(called(3, "c", name), [accepted, "c", "c"]);
        assert_eq!(called(2, "c", name), [name, "c", "c"]);
    }
}

// Finding: report 30-a13 (vercel/ai#5171).
#[test]
fn long_ids_are_shortened_alike_since_version_3() {
    let long = "chatcmpl-tool-0123456789abcdef0123456789abcdef";
    let [_, call, result] = called(3, long, "read");
    assert_eq!(call.len(), 40);
    assert_eq!(call, result);
    let other = "chatcmpl-tool-0123456789abcdef0123456789abcdee";
    assert_ne!(called(3, other, "read")[1], call);
    assert_eq!(called(2, long, "read"), ["read", long, long]);
    let own = "call_PTLP8xhu3uwZk4l3nlnrrJha";
    assert_eq!(called(3, own, "read"), ["read", own, own]);
}

// Finding llm 3: Mistral's ids, and an assistant message between results and the user.
#[test]
fn mistral_gets_its_ids_and_an_answer_after_results() {
    let result = |id: &str| {
        let content = vec![Part::ToolResult(ToolResult::text(id, "read", "text"))];
        Message { role: Role::Tool, content }
    };
    let call = |id: &str| Part::ToolCall(ToolCall::new(id, "read", "{}"));
    let request = LlmRequest::new(
        "m",
        vec![
            Message::user("go"),
            Message::assistant(vec![call("call_PTLP8xhu3uwZk4l3nlnrrJha"), call("call_0")]),
            result("call_PTLP8xhu3uwZk4l3nlnrrJha"),
            result("call_0"),
            Message::user("stop"),
        ],
    );
    let dialect = Dialect {
        call_ids: Some(CallIdForm::Nine),
        answers_results: true,
        omit: vec!["stream_options".to_owned()],
        ..Dialect::default()
    };
    let body = Protocol::OpenAiChat.encode_for(&request, &dialect);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body.get("stream_options"), None);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|said| said["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "assistant", "user"]);
    let ids = [&messages[2]["tool_call_id"], &messages[3]["tool_call_id"]];
    assert_eq!(ids, ["3nlnrrJha", "0000call0"]);
    assert_eq!(ids[0], &messages[1]["tool_calls"][0]["id"]);
    assert!(messages[4]["content"].as_str().is_some_and(|text| !text.is_empty()));
}
