//! Claude's Model Request Options, in the AI SDK's names, and their effects on the controls.

use serde_json::Value;

use crate::anthropic_messages::{ID, STATE_KEY};
use crate::dialect::Dialect;
use crate::options::{BodyFields, OptionTable};
use crate::request::{ControlNames, LlmRequest, ToolChoice};
use crate::thinking::{is_demanded, without_thinking_betas, without_thinking_edits};

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

/// A field of `tool_choice`, not of the body itself.
const ONE_AT_A_TIME: &str = "disable_parallel_tool_use";

/// The bound on an answer, in tokens, if the request has none. The protocol demands one.
const DEFAULT_MAX_TOKENS: u64 = 4096;

/// The combined options and controls of a request.
pub(super) struct Asked<'a> {
    pub(super) controls: Vec<(&'a str, Value)>,
    pub(super) fields: BodyFields,
    /// The model may call only one tool at a time.
    pub(super) one_at_a_time: bool,
}

/// Combines options and controls. `cannot_think`: the conversation ends in a round of calls that began
/// without thinking.
pub(super) fn asked<'a>(
    request: &LlmRequest,
    dialect: &'a Dialect,
    cannot_think: bool,
) -> Asked<'a> {
    let mut fields = OPTIONS.fields(request, dialect);
    let one_at_a_time = fields.take(ONE_AT_A_TIME) == Some(Value::Bool(true));
    for name in ["container", "context_management", "mcp_servers", "metadata", "thinking"] {
        if let Some(value) = fields.take(name) {
            fields.set(name, snake_members(value));
        }
    }
    let is_demanded = fields.get("thinking").is_some_and(is_demanded);
    // A forced tool call excludes thinking, too: Anthropic answers 400.
    if (is_demanded && cannot_think) || (thinks(&fields) && is_forced(&request.tool_choice)) {
        leave_out_thinking(&mut fields);
    }
    let max_tokens_field = dialect.max_tokens_field.as_deref().unwrap_or("max_tokens");
    let max_tokens = fields.take(max_tokens_field).and_then(|value| value.as_u64());
    let max_tokens = max_tokens.or(request.generation.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    let controls = controls(request, max_tokens_field, max_tokens, &fields);
    Asked { controls, fields, one_at_a_time }
}

/// Removes thinking and the fields that are refused or mean nothing without it.
fn leave_out_thinking(fields: &mut BodyFields) {
    fields.take("thinking");
    let edits = fields.take("context_management").and_then(without_thinking_edits);
    let betas = fields.take("anthropic_beta").and_then(without_thinking_betas);
    for (name, value) in [("context_management", edits), ("anthropic_beta", betas)] {
        if let Some(value) = value {
            fields.set(name, value);
        }
    }
}

/// Returns the generation controls. Thinking counts towards the bounded answer, so the bound must exceed its
/// budget. With thinking, the provider accepts no temperature, no top k, and a top p of at least 0.95.
/// <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking#feature-compatibility>
fn controls<'a>(
    request: &LlmRequest,
    max_tokens_field: &'a str,
    max_tokens: u64,
    fields: &BodyFields,
) -> Vec<(&'a str, Value)> {
    let mut generation = request.generation.clone();
    let budget = fields.get("thinking").and_then(|thinking| thinking["budget_tokens"].as_u64());
    generation.max_tokens = Some(match budget {
        Some(budget) if max_tokens <= budget => max_tokens.saturating_add(budget),
        Some(_) | None => max_tokens,
    });
    if thinks(fields) {
        (generation.temperature, generation.top_k) = (None, None);
        generation.top_p = generation.top_p.filter(|top_p| *top_p >= 0.95);
    }
    generation.stop.retain(|stop| !stop.trim().is_empty());
    generation.named(&ControlNames {
        max_tokens: max_tokens_field,
        temperature: "temperature",
        top_p: "top_p",
        top_k: Some("top_k"),
        seed: None,
        stop: Some("stop_sequences"),
    })
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

/// Converts names to snake case at every depth: `{"budgetTokens": 1}` becomes `{"budget_tokens": 1}`.
fn snake_members(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let snake = |(name, value): (String, Value)| (snake_case(&name), snake_members(value));
            members.into_iter().map(snake).collect()
        }
        Value::Array(items) => items.into_iter().map(snake_members).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
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
