//! The bytes that we send. They are hashed and rebuilt later, so a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::media;
use llm_protocol::{
    CachePolicy, Dialect, Instructions, LlmRequest, Message, Part, Protocol, RawJson, SystemPart,
    TextPart, ToolCall, ToolChoice, ToolContent, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};

const RESPONSES: Protocol = Protocol::OpenAiResponses;

fn input_for(model: &str, messages: Vec<Message>, dialect: &Dialect) -> Value {
    let body = RESPONSES.encode_for(&LlmRequest::new(model, messages), dialect);
    serde_json::from_slice::<Value>(&body).unwrap()["input"].take()
}

fn input(messages: Vec<Message>) -> Value {
    input_for("m", messages, &Dialect::default())
}

fn raw(text: &str) -> Option<RawJson> {
    Some(RawJson::parse(text).unwrap())
}

fn text(text: &str, state: &str) -> TextPart {
    TextPart { text: text.into(), provider_metadata: raw(state) }
}

/// Returns a request with everything that version 1 can send.
fn full_request() -> LlmRequest {
    let state = r#"{"openai":{"model":"m/1","itemId":"rs_1","encryptedContent":"x\/y"}}"#;
    let phase = r#"{"openai":{"model":"m/1","phase":"commentary"}}"#;
    let item = r#"{"openai":{"model":"m/1","item":{"type":"web_search_call", "id":"ws"}}}"#;
    let hosted = ToolCall { provider_executed: true, ..ToolCall::new("ws", "web_search", "{}") };
    let found =
        ToolResult { provider_metadata: raw(item), ..ToolResult::text("ws", "web_search", "x") };
    let image = ToolContent::Media { mime: "image/png".into(), data: "AA==".into() };
    let seen = ToolResult {
        content: vec![ToolContent::Text { text: "a dot".into() }, image],
        ..ToolResult::error("c2", "read", "")
    };
    let mut request = LlmRequest::new(
        "m/1",
        vec![
            Message {
                role: llm_protocol::Role::User,
                content: vec![
                    Part::text("Say \"hi\"\n\u{1F600}"),
                    media("image/png", "AA=="),
                    media("application/pdf", "https://host/a.pdf"),
                ],
            },
            Message::assistant(vec![
                Part::Reasoning(text("hm", state)),
                Part::Text(text("Reading.", phase)),
                Part::ToolCall(hosted),
                Part::ToolResult(found),
                Part::ToolCall(ToolCall::new("c0", "read", "{\"b\": 1.0,\"a\":\"é\"}")),
                Part::ToolCall(ToolCall::new("c1", "read", "{\"broken\":")),
            ]),
            Message::tool(vec![
                ToolResult::text("c0", "read", "line"),
                ToolResult::error("c1", "read", "invalid JSON"),
                seen,
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
    let own = json!({"reasoning": {"summary": "detailed"}, "metadata": {"z": 1, "a": [null, 2.5]},
        "tools": [{"type": "web_search", "filters": {"b": 1, "a": 2}}]});
    request.provider_options.insert("openai-responses".into(), own);
    let family = json!({"reasoningEffort": "low", "reasoningSummary": "auto", "store": false});
    request.provider_options.insert("openai".into(), family);
    request.provider_options.insert("gemini".into(), json!({"not": "sent"}));
    request.cache = CachePolicy::Auto; // the protocol has no marks
    request
}

const VERSION_1: &str = concat!(
    r#"{"model":"m/1","input":[{"role":"system","content":"Be brief.\nUse tools."},"#,
    r#"{"role":"user","content":[{"type":"input_text","text":"Say \"hi\"\n😀"},"#,
    r#"{"type":"input_image","image_url":"data:image/png;base64,AA=="},"#,
    r#"{"type":"input_file","file_url":"https://host/a.pdf"}]},"#,
    r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x\/y"},"#,
    r#"{"role":"assistant","content":[{"type":"output_text","text":"Reading."}],"phase":"commentary"},"#,
    r#"{"type":"web_search_call", "id":"ws"},"#,
    r#"{"type":"function_call","call_id":"c0","name":"read","arguments":"{\"b\": 1.0,\"a\":\"é\"}"},"#,
    r#"{"type":"function_call","call_id":"c1","name":"read","arguments":"{\"broken\":"},"#,
    r#"{"type":"function_call_output","call_id":"c0","output":"line"},"#,
    r#"{"type":"function_call_output","call_id":"c1","output":"Error: invalid JSON"},"#,
    r#"{"type":"function_call_output","call_id":"c2","output":["#,
    r#"{"type":"input_text","text":"Error:"},{"type":"input_text","text":"a dot"},"#,
    r#"{"type":"input_image","image_url":"data:image/png;base64,AA=="}]},"#,
    r#"{"role":"system","content":"The date is now 2026-01-02."}],"#,
    r#""tools":[{"type":"function","name":"read","description":"Reads a file.","#,
    r#""parameters":{"type":"object","properties":{"b":{"type":"number"},"a":{}}}},"#,
    r#"{"filters":{"a":2,"b":1},"type":"web_search"}],"#,
    r#""tool_choice":"required","stream":true,"#,
    r#""max_output_tokens":100,"temperature":0,"top_p":0.95,"#,
    r#""metadata":{"a":[null,2.5],"z":1},"reasoning":{"effort":"low","summary":"detailed"},"store":false}"#,
);

#[test]
fn each_version_writes_its_bytes() {
    common::assert_version(RESPONSES, 1, &full_request(), VERSION_1);
    // Since version 2, arguments are always a JSON object.
    let broken = r#""arguments":"{\"broken\":""#;
    let wrapped = r#""arguments":"{\"invalid_json\":\"{\\\"broken\\\":\"}""#;
    let version_2 = VERSION_1.replace(broken, wrapped);
    common::assert_version(RESPONSES, 2, &full_request(), &version_2);
    common::assert_version(RESPONSES, 3, &full_request(), &version_2);
    assert_eq!(RESPONSES.wire_version(), 3, "keep these and add one for the new version");
}

// Since version 3. Its provider refuses reasoning without a following item, for ever.
#[test]
fn reasoning_that_nothing_follows_is_left_out() {
    let state = r#"{"openai":{"model":"m","itemId":"rs_1","encryptedContent":"secret"}}"#;
    let thought = || Part::Reasoning(text("hm", state));
    let said = vec![
        Message::assistant(vec![thought()]),
        Message::assistant(vec![thought(), Part::text("So."), thought()]),
    ];
    let sent = input(said);
    let kinds: Vec<_> = sent.as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, [&json!("reasoning"), &json!(null)]);
}

#[test]
fn state_goes_back_to_the_model_that_sent_it_and_to_no_other() {
    let state = r#"{"openai":{"model":"m","itemId":"rs_1","encryptedContent":"secret"}}"#;
    let item = r#"{"openai":{"model":"m","item":{"type":"web_search_call","id":"ws"}}}"#;
    let hosted = ToolCall { provider_executed: true, ..ToolCall::new("ws", "web_search", "{}") };
    let found =
        ToolResult { provider_metadata: raw(item), ..ToolResult::text("ws", "web_search", "x") };
    let said = vec![Message::assistant(vec![
        Part::Reasoning(text("hm", state)),
        Part::Text(text("So.", r#"{"openai":{"model":"m","phase":"final_answer"}}"#)),
        Part::ToolCall(hosted),
        Part::ToolResult(found),
    ])];
    assert_eq!(
        input(said.clone()),
        json!([
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}],
             "encrypted_content": "secret"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "So."}],
             "phase": "final_answer"},
            {"type": "web_search_call", "id": "ws"},
        ])
    );
    let elsewhere = json!([
        {"role": "assistant", "content": [{"type": "output_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
        {"type": "function_call", "call_id": "ws", "name": "web_search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "ws", "output": "x"},
    ]);
    assert_eq!(input_for("other", said.clone(), &Dialect::default()), elsewhere);
    let azure = Dialect { state_key: Some("azure".into()), ..Dialect::default() };
    assert_eq!(input_for("m", said, &azure), elsewhere);
}

#[test]
fn reasoning_that_the_server_does_not_know_is_left_out_and_that_of_others_is_text() {
    let ours = text("hm", r#"{"openai":{"model":"m","itemId":"rs_1"}}"#);
    assert_eq!(input(vec![Message::assistant(vec![Part::Reasoning(ours)])]), json!([]));
    let theirs = text("hm", r#"{"anthropic":{"model":"c","signature":"s"}}"#);
    assert_eq!(
        input(vec![Message::assistant(vec![Part::Reasoning(theirs)])]),
        json!([{"role": "assistant", "content": [{"type": "output_text", "text": "hm"}]}])
    );
}

#[test]
fn instructions_are_sent_as_the_deployment_wants_them() {
    let mut request = LlmRequest::new("m", vec![Message::system("Now.")]);
    request.system.push(SystemPart::text("First."));
    let input = |instructions| {
        let dialect = Dialect { instructions, ..Dialect::default() };
        let body = RESPONSES.encode_for(&request, &dialect);
        serde_json::from_slice::<Value>(&body).unwrap()["input"].take()
    };
    let both = |role: &str| json!([{"role": role, "content": "First."}, {"role": role, "content": "Now."}]);
    assert_eq!(input(None), both("system"));
    assert_eq!(input(Some(Instructions::Developer)), both("developer"));
    let wrapped = "<system-update>\nNow.\n</system-update>";
    assert_eq!(
        input(Some(Instructions::Wrapped)),
        json!([{"role": "system", "content": "First."},
            {"role": "user", "content": [{"type": "input_text", "text": wrapped}]}])
    );
}

#[test]
fn media_that_the_protocol_does_not_take_is_named_in_its_place() {
    let sound = "[audio/mp3 is not shown: this model cannot take it here]";
    let user =
        Message { role: llm_protocol::Role::User, content: vec![media("audio/mp3", "AA==")] };
    let drawn = Message::assistant(vec![media("image/png", "AA==")]);
    let drawing = "[image/png is not shown: this model cannot take it here]";
    assert_eq!(
        input(vec![user, drawn]),
        json!([
            {"role": "user", "content": [{"type": "input_text", "text": sound}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": drawing}]},
        ])
    );
    let pdf =
        Message { role: llm_protocol::Role::User, content: vec![media("application/pdf", "AA==")] };
    assert_eq!(
        input(vec![pdf])[0]["content"][0],
        json!({"type": "input_file", "filename": "document.pdf",
            "file_data": "data:application/pdf;base64,AA=="})
    );
}

#[test]
fn a_dialect_omits_and_adds_fields_but_what_is_asked_stays() {
    let mut request = LlmRequest::new("m", vec![Message::user("hi")]);
    request.generation.max_tokens = Some(5);
    request.generation.temperature = Some(0.5);
    let options = json!({"model": "other", "input": [], "stream": false});
    request.provider_options.insert("openai-responses".into(), options);
    let dialect: Dialect = serde_json::from_value(json!({
        "omit": ["temperature"], "body": {"extra": 1, "stream": false}, "maxTokensField": "max_tokens"
    }))
    .unwrap();
    assert_eq!(
        String::from_utf8(RESPONSES.encode_for(&request, &dialect)).unwrap(),
        r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}],"stream":true,"max_tokens":5,"extra":1}"#
    );
}

#[test]
fn empty_texts_and_messages_are_left_out_but_results_are_not() {
    let said = vec![
        Message::user(""),
        Message::system(""),
        Message::assistant(vec![Part::text("")]),
        Message::tool(vec![ToolResult::text("c", "t", ""), ToolResult::error("d", "t", "")]),
    ];
    assert_eq!(
        input(said),
        json!([
            {"type": "function_call_output", "call_id": "c", "output": ""},
            {"type": "function_call_output", "call_id": "d", "output": "Error: "},
        ])
    );
}

#[test]
fn ids_and_names_are_what_the_server_takes() {
    let (long, other) = ("a".repeat(80), format!("{}b", "a".repeat(79)));
    let calls = [&long, &other].map(|id| Part::ToolCall(ToolCall::new(id, "functions.read", "{}")));
    let results = [&other, &long].map(|id| ToolResult::text(id, "functions.read", "x"));
    let input = input(vec![Message::assistant(calls.into()), Message::tool(results.into())]);
    let (first, second) = ("a".repeat(64), format!("{}_2", "a".repeat(62)));
    assert_eq!(input[0]["call_id"], json!(first));
    assert_eq!(
        (&input[1]["call_id"], &input[1]["name"]),
        (&json!(second), &json!("functions_read"))
    );
    assert_eq!([2, 3].map(|at| input[at]["call_id"].clone()), [json!(second), json!(first)]);
}
