//! Reads the bodies of the newer protocols. Members are looked up rather than declared, because most are ignored.

use std::borrow::Cow;

use serde_json::Value;

use crate::request::Content;

/// Parses the body as JSON.
pub(super) fn body(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("the body is no JSON: {error}"))
}

/// Returns the text of a member.
pub(super) fn text<'a>(object: &'a Value, member: &str) -> Option<&'a str> {
    object[member].as_str()
}

/// Returns the text of a required member.
pub(super) fn wanted<'a>(object: &'a Value, member: &str, at: &str) -> Result<&'a str, String> {
    text(object, member).ok_or_else(|| format!("{at}: `{member}` is missing or no string"))
}

/// Returns a required list that is not empty.
pub(super) fn filled<'a>(object: &'a Value, member: &str) -> Result<&'a [Value], String> {
    match object[member].as_array() {
        Some(list) if !list.is_empty() => Ok(list),
        Some(_) => Err(format!("`{member}` is empty: send at least one")),
        None => Err(format!("`{member}` is missing or no list")),
    }
}

/// Returns the items of a list, or none without it.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns a string, or the texts of a list of blocks.
pub(super) fn content(value: &Value) -> Content<'static> {
    let texts = match value.as_str() {
        Some(text) => vec![owned(text)],
        None => list(value).iter().filter_map(|block| text(block, "text")).map(owned).collect(),
    };
    Content(texts)
}

/// Copies `text`.
pub(super) fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

/// Returns the names of a list of tools, each below `member` if that is given.
pub(super) fn names(tools: &Value, member: Option<&str>) -> Vec<Cow<'static, str>> {
    let tools = list(tools).iter();
    let tools = tools.map(|tool| member.map_or(tool, |member| &tool[member]));
    tools.filter_map(|tool| text(tool, "name")).map(owned).collect()
}
