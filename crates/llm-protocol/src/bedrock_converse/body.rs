//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde_json::{Map, Value, json};

use crate::bedrock_converse::content::{CachePoint, Content};
use crate::bedrock_converse::encode::{WireMessage, messages};
use crate::bedrock_converse::tools::{config, ours};
use crate::bedrock_converse::{ID, STATE_KEY};
use crate::cache::Breakpoints;
use crate::dialect::Dialect;
use crate::options::{BodyFields, OptionTable};
use crate::protocol::body::{Body, Source};
use crate::request::{ControlNames, LlmRequest, SystemPart};
use crate::thinking::{is_demanded, is_round_without_thought, without_thinking_betas};

const INFERENCE: &str = "inferenceConfig";
/// Fields for the model itself, unknown to Converse.
const ADDITIONAL: &str = "additionalModelRequestFields";
/// Claude's two names for thinking, among those fields.
const THINKING: [&str; 2] = ["reasoning_config", "thinking"];
/// An option, not a field: see [`reason`].
const REASONING: &str = "reasoningConfig";
/// The bound on an answer beside its reasoning, in tokens, if the request has none.
const DEFAULT_MAX_TOKENS: u64 = 4096;

const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &[STATE_KEY],
    names: &[
        (REASONING, REASONING),
        (ADDITIONAL, ADDITIONAL),
        ("anthropicBeta", "additionalModelRequestFields.anthropic_beta"),
        ("guardrailConfig", "guardrailConfig"),
        ("performanceConfig", "performanceConfig"),
        ("requestMetadata", "requestMetadata"),
        ("serviceTier", "serviceTier"),
    ],
    merged: &[INFERENCE, ADDITIONAL, REASONING],
    fixed: &["modelId", "messages", "system", "toolConfig", "tools"],
};

/// Writes the body of a streamed conversation.
///
/// - Roles alternate: neighbouring messages of one role become one. Instructions in the middle are wrapped.
/// - Arguments are sent as a JSON object; a failed result has the status `error`.
/// - Blank texts and empty messages are left out, because Bedrock refuses them.
/// - A round of calls that began without thinking gets no thinking budget ([`crate::thinking`]).
/// - Options: `bedrock` in the AI SDK's names, `bedrock-converse` as body fields.
pub(super) fn write(source: Source<'_>, body: &mut Body<'_>) -> serde_json::Result<()> {
    let Source { request, dialect, owner, .. } = source;
    let marks = Breakpoints::of(request);
    let point = CachePoint::of(marks.ttl_seconds);
    body.entry("modelId", &request.model)?;
    let messages = messages(&request.messages, (&marks.messages, point), owner);
    body.entry("messages", &messages)?;
    let system = system(&request.system, (&marks.system, point));
    if !system.is_empty() {
        body.entry("system", &system)?;
    }
    let mut fields = OPTIONS.fields(request, dialect);
    let cannot_think = is_claude(&request.model)
        && is_round_without_thought(messages.iter().map(WireMessage::in_round));
    controls(request, dialect, cannot_think, &mut fields);
    let ours = ours(request, marks.tool.map(|tool| (tool, point)));
    if let Some(tools) = config(request, OPTIONS.offer(request, ours)) {
        body.entry("toolConfig", &tools)?;
    }
    body.tail(&[], &fields)
}

/// Returns the instructions. Bedrock refuses blank pieces, so the mark of a blank one goes to the piece
/// before it.
fn system<'a>(parts: &'a [SystemPart], (marks, point): (&[usize], CachePoint)) -> Vec<Content<'a>> {
    let mut blocks = Vec::new();
    for (at, SystemPart::Text { text }) in parts.iter().enumerate() {
        blocks.extend(Content::said(text));
        if marks.contains(&at) && matches!(blocks.last(), Some(Content::Text(_))) {
            blocks.push(Content::CachePoint(point));
        }
    }
    blocks
}

/// Adds the generation controls, which the options override. Removes those that the dialect omits, and a
/// thinking budget if the model cannot think now.
fn controls(request: &LlmRequest, dialect: &Dialect, cannot_think: bool, fields: &mut BodyFields) {
    let inference = request.generation.named(&ControlNames {
        max_tokens: "maxTokens",
        temperature: "temperature",
        top_p: "topP",
        top_k: None,
        seed: None,
        stop: Some("stopSequences"),
    });
    let inference = inference.into_iter().map(|(key, value)| (key.to_owned(), value));
    let mut inference: Map<String, Value> = inference.collect();
    let mut additional = Map::new();
    if let Some(top_k) = request.generation.top_k {
        add_top_k(&request.model, top_k, &mut additional);
    }
    if let Some(Value::Object(config)) = fields.take(REASONING) {
        reason((&request.model, cannot_think), &config, &mut inference, &mut additional);
    }
    if let Some(Value::String(tier)) = fields.get("serviceTier") {
        let tier = json!({ "type": tier });
        fields.set("serviceTier", tier);
    }
    for (name, mut own) in [(INFERENCE, inference), (ADDITIONAL, additional)] {
        match fields.take(name) {
            Some(Value::Object(asked)) => own.extend(asked),
            None => {}
            Some(_) => continue, // null: it is not to be sent
        }
        if cannot_think {
            own = own.into_iter().filter_map(without_thinking).collect();
        }
        own.retain(|key, value| !value.is_null() && !is_omitted(key, dialect));
        if !own.is_empty() {
            fields.set(name, Value::Object(own));
        }
    }
}

/// Returns whether the dialect omits a control. Dialects use other protocols' names (`top_p`); here names are
/// in camelCase.
fn is_omitted(key: &str, dialect: &Dialect) -> bool {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    dialect.omit.iter().any(|name| plain(name) == plain(key))
}

/// Adds top k, which Converse does not have. Nova takes it in an object of its own, the others under Claude's
/// name.
/// <https://docs.aws.amazon.com/nova/latest/userguide/using-converse-api.html>
fn add_top_k(model: &str, top_k: u64, additional: &mut Map<String, Value>) {
    if model.contains("amazon.nova") {
        additional.insert(INFERENCE.to_owned(), json!({ "topK": top_k }));
    } else {
        additional.insert("top_k".to_owned(), top_k.into());
    }
}

/// Adds the reasoning effort or budget in each family's form. With a budget, Claude accepts no temperature
/// and no top_k, and the bound on the answer must exceed the budget.
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html>
fn reason(
    (model, cannot_think): (&str, bool),
    config: &Map<String, Value>,
    inference: &mut Map<String, Value>,
    additional: &mut Map<String, Value>,
) {
    let member = |camel: &str, snake: &str| config.get(camel).or_else(|| config.get(snake));
    let kind = config.get("type").and_then(Value::as_str).unwrap_or("enabled");
    let effort = member("maxReasoningEffort", "max_reasoning_effort");
    if model.contains("openai.") {
        if let Some(effort) = effort {
            additional.insert("reasoning_effort".to_owned(), effort.clone());
        }
        return;
    }
    if !is_claude(model) {
        additional.insert(REASONING.to_owned(), Value::Object(config.clone()));
        return;
    }
    let budget = member("budgetTokens", "budget_tokens").and_then(Value::as_u64);
    let mut thinking = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    if let Some(budget) = budget {
        thinking.insert("budget_tokens".to_owned(), budget.into());
    }
    let thinking = Value::Object(thinking);
    let thinks = kind != "disabled" && !(cannot_think && is_demanded(&thinking));
    additional.insert(THINKING[0].to_owned(), thinking);
    if let Some(effort) = effort {
        additional.insert("output_config".to_owned(), json!({ "effort": effort }));
    }
    if !thinks {
        return;
    }
    inference.remove("temperature");
    additional.remove("top_k");
    if let Some(budget) = budget {
        let asked = inference.get("maxTokens").and_then(Value::as_u64);
        let room = asked.unwrap_or(DEFAULT_MAX_TOKENS);
        if asked.is_none_or(|asked| asked <= budget) {
            inference.insert("maxTokens".to_owned(), room.saturating_add(budget).into());
        }
    }
}

fn is_claude(model: &str) -> bool {
    model.contains("anthropic") || model.contains("claude")
}

/// Keeps a field for Claude if it is allowed without thinking.
fn without_thinking((name, value): (String, Value)) -> Option<(String, Value)> {
    match name.as_str() {
        name if THINKING.contains(&name) && is_demanded(&value) => None,
        "anthropic_beta" => without_thinking_betas(value).map(|betas| (name, betas)),
        _ => Some((name, value)),
    }
}
