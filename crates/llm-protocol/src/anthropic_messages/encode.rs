//! Neutral request in, request body out. Deterministic: the same request gives the same bytes in any build.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::anthropic_messages::STATE_KEY;
use crate::anthropic_messages::messages::{CacheControl, messages, system};
use crate::anthropic_messages::options::{OPTIONS, asked};
use crate::cache::Breakpoints;
use crate::dialect::Dialect;
use crate::json::{RawJson, Sorted};
use crate::options::BodyMap;
use crate::request::{LlmRequest, ToolChoice};
use crate::state::StateOwner;

/// Writes the body of a streamed message, as the protocol's owner has it ([`crate::Protocol::encode_for`] for others).
///
/// - Instructions in the middle go on with the user's message before them, wrapped.
/// - Reasoning goes back signed to the model that wrote it, and as text to any other. Blocks of tools that the provider
///   ran go back verbatim; those of another are a call and its result.
/// - Arguments that are no JSON object are sent as `{"invalid_json": "…"}`; ids of calls are rewritten where they are
///   not accepted or repeat. A failed result has `is_error`.
/// - At most four places are marked for the prompt cache ([`Breakpoints`]).
/// - An answer is bounded to 4,096 tokens where nobody said; `seed` is not sent: the protocol has none.
/// - `providerOptions["anthropic"]` is read in the names of the AI SDK (`thinking`, `effort`, …); fields of
///   `providerOptions["anthropic-messages"]` are added to the body, sorted, and replace a generation control of the same
///   key (null removes it). Its `tools` come after ours.
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
        let marks = Breakpoints::of(request);
        let asked = asked(request, dialect);
        let tools = tools(request, &marks);
        let mut body = BodyMap::new(serializer.serialize_map(None)?, dialect);
        body.entry("model", &request.model)?;
        let system = system(request, &marks);
        if !system.is_empty() {
            body.entry("system", &system)?;
        }
        body.entry("messages", &messages(request, dialect, &owner, &marks))?;
        if !tools.is_empty() {
            body.entry("tools", &tools)?;
            if let Some(choice) = choice(&request.tool_choice, asked.one_at_a_time) {
                body.entry("tool_choice", &choice)?;
            }
        }
        body.entry("stream", &true)?;
        body.tail(&asked.controls, &asked.fields)?;
        body.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Tool<'a> {
    Ours {
        name: &'a str,
        description: &'a str,
        input_schema: &'a RawJson,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// One that the provider runs, as the options have it.
    Hosted(Sorted<'a>),
}

fn tools<'a>(request: &'a LlmRequest, marks: &Breakpoints) -> Vec<Tool<'a>> {
    let ours = request.tools.iter().enumerate().map(|(at, tool)| Tool::Ours {
        name: &tool.name,
        description: &tool.description,
        input_schema: &tool.input_schema,
        cache_control: (marks.tool == Some(at)).then(|| CacheControl::new(marks.ttl_seconds)),
    });
    let hosted =
        OPTIONS.hosted_tools(request).iter().map(|tool: &Value| Tool::Hosted(Sorted(tool)));
    ours.chain(hosted).collect()
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

/// `auto` is the default, and not sent unless it says more.
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
