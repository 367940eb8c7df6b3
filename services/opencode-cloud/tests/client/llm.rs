//! `llm`, run by the executable against the simulated model.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use simulated_model::{Options, SimulatedModel};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

async fn llm(words: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_opencode-cloud"))
        .arg("llm")
        .args(words)
        .env_remove("OPENCODE_CLOUD_LLM_KEY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    // A wrong command line fails before its input is read.
    let _unread = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
    let output = ended.expect("it ends").expect("it can be waited for");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect()
}

const REQUEST: &str =
    r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hello there"}]}]}"#;

#[tokio::test]
async fn a_request_is_answered_with_events_a_line_each() {
    let model = SimulatedModel::start(Options::default()).await.expect("it starts");
    let words = ["stream", "--protocol", "openai-chat", "--base-url", &model.url(), "--model", "m"];
    let (code, out, err) = llm(&words, REQUEST).await;
    assert_eq!(code, Some(0), "{out}{err}");
    let events = lines(&out);
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap_or("")).collect();
    let [start, deltas @ .., "text-end", "step-finish", "finish"] = kinds.as_slice() else {
        panic!("{out}")
    };
    assert_eq!(*start, "text-start");
    assert!(!deltas.is_empty() && deltas.iter().all(|kind| *kind == "text-delta"), "{out}");
    assert_eq!(events[events.len() - 1]["reason"], "stop");
    assert!(events[events.len() - 1]["usage"]["inputTokens"].as_u64() > Some(0), "{out}");
    model.shutdown().await;
}

const PROTOCOLS: [&str; 5] =
    ["openai-chat", "openai-responses", "anthropic-messages", "gemini", "bedrock-converse"];

/// Returns the model's message for the next request, built from the events of its answer.
fn said(events: &[Value]) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    for event in events {
        let mut part = event.clone();
        let text = |kind: &str| json!({"type": kind, "text": ""});
        match event["type"].as_str().expect("a type") {
            "text-start" => parts.push(text("text")),
            "reasoning-start" => parts.push(text("reasoning")),
            "text-delta" | "reasoning-delta" => {
                let open = &mut parts.last_mut().expect("it has begun")["text"];
                *open = json!(format!(
                    "{}{}",
                    open.as_str().unwrap_or(""),
                    event["text"].as_str().unwrap_or("")
                ));
            }
            "text-end" | "reasoning-end" => {
                if let Some(state) = part["providerMetadata"].as_object_mut() {
                    parts.last_mut().expect("it has begun")["providerMetadata"] = json!(state);
                }
            }
            "tool-call" => parts.push(part),
            _ => {}
        }
    }
    json!({"role": "assistant", "content": parts})
}

#[tokio::test]
async fn a_tool_loop_with_reasoning_runs_in_each_protocol() {
    let model = SimulatedModel::start(Options::default()).await.expect("it starts");
    let scripts = json!([
        {"match": "weigh it", "round": 0, "reasoning": "Hm, 1 é.", "text": "Looking.",
         "tool_calls": [{"name": "read", "arguments": {"path": "a é.txt"}}, {"name": "read", "arguments": {"path": "b"}}]},
        {"match": "weigh it", "round": 1, "text": "Both."}
    ]);
    let url = format!("{}/sim/scripts", model.root_url());
    let put = reqwest::Client::new().put(url).body(scripts.to_string()).send().await.expect("sent");
    assert!(put.status().is_success());
    for protocol in PROTOCOLS {
        let words =
            ["stream", "--protocol", protocol, "--base-url", &model.root_url(), "--model", "sim:1"];
        let mut request = json!({
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "weigh it"}]}],
            "tools": [{"name": "read", "description": "reads", "inputSchema": {
                "type": "object", "properties": {"path": {"type": "string"}}}}],
            "cache": "auto"
        });
        let (code, out, err) = llm(&words, &request.to_string()).await;
        assert_eq!(code, Some(0), "{protocol}: {out}{err}");
        let events = lines(&out);
        assert_eq!(events.last().expect("events")["reason"], "tool-calls", "{protocol}: {out}");
        let said = said(&events);
        let kinds: Vec<_> =
            said["content"].as_array().expect("parts").iter().map(|part| &part["type"]).collect();
        assert_eq!(kinds, ["reasoning", "text", "tool-call", "tool-call"], "{protocol}: {out}");
        let parts = said["content"].as_array().into_iter().flatten();
        let results = parts.filter(|part| part["type"] == "tool-call").map(|call| {
            json!({"type": "tool-result", "id": call["id"], "name": "read",
                   "content": {"of": call["input"]["path"]}, "isError": call["input"]["path"] == "b"})
        });
        let results: Vec<_> = results.collect();
        let messages = request["messages"].as_array_mut().expect("a list");
        messages.extend([said.clone(), json!({"role": "tool", "content": results})]);
        // The model refuses reasoning without its signature, and calls without results.
        let (code, out, err) = llm(&words, &request.to_string()).await;
        assert_eq!(code, Some(0), "{protocol}: {out}{err}");
        let events = lines(&out);
        let texts = events.iter().filter(|event| event["type"] == "text-delta");
        let text: String = texts.filter_map(|event| event["text"].as_str()).collect();
        assert_eq!(text, "Both.", "{protocol}: {out}");
        assert_eq!(events.last().expect("events")["reason"], "stop", "{protocol}");
    }
    model.shutdown().await;
}

#[tokio::test]
async fn what_a_provider_refuses_is_an_error_event_in_each_protocol() {
    let model = SimulatedModel::start(Options::default()).await.expect("it starts");
    let scripts = json!([
        {"match": "too much", "overflow": true},
        {"match": "too often", "status": 429, "retry_after_ms": 1500},
        {"match": "broken off", "text": "one two three four", "cut_after_chunks": 2}
    ]);
    let url = format!("{}/sim/scripts", model.root_url());
    let put = reqwest::Client::new().put(url).body(scripts.to_string()).send().await.expect("sent");
    assert!(put.status().is_success());
    for protocol in PROTOCOLS {
        let words =
            ["stream", "--protocol", protocol, "--base-url", &model.root_url(), "--model", "sim:1"];
        for (prompt, reason, wait) in [
            ("too much", "overflow", Value::Null),
            ("too often", "rate-limit", json!(1500)),
            ("broken off", "transport", Value::Null),
        ] {
            let request = json!({"messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}]});
            let (code, out, err) = llm(&words, &request.to_string()).await;
            assert_eq!(code, Some(1), "{protocol}: {out}{err}");
            let events = lines(&out);
            let last = events.last().expect("an error");
            assert_eq!(
                (&last["type"], &last["reason"]),
                (&json!("error"), &json!(reason)),
                "{protocol}: {out}"
            );
            assert_eq!(last["retryAfterMs"], wait, "{protocol}: {out}");
        }
    }
    model.shutdown().await;
}

#[tokio::test]
async fn an_error_is_the_last_line_and_the_exit_code() {
    // Nobody listens on the port of a dropped listener.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr());
    let url = format!("http://{}", gone.expect("a free port"));
    let words = ["stream", "--protocol", "gemini", "--base-url", &url, "--model", "m"];
    let (code, out, err) = llm(&words, REQUEST).await;
    assert_eq!(code, Some(1), "{out}{err}");
    let events = lines(&out);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["type"], "error");
    assert_eq!(
        (&events[0]["reason"], &events[0]["delivery"]),
        (&json!("transport"), &json!("not_sent"))
    );
}

#[tokio::test]
async fn encode_prints_the_body_of_each_protocol_and_sends_nothing() {
    for (protocol, place) in [
        ("openai-chat", "/messages/0/content"),
        ("openai-responses", "/input/0/content/0/text"),
        ("anthropic-messages", "/messages/0/content/0/text"),
        ("gemini", "/contents/0/parts/0/text"),
        ("bedrock-converse", "/messages/0/content/0/text"),
    ] {
        let (code, out, err) =
            llm(&["encode", "--protocol", protocol, "--model", "m"], REQUEST).await;
        assert_eq!(code, Some(0), "{err}");
        let body: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(body.pointer(place), Some(&json!("hello there")), "{protocol}: {out}");
    }
}

#[tokio::test]
async fn the_schema_is_printed_and_what_is_wrong_is_a_usage_error() {
    let (code, out, _) = llm(&["schema"], "").await;
    assert_eq!(code, Some(0));
    let schemas: Value = serde_json::from_str(&out).expect("JSON");
    assert!(schemas["request"]["properties"]["messages"].is_object(), "{out}");
    assert!(schemas["event"]["anyOf"].is_array(), "{out}");

    let route = ["encode", "--protocol", "openai-chat", "--model", "m"];
    let (code, out, err) = llm(&route, r#"{"messages":[{"role":"owner","content":[]}]}"#).await;
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.starts_with("error: standard input is no request: messages[0].role: "), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    let (code, _, err) = llm(&["stream", "--model", "m"], REQUEST).await;
    assert_eq!(code, Some(2));
    assert!(err.contains("--provider") || err.contains("--protocol"), "{err}");
}
