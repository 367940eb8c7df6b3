//! The streams as official SDKs read them.

use serde_json::{Value, json};

use crate::{Client, start};

/// Returns the data of each server-sent event of the answer.
async fn streamed(client: &Client, path: &str, body: &Value) -> Vec<Value> {
    let url = format!("{}{path}", client.server.root_url());
    let answer = client.http.post(url).json(body).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

// Finding llm 14: OpenAI's SDKs take the whole answer from the end, and parts from their `done` events.
#[tokio::test]
async fn responses_are_whole_at_their_end() {
    let client = start().await;
    client
        .put(json!([{ "reasoning": "Hm.", "text": "Looking now.",
            "tool_calls": [{ "name": "read", "arguments": { "path": "a" } }] }]))
        .await;
    let body = json!({ "model": "m", "stream": true, "input": "go" });
    let events = streamed(&client, "/v1/responses", &body).await;
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    for kind in [
        "response.in_progress",
        "response.reasoning_summary_text.done",
        "response.reasoning_summary_part.done",
        "response.output_text.done",
        "response.content_part.done",
        "response.function_call_arguments.done",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    let types: Vec<_> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["reasoning", "message", "function_call"]);
    assert_eq!(output[1]["content"][0]["text"], "Looking now.");
    assert_eq!(output[2]["arguments"], r#"{"path":"a"}"#);
    let done = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(done("response.output_text.done")["text"], "Looking now.");
}

// Finding llm 14: Google's SDKs keep the content of every event in a chat, and send all of it with the next turn.
#[tokio::test]
async fn a_chat_of_gemini_goes_on() {
    let client = start().await;
    let path = "/v1beta/models/gemini-3:streamGenerateContent?alt=sse";
    let mut contents = vec![json!({ "role": "user", "parts": [{ "text": "say 2 words" }] })];
    for turn in 0..2 {
        let events = streamed(&client, path, &json!({ "contents": contents })).await;
        for event in &events {
            let content = &event["candidates"][0]["content"];
            assert!(!content["parts"].as_array().unwrap().is_empty(), "{turn}: {event}");
            contents.push(content.clone());
        }
        contents.push(json!({ "role": "user", "parts": [{ "text": "say 3 words" }] }));
    }
    let asked = client.server.handle.requests();
    assert_eq!((asked.len(), asked[1].prompt.as_str()), (2, "say 3 words"));
}
