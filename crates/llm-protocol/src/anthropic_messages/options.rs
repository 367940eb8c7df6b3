//! Model Request Options of Claude, in the names of the AI SDK, and what they mean for the controls.

use serde_json::Value;

use crate::anthropic_messages::{ID, STATE_KEY};
use crate::dialect::Dialect;
use crate::json::control_number;
use crate::options::{BodyFields, OptionTable};
use crate::request::{LlmRequest, ToolChoice};

pub(super) const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &[STATE_KEY],
    names: &[
        ("container", "container"),
        ("contextManagement", "context_management"),
        ("disableParallelToolUse", ONE_AT_A_TIME),
        ("effort", "output_config.effort"),
        ("inferenceGeo", "inference_geo"),
        ("mcpServers", "mcp_servers"),
        ("metadata", "metadata"),
        ("serviceTier", "service_tier"),
        ("speed", "speed"),
        ("thinking", "thinking"),
    ],
    merged: &["metadata", "output_config", "thinking"],
    fixed: &["model", "system", "messages", "tools", "tool_choice", "stream"],
};

/// No field of the body but of its `tool_choice`.
const ONE_AT_A_TIME: &str = "disable_parallel_tool_use";

/// What an answer may have where nobody said: the protocol demands a bound.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// What the options and controls of a request come to.
pub(super) struct Asked<'a> {
    pub(super) controls: Vec<(&'a str, Value)>,
    pub(super) fields: BodyFields,
    /// The model is to call one tool at a time.
    pub(super) one_at_a_time: bool,
}

pub(super) fn asked<'a>(request: &LlmRequest, dialect: &'a Dialect) -> Asked<'a> {
    let mut fields = OPTIONS.fields(request, dialect);
    let one_at_a_time = fields.take(ONE_AT_A_TIME) == Some(Value::Bool(true));
    for name in ["metadata", "thinking"] {
        if let Some(value) = fields.take(name) {
            fields.set(name, snake_members(value));
        }
    }
    if is_forced(&request.tool_choice) && thinks(&fields) {
        fields.take("thinking"); // a tool that must be called and thinking exclude each other: a 400
    }
    let max_tokens_field = dialect.max_tokens_field.as_deref().unwrap_or("max_tokens");
    let max_tokens = fields.take(max_tokens_field).and_then(|value| value.as_u64());
    let max_tokens = max_tokens.or(request.generation.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    let controls = controls(request, max_tokens_field, max_tokens, &fields);
    Asked { controls, fields, one_at_a_time }
}

/// Thinking is part of the bounded answer, so the bound is above its budget; and with it the provider accepts no
/// temperature, no top k, and a top p of 0.95 at least.
/// <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#feature-compatibility>
fn controls<'a>(
    request: &LlmRequest,
    max_tokens_field: &'a str,
    max_tokens: u64,
    fields: &BodyFields,
) -> Vec<(&'a str, Value)> {
    let generation = &request.generation;
    let budget = fields.get("thinking").and_then(|thinking| thinking["budget_tokens"].as_u64());
    let max_tokens = match budget {
        Some(budget) if max_tokens <= budget => max_tokens.saturating_add(budget),
        Some(_) | None => max_tokens,
    };
    let thinks = thinks(fields);
    let free = |number: &f64| !thinks || *number >= 0.95;
    let stop: Vec<_> = generation.stop.iter().filter(|stop| !stop.trim().is_empty()).collect();
    let stop = (!stop.is_empty()).then(|| stop.into_iter().cloned().collect::<Value>());
    let all = [
        (max_tokens_field, Some(Value::from(max_tokens))),
        ("temperature", generation.temperature.filter(|_| !thinks).map(control_number)),
        ("top_p", generation.top_p.filter(free).map(control_number)),
        ("top_k", generation.top_k.filter(|_| !thinks).map(Value::from)),
        ("stop_sequences", stop),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

fn thinks(fields: &BodyFields) -> bool {
    let kind = fields.get("thinking").and_then(|thinking| thinking["type"].as_str());
    matches!(kind, Some("enabled" | "adaptive"))
}

fn is_forced(choice: &ToolChoice) -> bool {
    match choice {
        ToolChoice::Required | ToolChoice::Tool(_) => true,
        ToolChoice::Auto | ToolChoice::None => false,
    }
}

/// `{"budgetTokens": 1}` as the body has it: `{"budget_tokens": 1}`.
fn snake_members(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (snake_case(&name), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            value
        }
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
