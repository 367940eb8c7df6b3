//! Turns items of tools that the provider ran into a call and its result.

use serde_json::value::RawValue;

use crate::json::RawJson;
use crate::message::{ToolCall, ToolContent, ToolResult};
use crate::openai_responses::item::{Item, string};
use crate::state::StateOwner;

/// Item types of tools that the client runs. We offer none of them, so such a call names a tool that does not
/// exist.
const CLIENT_RUN: &[&str] =
    &["apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call"];

/// Item types that are neither text nor calls, and that OpenAI wants back in place: the tools of an MCP
/// server, a request for approval, a summary of the conversation, the tools that a search found.
/// <https://platform.openai.com/docs/guides/tools-connectors-mcp>, <https://platform.openai.com/docs/guides/compaction>
pub(super) const KEPT: &[&str] =
    &["compaction", "mcp_approval_request", "mcp_list_tools", "tool_search_output"];

/// The meaning of a complete item whose type ends in `_call`.
pub(super) enum CallItem {
    /// The provider ran it.
    Hosted(Box<(ToolCall, ToolResult)>),
    /// A call that waits for us.
    Waiting(ToolCall),
}

/// Reads a complete item; `None` if it is not a call. `id` is used if the item has none.
pub(super) fn read(
    item: &Item<'_>,
    raw: &RawValue,
    id: String,
    owner: &StateOwner,
) -> Option<CallItem> {
    let kind = item.kind.as_deref()?;
    let tool = kind.strip_suffix("_call")?;
    // A tool of an MCP server has its own name.
    let name = item.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(tool);
    let call = ToolCall::new(id, name, arguments(item));
    if CLIENT_RUN.contains(&kind) {
        return Some(CallItem::Waiting(call));
    }
    let failed = item.error.is_some() || item.status.as_deref() == Some("failed");
    let result = ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        content: vec![content(item)],
        is_error: failed,
        provider_metadata: owner.write(&[("item", &RawJson::from(raw))]),
    };
    let call = ToolCall { provider_executed: true, ..call };
    Some(CallItem::Hosted(Box::new((call, result))))
}

/// Returns the arguments or input verbatim, or the member that holds them.
fn arguments(item: &Item<'_>) -> String {
    if let Some(text) = string(item.arguments).or_else(|| string(item.input)) {
        return text;
    }
    if let Some(object) = item.arguments.or(item.action) {
        return object.get().to_owned();
    }
    let member = |name: &str, value: &RawValue| format!("{{\"{name}\":{}}}", value.get());
    let queries = item.queries.map(|queries| member("queries", queries));
    queries.or_else(|| item.code.map(|code| member("code", code))).unwrap_or_else(|| "{}".into())
}

/// Returns the result as text or media, for providers that do not know the item.
fn content(item: &Item<'_>) -> ToolContent {
    if let Some(image) = string(item.result) {
        let format = item.output_format.as_deref().unwrap_or("png");
        return ToolContent::Media { mime: format!("image/{format}"), data: image };
    }
    let found = [item.error, item.output, item.outputs, item.results];
    let text = match found.into_iter().flatten().next() {
        Some(value) => string(Some(value)).unwrap_or_else(|| value.get().to_owned()),
        None => item.status.as_deref().unwrap_or("completed").to_owned(),
    };
    ToolContent::Text { text }
}
