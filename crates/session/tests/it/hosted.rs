//! Tools that a provider runs itself, in whole sessions: what it sent goes back as it came, and other providers are told
//! in words of their own. The answers are as the providers' references have them; no model of ours sends such.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use bytes::Bytes;
use domain::DrainOutcome::Completed;
use futures::StreamExt as _;
use llm_client::{Client, Options, ProviderTransport, TransportError, WireRequest, WireResponse};
use llm_protocol::Protocol;
use serde_json::{Value, json};

use crate::protocols::speaking;
use crate::scenarios::{With, send};
use crate::world::{Session, World};

/// A provider that answers what it is told to, in this order, and keeps what it was asked.
#[derive(Default)]
pub(crate) struct Canned {
    answers: Mutex<VecDeque<String>>,
    bodies: Mutex<Vec<String>>,
}

#[async_trait]
impl ProviderTransport for Canned {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, TransportError> {
        let body = String::from_utf8(request.body.to_vec()).unwrap();
        self.bodies.lock().unwrap().push(body);
        let answer = self.answers.lock().unwrap().pop_front().unwrap();
        let body = futures::stream::iter([Ok(Bytes::from(answer))]).boxed();
        Ok(WireResponse { status: Default::default(), headers: Default::default(), body }) // 200
    }
}

impl Canned {
    /// The next answer: these frames.
    pub(crate) fn then(&self, frames: &[Value]) {
        let frames = frames.iter().map(|frame| format!("data: {frame}\n\n"));
        self.answers.lock().unwrap().push_back(frames.collect());
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

/// A world whose providers are all this one.
pub(crate) async fn world(default: Protocol) -> Result<(World, Arc<Canned>)> {
    let mut world = speaking(default).await?;
    let canned = Arc::new(Canned::default());
    world.worker.llm = Client::with_transport(canned.clone(), Options::default());
    Ok((world, canned))
}

/// The result of a search, which only its provider can read.
fn found() -> Value {
    json!({
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_01WYG3ziw53XMcoyKL4XcZmE",
        "content": [{
            "type": "web_search_result",
            "url": "https://en.wikipedia.org/wiki/Claude_Shannon",
            "title": "Claude Shannon - Wikipedia",
            "encrypted_content": "EqgfCioIARgBIiQ3YTAwMjY1Mi1mZjM5LTQ1NGUtODgxNC1kNjNjNTk1ZWI3Y",
            "page_age": "April 30, 2025",
        }],
    })
}

/// <https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool#streaming>
fn anthropic_search() -> Vec<Value> {
    let call = json!({"type": "server_tool_use", "id": "srvtoolu_01WYG3ziw53XMcoyKL4XcZmE",
        "name": "web_search", "input": {}});
    let input = json!({"type": "input_json_delta", "partial_json": "{\"query\": \"claude shannon birth date\"}"});
    let says = json!({"type": "text_delta", "text": "Born on April 30, 1916."});
    vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 2_679, "output_tokens": 3}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": call}),
        json!({"type": "content_block_delta", "index": 0, "delta": input}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": found()}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": says}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 510, "server_tool_use": {"web_search_requests": 1}}}),
        json!({"type": "message_stop"}),
    ]
}

pub(crate) fn anthropic_says(text: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": text}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}),
        json!({"type": "message_stop"}),
    ]
}

/// A search, complete.
fn searched() -> Value {
    json!({
        "id": "ws_67ccf18f64008190a39b619f4c8455ef087bb177ab789d5c",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "claude shannon birth date"},
    })
}

/// <https://platform.openai.com/docs/guides/tools-web-search>
fn responses_search() -> Vec<Value> {
    let mut begun = searched();
    begun["status"] = json!("in_progress");
    let mut frames = vec![
        json!({"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        json!({"type": "response.web_search_call.searching", "output_index": 0, "item_id": begun["id"]}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": searched()}),
    ];
    frames.extend(responses_message(1, "Born on April 30, 1916."));
    frames
}

pub(crate) fn responses_message(at: u32, text: &str) -> Vec<Value> {
    let id = format!("msg_{at}");
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    let message = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
    let usage = json!({"input_tokens": 9, "output_tokens": 4, "total_tokens": 13});
    vec![
        json!({"type": "response.output_item.added", "output_index": at, "item": message("in_progress", json!([]))}),
        json!({"type": "response.output_text.delta", "output_index": at, "item_id": id, "content_index": 0, "delta": text}),
        json!({"type": "response.output_item.done", "output_index": at, "item": message("completed", content)}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": usage}}),
    ]
}

/// A call that Gemini ran, and its result.
fn ran() -> [Value; 2] {
    [
        json!({"executableCode": {"language": "PYTHON", "code": "print(sum([2, 3, 5]))"}}),
        json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "10\n"}}),
    ]
}

/// <https://ai.google.dev/gemini-api/docs/code-execution>
fn gemini_runs() -> Vec<Value> {
    let part =
        |part: Value| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]});
    let [code, result] = ran();
    let mut last = part(json!({"text": "Born on April 30, 1916."}));
    last["candidates"][0]["finishReason"] = json!("STOP");
    last["usageMetadata"] =
        json!({"promptTokenCount": 7, "candidatesTokenCount": 5, "totalTokenCount": 12});
    vec![part(code), part(result), last]
}

fn gemini_says(text: &str) -> Vec<Value> {
    let content = json!({"role": "model", "parts": [{"text": text}]});
    vec![json!({"candidates": [{"content": content, "finishReason": "STOP"}]})]
}

fn chat_says(text: &str) -> Vec<Value> {
    vec![json!({"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]})]
}

/// An answer for which this protocol's provider runs a tool.
pub(crate) fn runs(protocol: Protocol) -> Vec<Value> {
    match protocol {
        Protocol::OpenAiChat => chat_says("It runs no tools."),
        Protocol::OpenAiResponses => responses_search(),
        Protocol::AnthropicMessages => anthropic_search(),
        Protocol::Gemini => gemini_runs(),
        Protocol::BedrockConverse => Vec::new(), // its frames are no server-sent events
    }
}

async fn asks(world: &World, session: &Session, protocol: Protocol, text: &str) -> Result<()> {
    let with = With { model: Some((protocol.id(), "simulated")), ..With::default() };
    send(world, session, text, with).await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    Ok(())
}

/// All values of these arrays of a body, in order: its items, or the blocks of its messages.
fn parts(body: &str, list: &str, within: Option<&str>) -> Result<Vec<Value>> {
    let body: Value = serde_json::from_str(body)?;
    let items = body[list].as_array().context("a list")?.clone();
    let Some(within) = within else { return Ok(items) };
    Ok(items.iter().filter_map(|item| item[within].as_array().cloned()).flatten().collect())
}

/// A session in which `protocol`'s provider ran a tool is asked on, twice by the same and once by another provider. Each
/// time the items go back where they were, exactly, unless to another.
async fn goes_back(
    protocol: Protocol,
    answers: [Vec<Value>; 2],
    exact: &[Value],
    (list, within): (&str, Option<&str>),
) -> Result<()> {
    let (world, canned) = world(protocol).await?;
    let session = world.session().await?;
    let [first, second] = answers;
    canned.then(&first);
    asks(&world, &session, protocol, "When was he born?").await?;
    let (_, shown) = world.told(&session).await?.pop().context("a message")?;
    ensure!(shown[0].ends_with(": completed"), "{shown:?}");
    assert_eq!(shown[1..], ["Born on April 30, 1916."]);
    canned.then(&second);
    asks(&world, &session, protocol, "Are you sure?").await?;
    canned.then(&chat_says("They are."));
    asks(&world, &session, Protocol::OpenAiChat, "Are they?").await?;
    canned.then(&second);
    asks(&world, &session, protocol, "And now?").await?;

    let bodies = canned.bodies();
    for told in [&bodies[1], &bodies[3]] {
        let parts = parts(told, list, within)?;
        let at = parts.iter().position(|part| *part == exact[0]).with_context(|| told.clone())?;
        assert_eq!(parts[at..at + exact.len()], *exact, "{told}");
        ensure!(told.contains("Born on April 30, 1916."), "{told}");
    }
    let chat: Value = serde_json::from_str(&bodies[2])?;
    let told = chat["messages"].as_array().context("messages")?;
    let call = told.iter().find_map(|message| message["tool_calls"][0].as_object());
    let call = call.with_context(|| format!("the call is not told: {chat:#}"))?;
    let result = told.iter().find(|message| message["tool_call_id"] == call["id"]);
    ensure!(result.is_some(), "its result is not told: {chat:#}");
    ensure!(!bodies[2].contains("encrypted_content"), "{}", bodies[2]);

    // Nothing of it was run here, and every body is rebuilt from rows.
    let kinds = world.kinds(&session).await?;
    ensure!(!kinds.contains(&"tool.called"), "{kinds:?}");
    let (attempts, answered) = world.check_rows().await?;
    assert_eq!(attempts, answered);
    assert_eq!(attempts.values().sum::<u64>(), 4);
    Ok(())
}

#[tokio::test]
async fn a_search_of_anthropics_goes_back_as_it_came() -> Result<()> {
    let call = json!({"type": "server_tool_use", "id": "srvtoolu_01WYG3ziw53XMcoyKL4XcZmE",
        "name": "web_search", "input": {"query": "claude shannon birth date"}});
    let answers = [anthropic_search(), anthropic_says("Yes.")];
    let place = ("messages", Some("content"));
    goes_back(Protocol::AnthropicMessages, answers, &[call, found()], place).await
}

#[tokio::test]
async fn a_search_of_openais_goes_back_as_it_came() -> Result<()> {
    let answers = [responses_search(), responses_message(0, "Yes.")];
    goes_back(Protocol::OpenAiResponses, answers, &[searched()], ("input", None)).await
}

#[tokio::test]
async fn code_that_google_ran_goes_back_as_it_came() -> Result<()> {
    let answers = [gemini_runs(), gemini_says("Yes.")];
    goes_back(Protocol::Gemini, answers, &ran(), ("contents", Some("parts"))).await
}
