//! `llm`, by the executable, against the simulated model.

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
    // A refused command line is answered before its input is read.
    let _unread = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(Duration::from_secs(20), child.wait_with_output()).await;
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

#[tokio::test]
async fn an_error_is_the_last_line_and_the_exit_code() {
    // Nobody listens on the port of a listener that is gone.
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
    assert!(err.contains("standard input is no request"), "{err}");
    let (code, _, err) = llm(&["stream", "--model", "m"], REQUEST).await;
    assert_eq!(code, Some(2));
    assert!(err.contains("--provider") || err.contains("--protocol"), "{err}");
}
