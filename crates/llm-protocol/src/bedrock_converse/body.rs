//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use crate::bedrock_converse::content::{CachePoint, Content};
use crate::bedrock_converse::encode::messages;
use crate::bedrock_converse::tools::config;
use crate::bedrock_converse::{ID, STATE_KEY};
use crate::cache::Breakpoints;
use crate::dialect::Dialect;
use crate::json::control_number;
use crate::options::{BodyFields, BodyMap, OptionTable};
use crate::protocol::Protocol;
use crate::request::{Generation, LlmRequest, SystemPart};

const INFERENCE: &str = "inferenceConfig";
/// Fields for the model itself, which Converse does not know.
const ADDITIONAL: &str = "additionalModelRequestFields";
/// An option, no field: see [`reason`].
const REASONING: &str = "reasoningConfig";
/// What an answer may have beside its reasoning where nothing is said.
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
/// - Roles alternate: neighbours of one role become one message. Instructions in the middle are wrapped.
/// - Arguments are sent as a JSON object; a failed result has the status `error`.
/// - Blank texts and messages of nothing are left out: they are refused.
/// - Options: `bedrock` in the names of the AI SDK, `bedrock-converse` as fields of the body.
pub(super) fn encode(request: &LlmRequest, dialect: &Dialect) -> Vec<u8> {
    serde_json::to_vec(&Body { request, dialect })
        .expect("keys are strings and the writer is memory")
}

struct Body<'a> {
    request: &'a LlmRequest,
    dialect: &'a Dialect,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, dialect } = *self;
        let marks = Breakpoints::of(request);
        let owner = Protocol::BedrockConverse.owner(&request.model, dialect);
        let mut body = BodyMap::new(serializer.serialize_map(None)?, dialect);
        body.entry("modelId", &request.model)?;
        body.entry("messages", &messages(&request.messages, &marks.messages, &owner))?;
        let system = system(&request.system, &marks.system);
        if !system.is_empty() {
            body.entry("system", &system)?;
        }
        let mut fields = OPTIONS.fields(request, dialect);
        controls(request, dialect, &mut fields);
        if let Some(tools) = config(request, OPTIONS.hosted_tools(request), marks.tool) {
            body.entry("toolConfig", &tools)?;
        }
        body.tail(&[], &fields)?;
        body.end()
    }
}

fn system<'a>(parts: &'a [SystemPart], marks: &[usize]) -> Vec<Content<'a>> {
    let mut blocks = Vec::new();
    for (at, SystemPart::Text { text }) in parts.iter().enumerate() {
        let Some(block) = Content::said(text) else { continue };
        blocks.push(block);
        if marks.contains(&at) {
            blocks.push(Content::CachePoint(CachePoint::DEFAULT));
        }
    }
    blocks
}

/// Puts the generation controls below what the options say of them, and takes out what the dialect omits.
fn controls(request: &LlmRequest, dialect: &Dialect, fields: &mut BodyFields) {
    let mut inference = inference(&request.generation);
    let mut additional = Map::new();
    if let Some(top_k) = request.generation.top_k {
        add_top_k(&request.model, top_k, &mut additional);
    }
    if let Some(Value::Object(config)) = fields.take(REASONING) {
        reason(&request.model, &config, &mut inference, &mut additional);
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
        own.retain(|key, value| !value.is_null() && !is_omitted(key, dialect));
        if !own.is_empty() {
            fields.set(name, Value::Object(own));
        }
    }
}

fn inference(generation: &Generation) -> Map<String, Value> {
    let stop = (!generation.stop.is_empty()).then(|| Value::from(generation.stop.clone()));
    let all = [
        ("maxTokens", generation.max_tokens.map(Value::from)),
        ("temperature", generation.temperature.map(control_number)),
        ("topP", generation.top_p.map(control_number)),
        ("stopSequences", stop),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// A dialect names controls as most protocols do (`top_p`); here they are in camelCase and one object deeper.
fn is_omitted(key: &str, dialect: &Dialect) -> bool {
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    dialect.omit.iter().any(|name| plain(name) == plain(key))
}

/// Converse has no such control. Nova takes it in an object of its own; the others by the name that Claude has for it.
/// <https://docs.aws.amazon.com/nova/latest/userguide/using-converse-api.html>
fn add_top_k(model: &str, top_k: u64, additional: &mut Map<String, Value>) {
    if model.contains("amazon.nova") {
        additional.insert(INFERENCE.to_owned(), json!({ "topK": top_k }));
    } else {
        additional.insert("top_k".to_owned(), top_k.into());
    }
}

/// How much a model may think, as each family has it. With a budget, Claude takes no temperature and no top_k, and the
/// whole answer must have room for more than the budget.
/// <https://docs.aws.amazon.com/bedrock/latest/userguide/claude-messages-extended-thinking.html>
fn reason(
    model: &str,
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
    if !model.contains("anthropic") && !model.contains("claude") {
        additional.insert(REASONING.to_owned(), Value::Object(config.clone()));
        return;
    }
    let budget = member("budgetTokens", "budget_tokens").and_then(Value::as_u64);
    let mut thinking = Map::from_iter([("type".to_owned(), Value::from(kind))]);
    if let Some(budget) = budget {
        thinking.insert("budget_tokens".to_owned(), budget.into());
    }
    additional.insert("reasoning_config".to_owned(), Value::Object(thinking));
    if let Some(effort) = effort {
        additional.insert("output_config".to_owned(), json!({ "effort": effort }));
    }
    if kind == "disabled" {
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
