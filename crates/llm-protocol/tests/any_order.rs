//! Each provider's rules for calls and answers hold in any order of text, thoughts and calls from any model,
//! and no text is lost.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use llm_protocol::{
    Dialect, LlmRequest, Message, Part, Protocol, RawJson, TextPart, ToolCall, ToolResult,
};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The model's next action.
#[derive(Clone, Copy, Debug)]
enum Act {
    Text,
    Blank,
    Thought,
    Call,
    /// A call that its provider ran; its result comes after this many other acts.
    Hosted(usize),
}

/// The owners of an answer, by their key of provider state.
const OWNERS: [Option<&str>; 5] =
    [None, Some("anthropic"), Some("bedrock"), Some("google"), Some("openai")];

fn state(owner: Option<&str>, members: Value) -> Option<RawJson> {
    let mut members = members;
    members["model"] = "m".into();
    owner.map(|owner| RawJson::from(&json!({ owner: members })))
}

fn hosted(owner: Option<&str>, id: &str) -> (Part, Part) {
    let anthropic = owner == Some("anthropic");
    let (called, found) = if anthropic {
        (
            json!({"type": "server_tool_use", "id": id, "name": "search", "input": {}}),
            json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}),
        )
    } else {
        (
            json!({"toolUse": {"toolUseId": id, "name": "search", "input": {}, "type": "server_tool_use"}}),
            json!({"toolResult": {"toolUseId": id, "content": [], "type": "found"}}),
        )
    };
    let item = json!({"type": "web_search_call", "id": id});
    let call = json!({"block": called, "part": {"executableCode": {"code": id}}, "item": item});
    let result =
        json!({"block": found, "part": {"codeExecutionResult": {"output": id}}, "item": item});
    let call = ToolCall {
        provider_executed: true,
        provider_metadata: state(owner, call),
        ..ToolCall::new(id, "search", "{}")
    };
    let result = ToolResult {
        provider_metadata: state(owner, result),
        ..ToolResult::text(id, "search", "found")
    };
    (Part::ToolCall(call), Part::ToolResult(result))
}

/// Returns the reply, the results of its calls, and its texts.
fn reply(owner: Option<&str>, acts: &[Act]) -> (Vec<Message>, Vec<String>) {
    let mut parts = Vec::new();
    let mut due: Vec<(usize, Part)> = Vec::new();
    let (mut results, mut texts) = (Vec::new(), Vec::new());
    for (at, act) in acts.iter().enumerate() {
        let (now, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|(when, _)| *when <= at);
        parts.extend(now.into_iter().map(|(_, part)| part));
        due = later;
        match act {
            Act::Text => {
                texts.push(format!("said-{at}."));
                parts.push(Part::text(format!("said-{at}.")));
            }
            Act::Blank => parts.push(Part::text(" ")),
            Act::Thought => {
                let members = json!({"signature": "s", "encryptedContent": "e", "thought": true,
                    "thoughtSignature": "t"});
                let provider_metadata = state(owner, members);
                parts.push(Part::Reasoning(TextPart { text: "hm".into(), provider_metadata }));
            }
            Act::Call => {
                let id = format!("own_{at}");
                results.push(ToolResult::text(&id, "read", "x"));
                parts.push(Part::ToolCall(ToolCall::new(id, "read", "{}")));
            }
            Act::Hosted(after) => {
                let (call, result) = hosted(owner, &format!("hosted_{at}"));
                parts.push(call);
                due.push((at + 1 + after, result));
            }
        }
    }
    parts.extend(due.into_iter().map(|(_, part)| part));
    let mut messages = vec![Message::assistant(parts)];
    if !results.is_empty() {
        messages.push(Message::tool(results));
    }
    (messages, texts)
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

/// Checks that calls end their message, and that the next one begins with exactly their results.
fn check_ended_by_calls(
    messages: &[Value],
    is_call: fn(&Value) -> Option<&str>,
    is_result: fn(&Value) -> Option<&str>,
) {
    let mut due: BTreeSet<&str> = BTreeSet::new();
    for message in messages {
        let blocks = list(message, "content");
        let results: Vec<&str> = blocks.iter().map_while(is_result).collect();
        assert_eq!(blocks.iter().filter_map(is_result).count(), results.len(), "{message}");
        assert_eq!(results.iter().copied().collect::<BTreeSet<_>>(), due, "{message}");
        assert!(results.is_empty() || message["role"] == "user");
        let first = blocks.iter().position(|block| is_call(block).is_some());
        let calls: Vec<&str> = blocks[first.unwrap_or(blocks.len())..]
            .iter()
            .map(|block| is_call(block).unwrap_or_else(|| panic!("after a call: {message}")))
            .collect();
        assert!(calls.is_empty() || message["role"] == "assistant");
        due = calls.into_iter().collect();
    }
    assert!(due.is_empty());
}

fn check_anthropic(body: &Value) {
    check_ended_by_calls(
        list(body, "messages"),
        |block| (block["type"] == "tool_use").then(|| block["id"].as_str().unwrap()),
        |block| (block["type"] == "tool_result").then(|| block["tool_use_id"].as_str().unwrap()),
    );
}

fn check_bedrock(body: &Value) {
    let messages = list(body, "messages");
    assert!(messages.windows(2).all(|two| two[0]["role"] != two[1]["role"]), "{body}");
    // Blocks that Bedrock ran itself have a type.
    check_ended_by_calls(
        messages,
        |block| {
            let call = block.get("toolUse").filter(|call| call.get("type").is_none())?;
            call["toolUseId"].as_str()
        },
        |block| {
            let result = block.get("toolResult").filter(|result| result.get("type").is_none())?;
            result["toolUseId"].as_str()
        },
    );
}

/// Checks that a turn of calls is followed by as many answers.
fn check_gemini(body: &Value) {
    let contents = list(body, "contents");
    let count = |content: &Value, key: &str| {
        list(content, "parts").iter().filter(|part| part.get(key).is_some()).count()
    };
    let mut due = 0;
    for content in contents {
        assert_eq!(count(content, "functionResponse"), due, "{body}");
        due = count(content, "functionCall");
    }
    assert_eq!(due, 0);
    assert!(contents.windows(2).all(|two| two[0]["role"] != two[1]["role"]), "{body}");
}

/// Checks that each call is answered before any other message.
fn check_chat(body: &Value) {
    let mut due: BTreeSet<&str> = BTreeSet::new();
    for message in list(body, "messages") {
        if message["role"] == "tool" {
            assert!(due.remove(message["tool_call_id"].as_str().unwrap()), "{body}");
            continue;
        }
        assert!(due.is_empty(), "{body}");
        let calls = message.get("tool_calls").and_then(Value::as_array);
        due = calls.into_iter().flatten().map(|call| call["id"].as_str().unwrap()).collect();
    }
    assert!(due.is_empty(), "{body}");
}

/// Checks that each call has one output after it.
fn check_responses(body: &Value) {
    let mut due: BTreeSet<&str> = BTreeSet::new();
    for item in list(body, "input") {
        match item["type"].as_str() {
            Some("function_call") => assert!(due.insert(item["call_id"].as_str().unwrap())),
            Some("function_call_output") => {
                assert!(due.remove(item["call_id"].as_str().unwrap()), "{body}");
            }
            _ => {}
        }
    }
    assert!(due.is_empty(), "{body}");
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => Just(Act::Text),
        1 => Just(Act::Blank),
        2 => Just(Act::Thought),
        3 => Just(Act::Call),
        2 => (0_usize..3).prop_map(Act::Hosted),
    ];
    prop::collection::vec(act, 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_order_of_a_reply_keeps_every_providers_rules(
        owner in prop::sample::select(&OWNERS[..]),
        first in acts(),
        second in acts(),
    ) {
        let mut messages = vec![Message::user("Begin.")];
        let (one, mut texts) = reply(owner, &first);
        messages.extend(one);
        messages.push(Message::user("Go on."));
        let (two, more) = reply(owner, &second);
        messages.extend(two);
        messages.push(Message::user("And."));
        texts.extend(more);
        let request = LlmRequest::new("m", messages);
        for protocol in Protocol::ALL {
            let mut request = request.clone();
            for message in &mut request.messages {
                if let Some(parts) = protocol.in_order("m", &Dialect::default(), message) {
                    message.content = parts;
                }
            }
            let bytes = protocol.encode(&request);
            let body: Value = serde_json::from_slice(&bytes).unwrap();
            match *protocol {
                Protocol::AnthropicMessages => check_anthropic(&body),
                Protocol::BedrockConverse => check_bedrock(&body),
                Protocol::Gemini => check_gemini(&body),
                Protocol::OpenAiChat => check_chat(&body),
                Protocol::OpenAiResponses => check_responses(&body),
            }
            let text = String::from_utf8(bytes).unwrap();
            for said in &texts {
                let said_so = texts.iter().filter(|other| *other == said).count();
                prop_assert_eq!(text.matches(said.as_str()).count(), said_so, "{}", &text);
            }
        }
    }
}
