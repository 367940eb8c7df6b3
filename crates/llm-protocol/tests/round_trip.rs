//! Provider data goes back to its provider unchanged through neutral JSON: an answer is decoded, put into the
//! next request, written and read as JSON, and encoded.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{neutral, said};
use llm_protocol::{Dialect, LlmEvent, LlmRequest, Message, Protocol};
use serde_json::{Value, json};

const MODEL: &str = "m";

fn events(protocol: Protocol, frames: &[Value]) -> Vec<LlmEvent> {
    let mut decoder = protocol.decoder_for(MODEL, &Dialect::default());
    let mut events = Vec::new();
    for frame in frames {
        events.extend(decoder.push(&frame.to_string()).unwrap());
    }
    events.extend(decoder.finish().unwrap());
    assert_eq!(common::disorder(&events), None);
    events
}

/// Returns the body of a request of `model` whose conversation contains the answer with these frames.
fn next(protocol: Protocol, model: &str, frames: &[Value]) -> Value {
    let answer = said(&events(protocol, frames));
    let request = LlmRequest::new(model, vec![Message::user("a"), answer]);
    let body = protocol.encode(&neutral(&request));
    serde_json::from_slice(&body).unwrap()
}

fn responses(items: &[Value]) -> Vec<Value> {
    let done = items.iter().enumerate().flat_map(|(at, item)| {
        let frame = |kind: &str, item: &Value| {
            json!({"type": format!("response.output_item.{kind}"), "output_index": at, "item": item})
        };
        [frame("added", item), frame("done", item)]
    });
    done.chain([json!({"type": "response.completed", "response": {}})]).collect()
}

#[test]
fn items_of_responses() {
    let summary = |text: &str| json!({"type": "summary_text", "text": text});
    let items = [
        json!({"type": "reasoning", "id": "rs_1", "summary": [summary("**A**\n"), summary("b")],
            "encrypted_content": "e1"}),
        json!({"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "e2"}),
        json!({"type": "reasoning", "id": "rs_3", "summary": [summary("one")],
            "content": [{"type": "reasoning_text", "text": "raw"}]}),
        json!({"type": "message", "id": "msg", "role": "assistant", "phase": "commentary",
            "content": [{"type": "output_text", "text": "First.", "annotations": []}]}),
        json!({"type": "web_search_call", "id": "ws", "status": "completed",
            "action": {"type": "search", "query": "q"}}),
        json!({"type": "function_call", "id": "fc", "call_id": "c1", "name": "read",
            "arguments": "{\"a\":1.0}"}),
        json!({"type": "message", "id": "msg2", "role": "assistant", "phase": "final_answer",
            "content": [{"type": "output_text", "text": "So.", "annotations": []}]}),
    ];
    let frames = responses(&items);
    let said = |text: &str, phase: &str| {
        json!({"role": "assistant", "phase": phase,
            "content": [{"type": "output_text", "text": text}]})
    };
    let call = json!({"type": "function_call", "call_id": "c1", "name": "read",
        "arguments": "{\"a\":1.0}"});
    let [first, second, third, _, search, ..] = items;
    let input = next(Protocol::OpenAiResponses, MODEL, &frames)["input"].take();
    let expected = [
        first,
        second,
        third,
        said("First.", "commentary"),
        search,
        call,
        said("So.", "final_answer"),
    ];
    assert_eq!(input.as_array().unwrap()[1..], expected);
    let elsewhere = next(Protocol::OpenAiResponses, "another", &frames).to_string();
    for secret in ["rs_1", "e1", "phase", "web_search_call"] {
        assert!(!elsewhere.contains(secret), "{secret} in {elsewhere}");
    }
}

#[test]
fn parts_of_one_item_of_reasoning_are_one_item_however_they_are_cut() {
    let request = json!({"model": "m", "messages": [{"role": "assistant", "content": [
        {"type": "reasoning", "text": "a", "providerMetadata": {"openai": {"itemId": "rs"}}},
        {"type": "reasoning", "text": "b",
            "providerMetadata": {"openai": {"itemId": "rs", "encryptedContent": "e"}}},
        {"type": "reasoning", "text": "lost", "providerMetadata": {"openai": {"itemId": "rs2"}}},
        {"type": "text", "text": "So."},
    ]}]});
    let request: LlmRequest = serde_json::from_value(request).unwrap();
    let body = Protocol::OpenAiResponses.encode(&request);
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap()["input"][0],
        json!({"type": "reasoning", "id": "rs", "encrypted_content": "e", "summary": [
            {"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]})
    );
}

#[test]
fn blocks_of_anthropic() {
    let block = |at: usize, start: Value, deltas: &[Value]| {
        let start = json!({"type": "content_block_start", "index": at, "content_block": start});
        let deltas = deltas
            .iter()
            .map(move |delta| json!({"type": "content_block_delta", "index": at, "delta": delta}));
        let stop = json!({"type": "content_block_stop", "index": at});
        [start].into_iter().chain(deltas.collect::<Vec<_>>()).chain([stop]).collect::<Vec<_>>()
    };
    let thinks = |text: &str| json!({"type": "thinking_delta", "thinking": text});
    let signs = |text: &str| json!({"type": "signature_delta", "signature": text});
    let writes = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    let thinking = || json!({"type": "thinking", "thinking": "", "signature": ""});
    let search = json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "srv", "content": [
        {"type": "web_search_result", "url": "https://h", "title": "é", "encrypted_content": "x"}]});
    let frames = [
        block(0, thinking(), &[thinks("Hm, "), thinks("é"), signs("s/"), signs("1=")]),
        block(1, thinking(), &[signs("s2")]),
        block(2, json!({"type": "redacted_thinking", "data": "EmwK"}), &[]),
        block(3, search, &[writes("{\"query\":"), writes(" \"q\"}")]),
        block(4, found.clone(), &[]),
        block(
            5,
            json!({"type": "text", "text": ""}),
            &[json!({"type": "text_delta", "text": "So."})],
        ),
        block(
            6,
            json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}),
            &[writes("{\"a\": 1.0}")],
        ),
        vec![
            json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
            json!({"type": "message_stop"}),
        ],
    ]
    .concat();
    let expected = [
        json!({"type": "thinking", "thinking": "Hm, é", "signature": "s/1="}),
        json!({"type": "thinking", "thinking": "", "signature": "s2"}),
        json!({"type": "redacted_thinking", "data": "EmwK"}),
        json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}}),
        found,
        json!({"type": "text", "text": "So."}),
        json!({"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"a": 1.0}}),
    ];
    let content =
        next(Protocol::AnthropicMessages, MODEL, &frames)["messages"][1]["content"].take();
    assert_eq!(content.as_array().unwrap()[..], expected);
    let elsewhere = next(Protocol::AnthropicMessages, "another", &frames).to_string();
    for secret in ["s/1=", "EmwK", "server_tool_use"] {
        assert!(!elsewhere.contains(secret), "{secret} in {elsewhere}");
    }
}

#[test]
fn parts_of_gemini() {
    let parts = [
        json!({"text": "Hm.", "thought": true}),
        json!({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s0"}),
        json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}),
        json!({"text": "So.", "thoughtSignature": "s1"}),
        json!({"functionCall": {"id": "x/1", "name": "read", "args": {"a": 1.0}}, "thoughtSignature": "s2"}),
        json!({"functionCall": {"name": "read", "args": {}}}),
        json!({"text": "", "thoughtSignature": "s3"}),
    ];
    let mut frames: Vec<_> = parts
        .iter()
        .map(|part| json!({"candidates": [{"content": {"role": "model", "parts": [part]}}]}))
        .collect();
    frames.push(json!({"candidates": [{"finishReason": "STOP"}]}));
    let sent = next(Protocol::Gemini, MODEL, &frames)["contents"][1].take();
    assert_eq!(sent, json!({"role": "model", "parts": parts}));
    let elsewhere = next(Protocol::Gemini, "another", &frames).to_string();
    for secret in ["thoughtSignature", "x/1", "executableCode"] {
        assert!(!elsewhere.contains(secret), "{secret} in {elsewhere}");
    }
}

#[test]
fn blocks_of_bedrock() {
    let delta = |at: u64, delta: Value| json!({"contentBlockDelta": {"contentBlockIndex": at, "delta": delta}});
    let stop = |at: u64| json!({"contentBlockStop": {"contentBlockIndex": at}});
    let reasons = |part: Value| json!({ "reasoningContent": part });
    let frames = [
        delta(0, reasons(json!({"text": "Hm"}))),
        delta(0, reasons(json!({"signature": "s1"}))),
        stop(0),
        delta(1, reasons(json!({"redactedContent": "AAEC"}))),
        stop(1),
        delta(2, json!({"text": "So."})),
        stop(2),
        json!({"contentBlockStart": {"contentBlockIndex": 3,
            "start": {"toolUse": {"toolUseId": "tooluse_1", "name": "read"}}}}),
        delta(3, json!({"toolUse": {"input": "{\"a\": 1.0}"}})),
        stop(3),
        json!({"messageStop": {"stopReason": "tool_use"}}),
    ];
    let content = next(Protocol::BedrockConverse, MODEL, &frames)["messages"][1]["content"].take();
    assert_eq!(
        content,
        json!([
            {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s1"}}},
            {"reasoningContent": {"redactedContent": "AAEC"}},
            {"text": "So."},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "read", "input": {"a": 1.0}}},
        ])
    );
    let elsewhere = next(Protocol::BedrockConverse, "another", &frames).to_string();
    for secret in ["s1", "AAEC"] {
        assert!(!elsewhere.contains(secret), "{secret} in {elsewhere}");
    }
}

#[test]
fn reasoning_of_openrouter() {
    let dialect: Dialect = serde_json::from_value(
        json!({"stateKey": "openrouter", "reasoningField": "reasoning_details"}),
    )
    .unwrap();
    let detail = |text: &str, signature: Value| json!({"type": "reasoning.text", "text": text, "index": 0, "format": "f", "signature": signature});
    let sealed = json!({"type": "reasoning.encrypted", "data": "x", "index": 1, "id": "r"});
    let frames = [
        json!({"choices": [{"delta": {"reasoning": "a", "reasoning_details": [detail("a", Value::Null)]}}]}),
        json!({"choices": [{"delta": {"reasoning": "b", "reasoning_details": [detail("b", json!("s"))]}}]}),
        json!({"choices": [{"delta": {"reasoning_details": [&sealed]}}]}),
        json!({"choices": [{"delta": {"content": "So."}, "finish_reason": "stop"}]}),
    ];
    let mut decoder = Protocol::OpenAiChat.decoder_for(MODEL, &dialect);
    let mut events: Vec<_> =
        frames.iter().flat_map(|frame| decoder.push(&frame.to_string()).unwrap()).collect();
    events.extend(decoder.finish().unwrap());
    let request = LlmRequest::new(MODEL, vec![said(&events)]);
    let body = Protocol::OpenAiChat.encode_for(&neutral(&request), &dialect);
    assert_eq!(
        serde_json::from_slice::<Value>(&body).unwrap()["messages"],
        json!([{"role": "assistant", "content": "So.",
            "reasoning_details": [detail("ab", json!("s")), sealed]}])
    );
}

#[test]
fn reasoning_of_copilot() {
    let dialect = |key: &str| Dialect { state_key: Some(key.into()), ..Dialect::default() };
    let body = |frames: &[Value], key: &str| {
        let mut decoder = Protocol::OpenAiChat.decoder_for(MODEL, &dialect("github-copilot"));
        let mut events: Vec<_> =
            frames.iter().flat_map(|frame| decoder.push(&frame.to_string()).unwrap()).collect();
        events.extend(decoder.finish().unwrap());
        assert_eq!(common::disorder(&events), None);
        let request = LlmRequest::new(MODEL, vec![said(&events)]);
        let body = Protocol::OpenAiChat.encode_for(&neutral(&request), &dialect(key));
        serde_json::from_slice::<Value>(&body).unwrap()["messages"].take()
    };
    let delta = |delta: Value| json!({"choices": [{"index": 0, "delta": delta}]});
    let end = || json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let thought = || delta(json!({"reasoning_text": "Hm", "content": null}));
    let opaque = "b3BhcXVl/+==";
    let expected = json!([{"role": "assistant", "content": "So.",
        "reasoning_text": "Hm", "reasoning_opaque": opaque}]);
    // The seal comes with the thought, with the text after it, or alone at the end.
    let with_text = delta(json!({"content": "So.", "reasoning_opaque": opaque}));
    assert_eq!(body(&[thought(), with_text, end()], "github-copilot"), expected);
    let late = [
        thought(),
        delta(json!({"content": "So."})),
        delta(json!({"content": "", "reasoning_opaque": opaque})),
        end(),
    ];
    assert_eq!(body(&late, "github-copilot"), expected);
    // Without visible reasoning, beside calls.
    let call = json!([{"index": 0, "id": "c", "function": {"name": "t", "arguments": "{}"}}]);
    let calls = [delta(json!({"tool_calls": call, "reasoning_opaque": opaque})), end()];
    let function = json!({"name": "t", "arguments": "{}"});
    let sealed = json!([{"role": "assistant", "content": null, "reasoning_opaque": opaque,
        "tool_calls": [{"id": "c", "type": "function", "function": function}]}]);
    assert_eq!(body(&calls, "github-copilot"), sealed);
    // An unsealed thought is not sent, and other deployments receive none.
    let plain = json!([{"role": "assistant", "content": "So."}]);
    let unsealed = [thought(), delta(json!({"content": "So.", "reasoning_opaque": ""})), end()];
    assert_eq!(body(&unsealed, "github-copilot"), plain);
    assert_eq!(body(&late, "openai"), plain);
}

#[test]
fn summaries_of_anthropic() {
    let start = |at: u64, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let delta =
        |at: u64, delta: Value| json!({"type": "content_block_delta", "index": at, "delta": delta});
    let stop = |at: u64| json!({"type": "content_block_stop", "index": at});
    let frames = [
        start(0, json!({"type": "compaction", "content": null, "encrypted_content": null})),
        delta(0, json!({"type": "compaction_delta", "content": "All ", "encrypted_content": null})),
        delta(
            0,
            json!({"type": "compaction_delta", "content": "so far.", "encrypted_content": "e"}),
        ),
        stop(0),
        start(1, json!({"type": "text", "text": ""})),
        delta(1, json!({"type": "text_delta", "text": "So."})),
        stop(1),
        // One failed summary, and one that came whole.
        start(2, json!({"type": "compaction", "content": null})),
        delta(2, json!({"type": "compaction_delta", "content": null})),
        stop(2),
        start(3, json!({"type": "compaction", "content": "whole", "kind": 1.5})),
        json!({"type": "message_stop"}),
    ];
    let content =
        next(Protocol::AnthropicMessages, MODEL, &frames)["messages"][1]["content"].take();
    assert_eq!(
        content,
        json!([
            {"type": "compaction", "content": "All so far.", "encrypted_content": "e"},
            {"type": "text", "text": "So."},
            {"type": "compaction", "content": null},
            {"type": "compaction", "content": "whole", "kind": 1.5},
        ])
    );
    let elsewhere = next(Protocol::AnthropicMessages, "another", &frames)["messages"][1].take();
    assert_eq!(
        elsewhere,
        json!({"role": "assistant", "content": [{"type": "text", "text": "So."}]})
    );
}

#[test]
fn items_of_responses_that_are_neither_said_nor_called() {
    let text = |id: &str, text: &str| {
        json!({"type": "message", "id": id, "role": "assistant",
        "content": [{"type": "output_text", "text": text}]})
    };
    let tools = json!([{"name": "roll", "input_schema": {"type": "object"}, "annotations": null}]);
    let items = [
        json!({"type": "mcp_list_tools", "id": "mcpl", "server_label": "dice", "tools": tools}),
        text("m1", "Rolling."),
        json!({"type": "mcp_call", "id": "mcp", "server_label": "dice", "name": "roll",
            "arguments": "{\"d\": 4}", "output": "3", "error": null, "approval_request_id": null}),
        json!({"type": "mcp_approval_request", "id": "mcpr", "server_label": "dice",
            "name": "roll", "arguments": "{}"}),
        json!({"type": "compaction", "id": "cmp", "encrypted_content": "e"}),
        text("m2", "So."),
        json!({"type": "novel_item", "id": "n"}),
    ];
    let frames = responses(&items);
    let input = next(Protocol::OpenAiResponses, MODEL, &frames)["input"].take();
    let said = |text: &str| json!({"role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let [list, _, call, asked, compaction, ..] = items;
    let expected = [list, said("Rolling."), call, asked, compaction, said("So.")];
    assert_eq!(input.as_array().unwrap()[1..], expected);
    // Another model receives the call as if it were ours, and nothing else.
    let elsewhere = next(Protocol::OpenAiResponses, "another", &frames)["input"].take();
    let kinds: Vec<_> =
        elsewhere.as_array().unwrap()[1..].iter().map(|item| item["type"].clone()).collect();
    let (call, output) = (json!("function_call"), json!("function_call_output"));
    assert_eq!(kinds, [Value::Null, call, output, Value::Null]);
}
