//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::Serialize;

use crate::json::RawJson;
use crate::openai_responses::ID;
use crate::openai_responses::input::items;
use crate::options::OptionTable;
use crate::protocol::body::{Body, Source};
use crate::request::{ControlNames, ToolChoice, ToolDefinition};

const OPTIONS: OptionTable = OptionTable {
    id: ID,
    families: &["openai"],
    names: &[
        ("conversation", "conversation"),
        ("include", "include"),
        ("instructions", "instructions"),
        ("maxToolCalls", "max_tool_calls"),
        ("metadata", "metadata"),
        ("parallelToolCalls", "parallel_tool_calls"),
        ("previousResponseId", "previous_response_id"),
        ("promptCacheKey", "prompt_cache_key"),
        ("promptCacheRetention", "prompt_cache_retention"),
        ("reasoning", "reasoning"),
        ("reasoningEffort", "reasoning.effort"),
        ("reasoningSummary", "reasoning.summary"),
        ("safetyIdentifier", "safety_identifier"),
        ("serviceTier", "service_tier"),
        ("store", "store"),
        ("text", "text"),
        ("textVerbosity", "text.verbosity"),
        ("topLogprobs", "top_logprobs"),
        ("truncation", "truncation"),
        ("user", "user"),
    ],
    merged: &["reasoning", "text"],
    fixed: &["model", "input", "tools", "tool_choice", "stream"],
};

/// Writes the body of a streamed response.
///
/// - The instructions before the conversation are one message with the role `system`, joined by line feeds.
/// - Tool arguments are the model's bytes if they are a JSON object; otherwise an object that contains them.
///   A failed tool result begins with `Error: `.
/// - Reasoning goes back encrypted to the model that wrote it, and as text to any other.
/// - Ids of calls are cut to 64 characters and names of called tools are limited to `[a-zA-Z0-9_-]`: OpenAI
///   refuses others.
/// - `topK`, `stop` and `seed` are not sent: the protocol has none of them.
/// - `providerOptions["openai"]` uses the AI SDK's names. Fields of `providerOptions["openai-responses"]` are
///   added to the body, sorted, and replace a generation control of the same key (null removes it). Its
///   `tools` come after ours.
pub(super) fn write(source: Source<'_>, body: &mut Body<'_>) -> serde_json::Result<()> {
    let Source { request, dialect, .. } = source;
    body.entry("model", dialect.name_of(&request.model))?;
    body.entry("input", &items(source))?;
    let tools = OPTIONS.offer(request, request.tools.iter().map(defined));
    if !tools.is_empty() {
        body.entry("tools", &tools)?;
        if let Some(choice) = choice(&request.tool_choice) {
            body.entry("tool_choice", &choice)?;
        }
    }
    body.entry("stream", &true)?;
    let controls = request.generation.named(&ControlNames {
        max_tokens: dialect.max_tokens_field.as_deref().unwrap_or("max_output_tokens"),
        temperature: "temperature",
        top_p: "top_p",
        top_k: None,
        seed: None,
        stop: None,
    });
    body.tail(&controls, &OPTIONS.fields(request, dialect))
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

/// Returns the `tool_choice`. `auto` is the default and is not sent.
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

fn defined(tool: &ToolDefinition) -> WireTool<'_> {
    let ToolDefinition { name, description, input_schema } = tool;
    WireTool { kind: "function", name, description, parameters: input_schema }
}
