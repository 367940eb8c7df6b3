//! The tools that a model may call.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::bedrock_converse::content::CachePoint;
use crate::options::Offered;
use crate::request::{LlmRequest, ToolChoice};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    tools: Vec<Offered<'a, Tool<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Tool<'a> {
    #[serde(rename = "toolSpec", rename_all = "camelCase")]
    Spec {
        name: Cow<'a, str>,
        #[serde(skip_serializing_if = "str::is_empty")]
        description: &'a str,
        input_schema: Schema<'a>,
    },
    CachePoint(CachePoint),
}

#[derive(Serialize)]
pub(super) struct Schema<'a> {
    json: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Choice<'a> {
    Any(Nothing),
    Tool { name: &'a str },
}

#[derive(Serialize)]
struct Nothing {}

/// Returns the request's tools, with a cache point after the marked one.
pub(super) fn ours<'a>(
    request: &'a LlmRequest,
    marked: Option<(usize, CachePoint)>,
) -> impl Iterator<Item = Tool<'a>> {
    request.tools.iter().enumerate().flat_map(move |(at, tool)| {
        let spec = Tool::Spec {
            name: tool.name.as_str().into(),
            description: &tool.description,
            input_schema: Schema { json: tool.input_schema.raw() },
        };
        let point = marked.filter(|(marked, _)| *marked == at);
        [Some(spec), point.map(|(_, point)| Tool::CachePoint(point))].into_iter().flatten()
    })
}

/// Returns the tool configuration, or `None` without tools.
pub(super) fn config<'a>(
    request: &'a LlmRequest,
    mut tools: Vec<Offered<'a, Tool<'a>>>,
) -> Option<ToolConfig<'a>> {
    let called = request.called_tools();
    // Bedrock has no `none`. Leaving the tools out prevents calls, but a conversation with calls must define
    // them.
    if request.tool_choice == ToolChoice::None && called.is_empty() {
        return None;
    }
    if tools.is_empty() {
        tools.extend(called.into_iter().map(tool_of_history).map(Offered::Ours));
    }
    if tools.is_empty() {
        return None;
    }
    let tool_choice = match &request.tool_choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => Some(Choice::Any(Nothing {})),
        ToolChoice::Tool(name) => Some(Choice::Tool { name }),
    };
    Some(ToolConfig { tools, tool_choice })
}

/// Bedrock refuses a conversation with calls but without tools ("The toolConfig field must be defined when
/// using toolUse and toolResult content blocks"). So a request that offers no tools any more defines the
/// called ones.
fn tool_of_history(name: Cow<'_, str>) -> Tool<'_> {
    let any = serde_json::from_str(r#"{"type":"object"}"#).expect("it is JSON");
    Tool::Spec { name, description: "", input_schema: Schema { json: any } }
}
