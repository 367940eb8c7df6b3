//! Claude is not asked to think in a round of calls that began without thinking, because it refuses that.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{state_of, thought};
use llm_protocol::{Dialect, LlmRequest, Message, Part, Protocol, RawJson, ToolCall, ToolResult};
use serde_json::{Value, json};

const CLAUDE: &str = "claude-sonnet-4-5";
const ON_BEDROCK: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

fn call(id: &str) -> Part {
    Part::ToolCall(ToolCall::new(id, "read", "{}"))
}

/// Returns a round of two calls, the first of which comes with this thought.
fn round(thought: Part) -> Vec<Message> {
    vec![
        Message::user("Read both."),
        Message::assistant(vec![thought, call("a")]),
        Message::tool(vec![ToolResult::text("a", "read", "x")]),
        Message::assistant(vec![call("b")]),
        Message::tool(vec![ToolResult::text("b", "read", "y")]),
    ]
}

fn signed(key: &str, model: &str) -> Part {
    let state = json!({ key: {"model": model, "signature": "c2ln"} });
    thought("hm", Some(RawJson::from(&state)))
}

fn foreign() -> Part {
    thought("hm", RawJson::parse(r#"{"openai":{"model":"gpt-5","itemId":"r"}}"#).ok())
}

fn anthropic(messages: Vec<Message>, options: Value) -> Value {
    let mut request = LlmRequest::new(CLAUDE, messages);
    request.generation.temperature = Some(0.5);
    request.generation.max_tokens = Some(1000);
    request.provider_options.insert("anthropic".into(), options);
    body(Protocol::AnthropicMessages, &request, &Dialect::default())
}

fn body(protocol: Protocol, request: &LlmRequest, dialect: &Dialect) -> Value {
    serde_json::from_slice(&protocol.encode_for(request, dialect)).unwrap()
}

fn budget() -> Value {
    json!({"thinking": {"type": "enabled", "budgetTokens": 2000}})
}

/// Returns the bound, the temperature and the thinking that a body asks for.
fn asked(body: &Value) -> Value {
    json!([body["max_tokens"], body["temperature"], body["thinking"]["type"]])
}

#[test]
fn a_round_that_another_model_began_goes_on_without_thinking() {
    let without = json!([1000, 0.5, null]);
    for first in [foreign(), signed("anthropic", "claude-opus-4-1"), thought("cut off", None)] {
        assert_eq!(asked(&anthropic(round(first), budget())), without);
    }
    // Text in the middle of the round, or a steer: the calls are still answered in the same message.
    for more in [Message::user("Hurry."), Message::system("It is late.")] {
        let messages = [round(foreign()), vec![more]].concat();
        assert_eq!(asked(&anthropic(messages, budget())), without);
    }
    // The same holds for another provider's own calls.
    let ran = Part::ToolCall(ToolCall {
        provider_executed: true,
        ..ToolCall::new("h", "web_search", "{}")
    });
    let found = Part::ToolResult(ToolResult::text("h", "web_search", "found"));
    let messages = vec![Message::user("Search."), Message::assistant(vec![ran, found])];
    assert_eq!(asked(&anthropic(messages, budget())), without);
}

#[test]
fn a_round_that_began_with_a_thought_and_a_new_turn_think() {
    let thinks = json!([3000, null, "enabled"]);
    let own = || round(signed("anthropic", CLAUDE));
    assert_eq!(asked(&anthropic(own(), budget())), thinks);
    let redacted = state_of("anthropic", r#""redacted":"Em==""#).unwrap();
    let redacted = RawJson::parse(redacted.get().replace(r#""m""#, &format!("\"{CLAUDE}\"")));
    assert_eq!(asked(&anthropic(round(thought("", redacted.ok())), budget())), thinks);
    let answered = [round(foreign()), vec![Message::assistant(vec![Part::text("Done.")])]].concat();
    let messages = [answered.clone(), vec![Message::user("More.")]].concat();
    assert_eq!(asked(&anthropic(messages, budget())), thinks);
    let messages = [answered, own()].concat();
    assert_eq!(asked(&anthropic(messages, budget())), thinks);
    assert_eq!(asked(&anthropic(vec![Message::user("Hi")], budget())), thinks);
}

#[test]
fn where_the_model_decides_or_is_not_claude_a_round_may_begin_without_a_thought() {
    let adaptive = json!({"thinking": {"type": "adaptive"}});
    assert_eq!(asked(&anthropic(round(foreign()), adaptive)), json!([1000, null, "adaptive"]));
    let mut request = LlmRequest::new("MiniMax-M2", round(foreign()));
    request.provider_options.insert("anthropic".into(), budget());
    let dialect = Dialect { state_key: Some("minimax".into()), ..Dialect::default() };
    let body = body(Protocol::AnthropicMessages, &request, &dialect);
    assert_eq!(body["thinking"]["type"], "enabled");
}

#[test]
fn what_is_refused_without_thinking_goes_with_it() {
    let clear = json!({"type": "clear_thinking_20251015"});
    let uses = json!({"type": "clear_tool_uses_20250919"});
    let mut options = budget();
    options["contextManagement"] = json!({"edits": [clear, uses]});
    let body = anthropic(round(foreign()), options.clone());
    assert_eq!(body["context_management"], json!({"edits": [uses]}));
    let body = anthropic(round(signed("anthropic", CLAUDE)), options);
    assert_eq!(body["context_management"], json!({"edits": [clear, uses]}));
}

#[test]
fn on_bedrock_it_is_the_same() {
    let converse = |first: Part, raw: Value| {
        let mut request = LlmRequest::new(ON_BEDROCK, round(first));
        request.generation.temperature = Some(0.5);
        let options = json!({"reasoningConfig": {"type": "enabled", "budgetTokens": 2000, "maxReasoningEffort": "low"}});
        request.provider_options.insert("bedrock".into(), options);
        request.provider_options.insert("bedrock-converse".into(), raw);
        let mut body = body(Protocol::BedrockConverse, &request, &Dialect::default());
        json!([body["inferenceConfig"].take(), body["additionalModelRequestFields"].take()])
    };
    let effort = json!({"effort": "low"});
    assert_eq!(
        converse(foreign(), json!({})),
        json!([{"temperature": 0.5}, {"output_config": effort}])
    );
    let thinking = json!({"type": "enabled", "budget_tokens": 2000});
    assert_eq!(
        converse(signed("bedrock", ON_BEDROCK), json!({})),
        json!([{"maxTokens": 6096}, {"output_config": effort, "reasoning_config": thinking}])
    );
    let raw = json!({"additionalModelRequestFields": {
        "thinking": thinking, "anthropic_beta": ["interleaved-thinking-2025-05-14"], "x": 1,
    }});
    assert_eq!(
        converse(foreign(), raw),
        json!([{"temperature": 0.5}, {"output_config": effort, "x": 1}])
    );
}
