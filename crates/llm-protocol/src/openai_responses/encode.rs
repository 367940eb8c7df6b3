//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::json::{RawJson, Sorted, control_number};
use crate::openai_responses::input::items;
use crate::openai_responses::{ID, STATE_KEY};
use crate::options::{BodyMap, OptionTable};
use crate::request::{Generation, LlmRequest, ToolChoice};
use crate::state::StateOwner;

const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &["openai"],
    names: &[
        ("include", "include"),
        ("maxToolCalls", "max_tool_calls"),
        ("metadata", "metadata"),
        ("parallelToolCalls", "parallel_tool_calls"),
        ("promptCacheKey", "prompt_cache_key"),
        ("promptCacheRetention", "prompt_cache_retention"),
        ("reasoningEffort", "reasoning.effort"),
        ("reasoningSummary", "reasoning.summary"),
        ("safetyIdentifier", "safety_identifier"),
        ("serviceTier", "service_tier"),
        ("store", "store"),
        ("textVerbosity", "text.verbosity"),
        ("topLogprobs", "top_logprobs"),
        ("truncation", "truncation"),
        ("user", "user"),
    ],
    merged: &["reasoning", "text"],
    fixed: &["model", "input", "tools", "tool_choice", "stream"],
};

/// Writes the body of a streamed response, as the protocol's owner has it ([`crate::Protocol::encode_for`] for others).
///
/// - The instructions before the conversation are one message of the role `system`, joined by line feeds.
/// - Tool arguments are the model's bytes, valid or not. A failed tool result begins with `Error: `.
/// - Reasoning goes back encrypted to the model that wrote it, and as text to any other.
/// - `topK`, `stop` and `seed` are not sent: the protocol has none of them.
/// - `providerOptions["openai"]` is read in the names of the AI SDK; fields of `providerOptions["openai-responses"]`
///   are added to the body, sorted, and replace a generation control of the same key (null removes it). Its `tools`
///   come after ours.
#[must_use]
pub fn encode(request: &LlmRequest) -> Vec<u8> {
    encode_for(request, &Dialect::default())
}

pub(crate) fn encode_for(request: &LlmRequest, dialect: &Dialect) -> Vec<u8> {
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
        let key = dialect.state_key.as_deref().unwrap_or(STATE_KEY);
        let owner = StateOwner::new(key, &request.model);
        let hosted = OPTIONS.hosted_tools(request);
        let mut body = BodyMap::new(serializer.serialize_map(None)?, dialect);
        body.entry("model", &request.model)?;
        body.entry("input", &items(request, dialect, &owner))?;
        if !request.tools.is_empty() || !hosted.is_empty() {
            body.entry("tools", &WireTools { request, hosted })?;
            if let Some(choice) = choice(&request.tool_choice) {
                body.entry("tool_choice", &choice)?;
            }
        }
        body.entry("stream", &true)?;
        let controls = controls(&request.generation, dialect);
        body.tail(&controls, &OPTIONS.fields(request, dialect))?;
        body.end()
    }
}

fn controls<'a>(generation: &Generation, dialect: &'a Dialect) -> Vec<(&'a str, Value)> {
    let max_tokens = dialect.max_tokens_field.as_deref().unwrap_or("max_output_tokens");
    let all = [
        (max_tokens, generation.max_tokens.map(Value::from)),
        ("temperature", generation.temperature.map(control_number)),
        ("top_p", generation.top_p.map(control_number)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[derive(Serialize)]
#[serde(untagged)]
enum Choice<'a> {
    Word(&'static str),
    Function {
        #[serde(rename = "type")]
        kind: &'static str,
        name: &'a str,
    },
}

/// `auto` is the default and not sent.
fn choice(choice: &ToolChoice) -> Option<Choice<'_>> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(Choice::Word("none")),
        ToolChoice::Required => Some(Choice::Word("required")),
        ToolChoice::Tool(name) => Some(Choice::Function { kind: "function", name }),
    }
}

#[derive(Serialize)]
struct WireTool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

struct WireTools<'a> {
    request: &'a LlmRequest,
    hosted: &'a [Value],
}

impl Serialize for WireTools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Tool<'a> {
            Ours(WireTool<'a>),
            Hosted(Sorted<'a>),
        }
        let ours = self.request.tools.iter().map(|tool| {
            Tool::Ours(WireTool {
                kind: "function",
                name: &tool.name,
                description: &tool.description,
                parameters: &tool.input_schema,
            })
        });
        serializer
            .collect_seq(ours.chain(self.hosted.iter().map(|tool| Tool::Hosted(Sorted(tool)))))
    }
}
