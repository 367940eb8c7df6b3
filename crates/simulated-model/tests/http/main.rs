//! The simulated model over real HTTP, as its clients see it.
#![expect(clippy::unwrap_used, reason = "a helper of a test may panic as the test itself may")]

mod limits;
mod log;
mod plain;
mod protocols;
mod scripts;
mod sdks;

use std::time::Duration;

use serde_json::{Value, json};
use simulated_model::{Counts, Options, Running, SimulatedModel};

/// Long enough for a loaded machine. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

struct Client {
    server: Running,
    http: reqwest::Client,
}

async fn start() -> Client {
    let server = SimulatedModel::start(Options::default()).await.unwrap();
    Client { server, http: reqwest::Client::new() }
}

impl Client {
    fn post(&self, body: &Value) -> reqwest::RequestBuilder {
        self.http.post(format!("{}/chat/completions", self.server.url())).json(body)
    }

    async fn ask(&self, body: &Value) -> Value {
        let response = self.post(body).send().await.unwrap();
        assert_eq!(response.headers()["x-simulated-model"], "true");
        response.json().await.unwrap()
    }

    /// Returns the message of the answer to this prompt, with all tools offered.
    async fn message(&self, prompt: &str) -> Value {
        self.ask(&request(prompt)).await["choices"][0]["message"].clone()
    }

    async fn put(&self, scripts: Value) {
        let (status, answer) = self.sim("PUT", "scripts", &scripts).await;
        assert_eq!(status, 200, "{answer}");
    }

    async fn sim(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let url = format!("{}/sim/{path}", self.server.root_url());
        let method = method.parse().unwrap();
        let response = self.http.request(method, url).json(body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn wait_for(&self, done: impl FnMut(&Counts) -> bool) -> Counts {
        tokio::time::timeout(PATIENCE, self.server.handle.wait_for(done)).await.unwrap()
    }
}

fn request(prompt: &str) -> Value {
    json!({ "model": "simulated", "messages": [user(prompt)], "tools": tools() })
}

fn streamed(prompt: &str) -> Value {
    let mut body = request(prompt);
    body["stream"] = true.into();
    body["stream_options"] = json!({ "include_usage": true });
    body
}

fn tools() -> Value {
    ["read", "write", "edit", "glob", "grep", "shell"]
        .map(|name| json!({ "type": "function", "function": { "name": name, "parameters": {} } }))
        .into()
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// Returns the names and the arguments of a message's tool calls.
fn calls(message: &Value) -> Vec<(String, Value)> {
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    calls
        .iter()
        .map(|call| {
            let function = &call["function"];
            let arguments = function["arguments"].as_str().unwrap();
            let arguments = serde_json::from_str(arguments).unwrap();
            (function["name"].as_str().unwrap().to_owned(), arguments)
        })
        .collect()
}

/// Adds a round to a request: the answer's message, and a result for each of its calls.
fn add_round(body: &mut Value, message: &Value, result: &str) {
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(message.clone());
    for call in message["tool_calls"].as_array().unwrap() {
        messages.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": result }));
    }
}

/// Returns the events of a stream, without the `[DONE]` that must end it.
fn events(stream: &str) -> Vec<Value> {
    let lines: Vec<_> = stream.split("\n\n").filter(|line| !line.is_empty()).collect();
    let (last, events) = lines.split_last().unwrap();
    assert_eq!(*last, "data: [DONE]");
    events.iter().map(|event| parse_event(event)).collect()
}

fn parse_event(event: &str) -> Value {
    serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()
}
