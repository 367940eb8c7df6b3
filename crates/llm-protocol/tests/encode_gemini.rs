//! The bytes that we send. They are hashed and rebuilt later, so a change here needs a new `WIRE_VERSION`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{state_of, text};
use llm_protocol::{
    CachePolicy, Dialect, LlmRequest, Media, Message, Part, Protocol, RawJson, Role, ToolCall,
    ToolChoice, ToolDefinition, ToolResult,
};
use serde_json::{Value, json};

fn body(request: &LlmRequest) -> Value {
    serde_json::from_slice(&Protocol::Gemini.encode(request)).unwrap()
}

fn contents(model: &str, messages: Vec<Message>) -> Value {
    body(&LlmRequest::new(model, messages))["contents"].take()
}

fn state(members: &str) -> Option<RawJson> {
    state_of("google", members)
}

fn call(id: &str, arguments: &str, provider_metadata: Option<RawJson>) -> Part {
    Part::ToolCall(ToolCall { provider_metadata, ..ToolCall::new(id, "read", arguments) })
}

fn hosted(arguments: &str, provider_metadata: Option<RawJson>) -> Part {
    let call = ToolCall::new("h", "code_execution", arguments);
    Part::ToolCall(ToolCall { provider_executed: true, provider_metadata, ..call })
}

/// Returns a request with everything that version 1 can send.
fn full_request() -> LlmRequest {
    let image = Media { mime: "image/png".into(), data: "AA==".into(), provider_metadata: None };
    let ran = ToolResult {
        provider_metadata: state(r#""part":{"codeExecutionResult":{"outcome":"OUTCOME_OK"}}"#),
        ..ToolResult::text("h", "code_execution", "OUTCOME_OK")
    };
    let mut request = LlmRequest::new(
        "m",
        vec![
            Message {
                role: Role::User,
                content: vec![Part::text("Say \"hi\"\n\u{1F600}"), Part::Media(image)],
            },
            Message::assistant(vec![
                Part::Reasoning(text("hm", state(r#""thought":true,"thoughtSignature":"S1""#))),
                Part::Reasoning(text("of another", None)),
                hosted("{}", state(r#""part":{"executableCode": {"code":"1"}}"#)),
                Part::ToolResult(ran),
                Part::Text(text("Reading.", state(r#""thoughtSignature":"S2""#))),
                call("x/1", "{\"b\": 1.0}", state(r#""id":"x/1","thoughtSignature":"S3""#)),
                call("call_1", "{\"broken\":", None),
            ]),
            Message::tool(vec![
                common::seen("x/1"),
                ToolResult::error("call_1", "read", "invalid JSON"),
            ]),
            Message::system("The date is now 2026-01-02."),
        ],
    );
    request.system = common::full_system();
    let schema = r#"{"type":"object","properties":{"b":{"type":"number"},"a":{"type":"string","pattern":"x"}},"additionalProperties":false}"#;
    request.tools = vec![
        ToolDefinition {
            name: "read".into(),
            description: "Reads.".into(),
            input_schema: RawJson::parse(schema).unwrap(),
        },
        ToolDefinition {
            name: "list".into(),
            description: "Lists.".into(),
            input_schema: RawJson::parse(r#"{"type":"object"}"#).unwrap(),
        },
    ];
    request.tool_choice = ToolChoice::Required;
    request.generation = common::full_generation();
    request.cache = CachePolicy::Auto;
    let thinking =
        json!({"thinkingConfig": {"thinkingBudget": 100}, "safety_settings": [{"a": 1}]});
    request.provider_options.insert("google".into(), thinking);
    let raw = json!({"tools": [{"codeExecution": {}}], "generationConfig": {"topK": null, "z": 1}});
    request.provider_options.insert("gemini".into(), raw);
    request.provider_options.insert("anthropic".into(), json!({"not": "sent"}));
    request
}

const VERSION_1: &str = concat!(
    r#"{"contents":[{"role":"user","parts":[{"text":"Say \"hi\"\n😀"},{"inlineData":{"mimeType":"image/png","data":"AA=="}}]},"#,
    r#"{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"S1"},{"text":"of another"},"#,
    r#"{"executableCode": {"code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},"#,
    r#"{"text":"Reading.","thoughtSignature":"S2"},"#,
    r#"{"functionCall":{"name":"read","args":{"b": 1.0},"id":"x/1"},"thoughtSignature":"S3"},"#,
    r#"{"functionCall":{"name":"read","args":{"invalid_json":"{\"broken\":"}}}]},"#,
    r#"{"role":"user","parts":[{"functionResponse":{"name":"read","id":"x/1","response":{"name":"read","content":"line"}}},"#,
    r#"{"inlineData":{"mimeType":"image/png","data":"AA=="}},"#,
    r#"{"functionResponse":{"name":"read","response":{"error":"invalid JSON"}}},"#,
    r#"{"text":"<system-update>\nThe date is now 2026-01-02.\n</system-update>"}]}],"#,
    r#""systemInstruction":{"parts":[{"text":"Be brief.\nUse tools."}]},"#,
    r#""tools":[{"functionDeclarations":[{"name":"read","description":"Reads.","parameters":{"type":"object","properties":{"b":{"type":"number"},"a":{"type":"string"}}}},"#,
    r#"{"name":"list","description":"Lists."}]},{"codeExecution":{}}],"#,
    r#""toolConfig":{"functionCallingConfig":{"mode":"ANY"}},"#,
    r#""generationConfig":{"maxOutputTokens":100,"seed":-7,"stopSequences":["END"],"temperature":0,"#,
    r#""thinkingConfig":{"thinkingBudget":100},"topP":0.95,"z":1},"safetySettings":[{"a":1}]}"#,
);

#[test]
fn each_version_writes_its_bytes() {
    for version in [1, 2] {
        common::assert_version(Protocol::Gemini, version, &full_request(), VERSION_1);
    }
    assert_eq!(Protocol::Gemini.wire_version(), 2, "keep these and add one for the new version");
}

// Finding: report 30-a12 (mastra-ai/mastra#13632).
#[test]
fn names_that_gemini_refuses_are_rewritten_since_version_2() {
    let long = "n".repeat(300);
    for (name, accepted) in [
        ("view_file\" path=\"a", "view_file__path__a"),
        ("browser.tabs.open", "browser.tabs.open"),
        (long.as_str(), &long[..64]),
    ] {
        let call = Part::ToolCall(ToolCall::new("c", name, "{}"));
        let answer = Message::tool(vec![ToolResult::text("c", name, "no such tool")]);
        let request = LlmRequest::new("m", vec![Message::assistant(vec![call]), answer]);
        let names = |body: &[u8]| {
            let body: Value = serde_json::from_slice(body).unwrap();
            ["/contents/0/parts/0/functionCall/name", "/contents/1/parts/0/functionResponse/name"]
                .map(|place| body.pointer(place).unwrap().as_str().unwrap().to_owned())
        };
        assert_eq!(names(&Protocol::Gemini.encode(&request)), [accepted, accepted]);
        let first = Protocol::Gemini.encode_version(1, &request, &Dialect::default()).unwrap();
        assert_eq!(names(&first), [name, name]);
    }
}

#[test]
fn what_another_provider_or_model_sent_is_plain_to_this_one() {
    let foreign = RawJson::parse(r#"{"google":{"model":"other","thoughtSignature":"S"}}"#).unwrap();
    let foreign = || Some(foreign.clone());
    let parts = vec![
        Part::Reasoning(text("I think", foreign())),
        Part::Text(text("Running.", foreign())),
        hosted(r#"{"code":"1"}"#, foreign()),
        Part::ToolResult(ToolResult::error("h", "code_execution", "down")),
        Part::text("So."),
        call("c", "{}", foreign()),
    ];
    let results = vec![ToolResult::text("c", "read", "x")];
    let messages = vec![Message::assistant(parts), Message::tool(results)];
    let response = |name: &str, response: Value| json!({"role": "user", "parts": [{"functionResponse": {"name": name, "response": response}}]});
    assert_eq!(
        contents("m", messages),
        json!([
            {"role": "model", "parts": [
                {"text": "I think"}, {"text": "Running."},
                {"functionCall": {"name": "code_execution", "args": {"code": "1"}}}
            ]},
            response("code_execution", json!({"error": "down"})),
            {"role": "model", "parts": [{"text": "So."}, {"functionCall": {"name": "read", "args": {}}}]},
            response("read", json!({"name": "read", "content": "x"}))
        ])
    );
}

#[test]
fn the_third_generation_gets_a_word_in_place_of_a_signature_that_another_model_did_not_make() {
    let batch = || Message::assistant(vec![call("a", "{}", None), call("b", "{}", None)]);
    let signatures = |model: &str| {
        let parts = contents(model, vec![batch()])[0]["parts"].take();
        [0, 1].map(|at| parts[at]["thoughtSignature"].as_str().map(str::to_owned))
    };
    let word = "skip_thought_signature_validator".to_owned();
    assert_eq!(signatures("gemini-3-pro-preview"), [Some(word), None]);
    assert_eq!(signatures("gemini-2.5-pro"), [None, None]);
}

#[test]
fn contents_of_one_role_are_one_and_nothing_empty_is_sent() {
    let signed = Part::Text(text("", state(r#""thoughtSignature":"S""#)));
    let messages = vec![
        Message::user("a"),
        Message::user(""),
        Message::system("b"),
        Message::assistant(vec![Part::text(""), Part::text("c")]),
        Message::assistant(vec![signed]),
    ];
    assert_eq!(
        contents("m", messages),
        json!([
            {"role": "user", "parts": [
                {"text": "a"}, {"text": "<system-update>\nb\n</system-update>"}
            ]},
            {"role": "model", "parts": [{"text": "c"}, {"text": "", "thoughtSignature": "S"}]}
        ])
    );
}

#[test]
fn media_are_data_or_files() {
    let media = |data: &str| {
        let (mime, data) = ("application/pdf".to_owned(), data.to_owned());
        Part::Media(Media { mime, data, provider_metadata: None })
    };
    let content = vec![media("JVBE"), media("https://h/a.pdf")];
    assert_eq!(
        contents("m", vec![Message { role: Role::User, content }])[0]["parts"],
        json!([
            {"inlineData": {"mimeType": "application/pdf", "data": "JVBE"}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://h/a.pdf"}}
        ])
    );
}

#[test]
fn a_choice_is_sent_only_where_it_says_something() {
    let config = |choice: ToolChoice, tools: bool| {
        let mut request = full_request();
        request.tool_choice = choice;
        if !tools {
            request.tools.clear();
        }
        body(&request)["toolConfig"]["functionCallingConfig"].take()
    };
    assert_eq!(config(ToolChoice::Auto, true), Value::Null);
    assert_eq!(config(ToolChoice::None, true), json!({"mode": "NONE"}));
    let named = json!({"mode": "ANY", "allowedFunctionNames": ["read"]});
    assert_eq!(config(ToolChoice::Tool("read".into()), true), named);
    assert_eq!(config(ToolChoice::Required, false), Value::Null);
}

#[test]
fn a_dialect_and_options_shape_the_generation_config() {
    let mut request = LlmRequest::new("m", vec![]);
    request.generation.temperature = Some(1.0);
    request.generation.top_p = Some(0.5);
    request.generation.max_tokens = Some(9);
    request
        .provider_options
        .insert("gemini".into(), json!({"thinkingConfig": {"thinkingLevel": "low"}}));
    let dialect = Dialect {
        omit: vec!["temperature".into(), "top_p".into()],
        body: serde_json::from_value(json!({"labels": {"a": "b"}})).unwrap(),
        ..Dialect::default()
    };
    let body = Protocol::Gemini.encode_for(&request, &dialect);
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap(),
        json!({"contents": [], "labels": {"a": "b"},
            "generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingLevel": "low"}}})
    );
}

#[test]
fn the_third_generation_is_shown_images_in_the_result() {
    let seen = || vec![Message::tool(vec![common::seen("a")])];
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "AA=="}});
    let response = json!({"name": "read", "content": "line"});
    assert_eq!(
        contents("gemini-3-pro", seen())[0]["parts"],
        json!([{"functionResponse": {"name": "read", "response": response, "parts": [image]}}])
    );
    assert_eq!(
        contents("gemini-2.5-pro", seen())[0]["parts"],
        json!([{"functionResponse": {"name": "read", "response": response}}, image])
    );
}

#[test]
fn where_the_asker_is_belongs_beside_the_choice() {
    let mut request = full_request();
    let place = json!({"retrievalConfig": {"latLng": {"latitude": 1.5, "longitude": 2}}});
    request.provider_options.insert("google".into(), place);
    assert_eq!(
        body(&request)["toolConfig"],
        json!({"functionCallingConfig": {"mode": "ANY"},
            "retrievalConfig": {"latLng": {"latitude": 1.5, "longitude": 2}}})
    );
}
