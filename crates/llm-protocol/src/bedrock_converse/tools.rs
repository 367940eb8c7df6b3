//! The tools that a model may call.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bedrock_converse::content::CachePoint;
use crate::json::Sorted;
use crate::message::Part;
use crate::request::{LlmRequest, ToolChoice};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Choice<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Tool<'a> {
    #[serde(rename = "toolSpec", rename_all = "camelCase")]
    Spec {
        name: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        description: &'a str,
        input_schema: Schema<'a>,
    },
    CachePoint(CachePoint),
    /// One that Bedrock runs.
    #[serde(untagged)]
    Hosted(Sorted<'a>),
}

#[derive(Serialize)]
struct Schema<'a> {
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

/// None where there are no tools. `marked` is the tool after which the prompt cache ends.
pub(super) fn config<'a>(
    request: &'a LlmRequest,
    hosted: &'a [Value],
    marked: Option<usize>,
) -> Option<ToolConfig<'a>> {
    let called = called(request);
    // Bedrock has no `none`: without tools nothing can be called, but a conversation with calls must have them.
    if request.tool_choice == ToolChoice::None && called.is_empty() {
        return None;
    }
    let mut tools = Vec::new();
    for (at, tool) in request.tools.iter().enumerate() {
        let input_schema = Schema { json: tool.input_schema.raw() };
        let (name, description) = (tool.name.as_str(), tool.description.as_str());
        tools.push(Tool::Spec { name, description, input_schema });
        if marked == Some(at) {
            tools.push(Tool::CachePoint(CachePoint::DEFAULT));
        }
    }
    tools.extend(hosted.iter().map(|tool| Tool::Hosted(Sorted(tool))));
    if tools.is_empty() {
        tools.extend(called.into_iter().map(tool_of_history));
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

/// The names of the tools that the conversation has called.
fn called(request: &LlmRequest) -> BTreeSet<&str> {
    let parts = request.messages.iter().flat_map(|message| &message.content);
    let names = parts.filter_map(|part| match part {
        Part::ToolCall(call) => Some(call.name.as_str()),
        Part::ToolResult(_) | Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => None,
    });
    names.collect()
}

/// A conversation with calls is refused without tools ("The toolConfig field must be defined when using toolUse and
/// toolResult content blocks"), so one that offers none any more names those that were called.
fn tool_of_history(name: &str) -> Tool<'_> {
    let any = serde_json::from_str(r#"{"type":"object"}"#).expect("it is JSON");
    Tool::Spec { name, description: "", input_schema: Schema { json: any } }
}
