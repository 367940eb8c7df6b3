//! Reading the bodies of the newer protocols, whose members are looked up rather than declared: most are ignored.

use std::borrow::Cow;

use serde_json::Value;

use crate::request::Content;

/// The body as JSON.
pub(super) fn body(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("the body is no JSON: {error}"))
}

/// The text of a member.
pub(super) fn text<'a>(object: &'a Value, member: &str) -> Option<&'a str> {
    object[member].as_str()
}

/// The text of a member that must be there.
pub(super) fn wanted<'a>(object: &'a Value, member: &str, at: &str) -> Result<&'a str, String> {
    text(object, member).ok_or_else(|| format!("{at}: `{member}` is missing or no string"))
}

/// A list that must be there and hold something.
pub(super) fn filled<'a>(object: &'a Value, member: &str) -> Result<&'a [Value], String> {
    match object[member].as_array() {
        Some(list) if !list.is_empty() => Ok(list),
        Some(_) => Err(format!("`{member}` is empty: send at least one")),
        None => Err(format!("`{member}` is missing or no list")),
    }
}

/// The items of a list, if it is there.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A string, or the texts of a list of blocks.
pub(super) fn content(value: &Value) -> Content<'static> {
    let texts = match value.as_str() {
        Some(text) => vec![owned(text)],
        None => list(value).iter().filter_map(|block| text(block, "text")).map(owned).collect(),
    };
    Content(texts)
}

/// A copy of `text`.
pub(super) fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

/// The names of a list of tools, each below `member` if that is given.
pub(super) fn names(tools: &Value, member: Option<&str>) -> Vec<Cow<'static, str>> {
    let tools = list(tools).iter();
    let tools = tools.map(|tool| member.map_or(tool, |member| &tool[member]));
    tools.filter_map(|tool| text(tool, "name")).map(owned).collect()
}
