//! Tools of stand-alone callers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use llm_client::{Bounds, Llm, Route, Tools};
use llm_protocol::{
    FinishReason, LlmEvent, LlmRequest, Message, Protocol, RawJson, ToolChoice, ToolContent,
    ToolDefinition, ToolResult, Usage,
};
use serde_json::{Value, json};

use crate::server::{Server, client, events};

/// Starts a server that gives these answers in turn; the last one repeats.
async fn server(answers: Vec<Vec<Value>>) -> (Server, Llm) {
    let answers = Arc::new(answers);
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move || {
        let at = asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let frames = answers[at].iter().map(|frame| format!("data: {frame}\n\n"));
        let body: String = frames.chain(["data: [DONE]\n\n".to_owned()]).collect();
        events(Body::from(body))
    })
    .await;
    let llm = client().on(Route::new(Protocol::OpenAiChat, "m", server.endpoint.clone()));
    (server, llm)
}

fn says(text: &str) -> Vec<Value> {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    vec![
        json!({"choices": [{"delta": {"content": text}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}),
    ]
}

fn calls(calls: &[(&str, &str, &str)]) -> Vec<Value> {
    let calls = calls.iter().enumerate().map(|(index, (id, name, arguments))| {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    });
    let calls: Vec<_> = calls.collect();
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    vec![
        json!({"choices": [{"delta": {"content": "Let me see."}}]}),
        json!({"choices": [{"delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}], "usage": usage}),
    ]
}

fn definition(name: &str) -> ToolDefinition {
    let input_schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
    ToolDefinition { name: name.into(), description: "Does.".into(), input_schema }
}

fn doubling() -> Tools {
    Tools::new().with(definition("double"), |arguments| async move {
        let number = arguments["n"].as_i64().ok_or("`n` must be a whole number")?;
        Ok((number * 2).to_string())
    })
}

async fn run(llm: &Llm, tools: Tools, bounds: Bounds) -> Vec<LlmEvent> {
    let mut request = LlmRequest::new("", vec![Message::user("Double 21.")]);
    request.tool_choice = ToolChoice::Required;
    let events: Vec<_> = llm.run(request, tools, bounds).collect().await;
    events.into_iter().map(Result::unwrap).collect()
}

fn results(events: &[LlmEvent]) -> Vec<(String, bool)> {
    let texts = events.iter().filter_map(|event| {
        let LlmEvent::ToolResult(ToolResult { content, is_error, .. }) = event else { return None };
        match content.as_slice() {
            [ToolContent::Text { text }] => Some((text.clone(), *is_error)),
            other => panic!("one text: {other:?}"),
        }
    });
    texts.collect()
}

#[tokio::test]
async fn calls_are_run_and_answered_until_the_model_is_done() {
    let (server, llm) = server(vec![
        calls(&[("a", "double", r#"{"n":21}"#), ("b", "double", r#"{"n":"x"}"#)]),
        says("42"),
    ])
    .await;
    let events = run(&llm, doubling(), Bounds::default()).await;
    assert_eq!(
        results(&events),
        [("42".into(), false), ("`n` must be a whole number".into(), true)]
    );
    let steps = events.iter().filter_map(|event| {
        let LlmEvent::StepFinish { reason, .. } = event else { return None };
        Some(*reason)
    });
    assert_eq!(steps.collect::<Vec<_>>(), [FinishReason::ToolCalls, FinishReason::Stop]);
    let usage = Usage { input_tokens: 13, output_tokens: 7, total_tokens: 20, ..Usage::default() };
    let finish = LlmEvent::Finish { reason: FinishReason::Stop, usage: Some(usage) };
    assert_eq!(events.last(), Some(&finish));
    assert_eq!(events.iter().filter(|event| **event == finish).count(), 1);

    let seen = server.seen();
    let body = |at: usize| serde_json::from_slice::<Value>(&seen[at].body).unwrap();
    assert_eq!((seen.len(), &body(0)["tool_choice"]), (2, &json!("required")));
    assert_eq!(body(0)["tools"][0]["function"]["name"], "double");
    assert_eq!(body(1)["tool_choice"], Value::Null, "the first answer was forced, not the next");
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "double", "arguments": arguments}});
    assert_eq!(
        body(1)["messages"],
        json!([
            {"role": "user", "content": "Double 21."},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [call("a", r#"{"n":21}"#), call("b", r#"{"n":"x"}"#)]},
            {"role": "tool", "tool_call_id": "a", "content": "42"},
            {"role": "tool", "tool_call_id": "b", "content": "Error: `n` must be a whole number"},
        ])
    );
}

#[tokio::test]
async fn what_cannot_be_run_is_told_to_the_model() {
    let (_server, llm) = server(vec![
        calls(&[
            ("a", "halve", "{}"),
            ("b", "double", "{\"n\":"),
            ("c", "sleep", ""),
            ("d", "long", "{}"),
        ]),
        says("Sorry."),
    ])
    .await;
    let tools = doubling()
        .with(definition("sleep"), |_| futures::future::pending())
        .with(definition("long"), |_| async { Ok("é".repeat(50)) });
    let bounds =
        Bounds { call_timeout: Duration::from_millis(50), result_bytes: 95, ..Bounds::default() };
    let results = results(&run(&llm, tools, bounds).await);
    let unknown = "there is no tool `halve`; there are: double, sleep, long";
    assert_eq!(results[0], (unknown.to_owned(), true));
    assert!(results[1].1 && results[1].0.starts_with("the arguments are no valid JSON: "));
    assert_eq!(results[2], ("the tool did not answer within 50ms".to_owned(), true));
    let cut = format!("{}\n[cut: these are the first 94 of 100 bytes]", "é".repeat(47));
    assert_eq!(results[3], (cut, false));
}

#[tokio::test]
async fn rounds_and_tools_at_a_time_are_bounded() {
    let many: Vec<_> = (0..9).map(|at| format!("c{at}")).collect();
    let many: Vec<_> = many.iter().map(|id| (id.as_str(), "count", "{}")).collect();
    let (server, llm) = server(vec![calls(&many)]).await;
    let running = Arc::new(Mutex::new((0_usize, 0_usize)));
    let counted = Arc::clone(&running);
    let tools = Tools::new().with(definition("count"), move |_| {
        let running = Arc::clone(&counted);
        async move {
            {
                let mut running = running.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            tokio::task::yield_now().await;
            running.lock().unwrap().0 -= 1;
            Ok(String::new())
        }
    });
    let bounds = Bounds { rounds: 3, parallel: 4, ..Bounds::default() };
    let events = run(&llm, tools, bounds).await;
    assert_eq!((server.seen().len(), results(&events).len()), (3, 18), "the last are not run");
    assert_eq!(running.lock().unwrap().1, 4);
    let usage = Usage { input_tokens: 30, output_tokens: 15, total_tokens: 45, ..Usage::default() };
    let end = LlmEvent::Finish { reason: FinishReason::ToolCalls, usage: Some(usage) };
    assert_eq!(events.last(), Some(&end));
}

#[tokio::test]
async fn an_error_ends_it() {
    let error = json!({"error": {"message": "overloaded", "code": 502}});
    let (server, llm) = server(vec![calls(&[("a", "double", r#"{"n":1}"#)]), vec![error]]).await;
    let request = LlmRequest::new("", vec![Message::user("Double 1.")]);
    let mut events: Vec<_> = llm.run(request, doubling(), Bounds::default()).collect().await;
    let error = events.pop().unwrap().unwrap_err();
    assert_eq!(error.provider_message, "overloaded");
    assert!(events.iter().all(Result::is_ok) && server.seen().len() == 2);
}
