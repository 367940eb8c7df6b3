//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::Serialize;

use crate::json::RawJson;
use crate::openai_chat::ID;
use crate::openai_chat::messages::messages;
use crate::options::OptionTable;
use crate::protocol::body::{Body, Source};
use crate::request::{ControlNames, ToolChoice, ToolDefinition};

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

/// Writes the body of a streamed chat completion that reports its usage.
///
/// - Parts of one message are joined by a line feed. A system message in the middle stays in its place.
/// - Tool arguments are the model's bytes if they are a JSON object; otherwise an object that contains them.
/// - A failed tool result begins with `Error: `. Media of results follow their batch in a user message.
/// - Reasoning is not sent, because the protocol has no place for it, unless the dialect names its field or
///   the server gave `reasoning_opaque`. A message with nothing else is left out.
/// - `providerOptions["openai"]` uses the AI SDK's names. Fields of `providerOptions["openai-chat"]` are
///   added to the body, sorted, and replace a generation control of the same key (null removes it:
///   `{"max_tokens": null, "max_completion_tokens": 9}`). Its `tools` come after ours.
pub(super) fn write(source: Source<'_>, body: &mut Body<'_>) -> serde_json::Result<()> {
    let Source { request, dialect, .. } = source;
    body.entry("model", dialect.name_of(&request.model))?;
    body.entry("messages", &messages(source))?;
    let tools = OPTIONS.offer(request, request.tools.iter().map(defined));
    if !tools.is_empty() {
        body.entry("tools", &tools)?;
        // Providers refuse a choice without tools. `auto` is their default.
        match &request.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::None => body.entry("tool_choice", "none")?,
            ToolChoice::Required => body.entry("tool_choice", "required")?,
            ToolChoice::Tool(name) => {
                body.entry("tool_choice", &function(NamedFunction { name }))?
            }
        }
    }
    body.entry("stream", &true)?;
    body.entry("stream_options", &StreamOptions { include_usage: true })?;
    let controls = request.generation.named(&ControlNames {
        max_tokens: dialect.max_tokens_field.as_deref().unwrap_or("max_tokens"),
        temperature: "temperature",
        top_p: "top_p",
        top_k: Some("top_k"),
        seed: Some("seed"),
        stop: Some("stop"),
    });
    body.tail(&controls, &OPTIONS.fields(request, dialect))
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// `{"type":"function","function":…}`, the wrapper of definitions, choices and calls.
#[derive(Serialize)]
pub(super) struct Function<F> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: F,
}

pub(super) fn function<F>(function: F) -> Function<F> {
    Function { kind: "function", function }
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

fn defined(tool: &ToolDefinition) -> Function<DefinedFunction<'_>> {
    let ToolDefinition { name, description, input_schema } = tool;
    function(DefinedFunction { name, description, parameters: input_schema })
}
