//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::dialect::Dialect;
use crate::json::{RawJson, Sorted, control_number};
use crate::openai_chat::messages::messages;
use crate::openai_chat::{ID, STATE_KEY};
use crate::options::{BodyMap, OptionTable};
use crate::request::{Generation, LlmRequest, ToolChoice};
use crate::state::StateOwner;

const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &["openai"],
    names: &[
        ("logitBias", "logit_bias"),
        ("logprobs", "logprobs"),
        ("maxCompletionTokens", "max_completion_tokens"),
        ("metadata", "metadata"),
        ("modalities", "modalities"),
        ("models", "models"),
        ("parallelToolCalls", "parallel_tool_calls"),
        ("plugins", "plugins"),
        ("prediction", "prediction"),
        ("promptCacheKey", "prompt_cache_key"),
        ("promptCacheRetention", "prompt_cache_retention"),
        ("provider", "provider"),
        ("reasoning", "reasoning"),
        ("reasoningEffort", "reasoning_effort"),
        ("reasoningFormat", "reasoning_format"),
        ("safetyIdentifier", "safety_identifier"),
        ("searchParameters", "search_parameters"),
        ("serviceTier", "service_tier"),
        ("store", "store"),
        ("textVerbosity", "verbosity"),
        ("thinking", "thinking"),
        ("topLogprobs", "top_logprobs"),
        ("transforms", "transforms"),
        ("usage", "usage"),
        ("user", "user"),
    ],
    merged: &["reasoning", "provider"],
    fixed: &["model", "messages", "tools", "tool_choice", "stream", "stream_options"],
};

/// Writes the body of a streamed chat completion that reports its usage, as the protocol's owner has it
/// ([`crate::Protocol::encode_for`] for others).
///
/// - Parts of one message are joined by a line feed. A system message in the middle stays in its place.
/// - Tool arguments are the model's bytes, valid or not.
/// - A failed tool result begins with `Error: `. Media of a result follow in a user message.
/// - Reasoning is not sent: the protocol has no place for it. A message of nothing else is left out.
/// - `providerOptions["openai"]` is read in the names of the AI SDK. Fields of `providerOptions["openai-chat"]` are
///   added to the body, sorted, and replace a generation control of the same key (null removes it:
///   `{"max_tokens": null, "max_completion_tokens": 9}`). Its `tools` come after ours.
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
        body.entry("messages", &messages(request, dialect, &owner))?;
        if !request.tools.is_empty() || !hosted.is_empty() {
            body.entry("tools", &WireTools { request, hosted })?;
            // Without tools, providers refuse a choice; `auto` is their default.
            match &request.tool_choice {
                ToolChoice::Auto => {}
                ToolChoice::None => body.entry("tool_choice", "none")?,
                ToolChoice::Required => body.entry("tool_choice", "required")?,
                ToolChoice::Tool(name) => {
                    let function = NamedFunction { name };
                    body.entry("tool_choice", &Function { kind: "function", function })?;
                }
            }
        }
        body.entry("stream", &true)?;
        body.entry("stream_options", &StreamOptions { include_usage: true })?;
        let controls = controls(&request.generation, dialect);
        body.tail(&controls, &OPTIONS.fields(request, dialect))?;
        body.end()
    }
}

fn controls<'a>(generation: &Generation, dialect: &'a Dialect) -> Vec<(&'a str, Value)> {
    let max_tokens = dialect.max_tokens_field.as_deref().unwrap_or("max_tokens");
    let stop = (!generation.stop.is_empty()).then(|| Value::from(generation.stop.clone()));
    let all = [
        (max_tokens, generation.max_tokens.map(Value::from)),
        ("temperature", generation.temperature.map(control_number)),
        ("top_p", generation.top_p.map(control_number)),
        ("top_k", generation.top_k.map(Value::from)),
        ("seed", generation.seed.map(Value::from)),
        ("stop", stop),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// `{"type":"function","function":…}`, the wrapper of definitions, choices and calls.
#[derive(Serialize)]
pub(super) struct Function<F> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: F,
}

#[derive(Serialize)]
struct NamedFunction<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct DefinedFunction<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a RawJson,
}

struct WireTools<'a> {
    request: &'a LlmRequest,
    hosted: &'a [Value],
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireTool<'a> {
    Ours(Function<DefinedFunction<'a>>),
    Hosted(Sorted<'a>),
}

impl Serialize for WireTools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ours = self.request.tools.iter().map(|tool| {
            let (name, description) = (tool.name.as_str(), tool.description.as_str());
            let function = DefinedFunction { name, description, parameters: &tool.input_schema };
            WireTool::Ours(Function { kind: "function", function })
        });
        serializer
            .collect_seq(ours.chain(self.hosted.iter().map(|tool| WireTool::Hosted(Sorted(tool)))))
    }
}
