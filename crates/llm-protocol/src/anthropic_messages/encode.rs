//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::anthropic_messages::is_anthropics;
use crate::anthropic_messages::messages::{WireMessage, messages, system};
use crate::anthropic_messages::options::{OPTIONS, asked};
use crate::cache::{Breakpoints, CacheControl};
use crate::protocol::body::{Body, Source};
use crate::request::{LlmRequest, ToolChoice};
use crate::thinking::is_round_without_thought;

/// Writes the body of a streamed message.
///
/// - Instructions in the middle are wrapped and continue the user's message before them.
/// - Reasoning goes back signed to the model that wrote it, and as text to any other. Blocks of tools that
///   the provider ran go back verbatim; another provider's become a call and its result.
/// - Arguments that are not a JSON object are sent as `{"invalid_json": "…"}`. Ids of calls are rewritten if
///   they repeat or have characters that Anthropic refuses. A failed result has `is_error`.
/// - A round of calls that began without thinking gets no thinking budget ([`crate::thinking`]).
/// - At most four places are marked for the prompt cache ([`Breakpoints`]).
/// - Without a bound, an answer gets 4,096 tokens. `seed` is not sent: the protocol has none.
/// - `providerOptions["anthropic"]` uses the AI SDK's names (`thinking`, `effort`, …). Fields of
///   `providerOptions["anthropic-messages"]` are added to the body, sorted, and replace a generation control
///   of the same key (null removes it). Its `tools` come after ours.
pub(super) fn write(source: Source<'_>, body: &mut Body<'_>) -> serde_json::Result<()> {
    let Source { request, dialect, owner, .. } = source;
    let marks = Breakpoints::of(request);
    let messages = messages(request, dialect, owner, &marks);
    let cannot_think = is_anthropics(owner)
        && is_round_without_thought(messages.iter().map(WireMessage::in_round));
    let asked = asked(request, dialect, cannot_think);
    let tools = OPTIONS.offer(request, ours(request, &marks));
    body.entry("model", dialect.name_of(&request.model))?;
    let system = system(request, &marks);
    if !system.is_empty() {
        body.entry("system", &system)?;
    }
    body.entry("messages", &messages)?;
    let called = request.called_tools();
    if !tools.is_empty() {
        body.entry("tools", &tools)?;
        if let Some(choice) = choice(&request.tool_choice, asked.one_at_a_time) {
            body.entry("tool_choice", &choice)?;
        }
    } else if !called.is_empty() {
        body.entry("tools", &called.into_iter().map(tool_of_history).collect::<Vec<_>>())?;
        body.entry("tool_choice", &choice(&ToolChoice::None, false))?;
    }
    body.entry("stream", &true)?;
    body.tail(&asked.controls, &asked.fields)
}

#[derive(Serialize)]
struct Tool<'a> {
    name: Cow<'a, str>,
    description: &'a str,
    input_schema: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

fn ours<'a>(request: &'a LlmRequest, marks: &Breakpoints) -> impl Iterator<Item = Tool<'a>> {
    let control = CacheControl::of(marks.ttl_seconds);
    let marked = marks.tool;
    request.tools.iter().enumerate().map(move |(at, tool)| Tool {
        name: tool.name.as_str().into(),
        description: &tool.description,
        input_schema: tool.input_schema.raw(),
        cache_control: (marked == Some(at)).then_some(control),
    })
}

/// Anthropic refuses a conversation with calls but without tools ("Requests which include `tool_use` or
/// `tool_result` blocks must define tools"). So a request that offers no tools any more defines the called
/// ones, and forbids calling them.
fn tool_of_history(name: Cow<'_, str>) -> Tool<'_> {
    let any = serde_json::from_str(r#"{"type":"object"}"#).expect("it is JSON");
    Tool { name, description: "", input_schema: any, cache_control: None }
}

#[derive(Serialize)]
struct Choice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    disable_parallel_tool_use: bool,
}

/// Returns the `tool_choice`. `auto` is the default, so it is sent only if it says more.
fn choice(choice: &ToolChoice, one_at_a_time: bool) -> Option<Choice<'_>> {
    let (kind, name) = match choice {
        ToolChoice::Auto if !one_at_a_time => return None,
        ToolChoice::Auto => ("auto", None),
        ToolChoice::None => ("none", None),
        ToolChoice::Required => ("any", None),
        ToolChoice::Tool(name) => ("tool", Some(name.as_str())),
    };
    let disable_parallel_tool_use = one_at_a_time && kind != "none";
    Some(Choice { kind, name, disable_parallel_tool_use })
}
