//! Tools that the provider runs. Their blocks stay exact for the provider and become readable text for
//! others.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::arguments::owned_object;
use crate::json::RawJson;

/// Returns whether a block of this type is a call that the provider runs (`server_tool_use`, `mcp_tool_use`).
pub(super) fn is_call(kind: &str) -> bool {
    kind.ends_with("_tool_use")
}

/// Returns whether a block of this type is the result of such a call (`web_search_tool_result`,
/// `mcp_tool_result`).
pub(super) fn is_result(kind: &str) -> bool {
    kind.ends_with("_tool_result")
}

/// Returns the block of a call, with the input that streamed after its start.
pub(super) fn call_block(start: &RawValue, arguments: &str) -> RawJson {
    with_members(start, &[("input", &owned_object(arguments))])
}

/// Returns a block with the members that came after its start.
pub(super) fn with_members(start: &RawValue, later: &[(&str, &RawJson)]) -> RawJson {
    let mut members: BTreeMap<&str, &RawValue> = match serde_json::from_str(start.get()) {
        Ok(members) => members,
        // The names hold escapes, which no known block does. Keep it as it came.
        Err(_) => return RawJson::parse(start.get()).expect("it is a value of a frame"),
    };
    members.extend(later.iter().map(|(name, value)| (*name, value.raw())));
    let text = serde_json::to_string(&members).expect("names and JSON values are always written");
    RawJson::parse(text).expect("it was just written")
}

/// Returns a result as text for other models, and whether it is a failure.
pub(super) fn result_text(content: Option<&RawValue>, is_error: Option<bool>) -> (String, bool) {
    let Some(raw) = content else { return (String::new(), is_error.unwrap_or(false)) };
    let mut content: Value = match serde_json::from_str(raw.get()) {
        Ok(content) => content,
        Err(_) => return (raw.get().to_owned(), is_error.unwrap_or(false)), // too deeply nested for a tree
    };
    let failed = is_error.unwrap_or_else(|| {
        content["type"].as_str().is_some_and(|kind| kind.ends_with("_tool_result_error"))
    });
    let text = match &content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => texts(blocks),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    let text = text.unwrap_or_else(|| {
        remove_encrypted(&mut content);
        RawJson::from(&content).get().to_owned()
    });
    (text, failed)
}

/// Returns the blocks' texts if all of them are text.
fn texts(blocks: &[Value]) -> Option<String> {
    let text = |block: &Value| match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => Some(text.to_owned()),
        _ => None,
    };
    let texts = blocks.iter().map(text).collect::<Option<Vec<_>>>()?;
    Some(texts.join("\n"))
}

/// Removes encrypted search results: thousands of characters that mean nothing to another model.
fn remove_encrypted(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("encrypted_content");
            fields.values_mut().for_each(remove_encrypted);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_encrypted),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_calls_block_has_the_streamed_input_and_all_else_that_came() {
        let start = raw(
            r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{},"caller":{"type":"direct"}}"#,
        );
        assert_eq!(
            call_block(start, r#"{"query": "é"}"#).get(),
            r#"{"caller":{"type":"direct"},"id":"s","input":{"query": "é"},"name":"web_search","type":"server_tool_use"}"#
        );
    }

    #[test]
    fn others_read_the_text_of_a_result_or_its_json_without_what_is_encrypted() {
        let read = |content, flag| result_text(Some(raw(content)), flag);
        let texts = r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#;
        assert_eq!(read(texts, Some(true)), ("a\nb".to_owned(), true));
        let found =
            r#"[{"type":"web_search_result","url":"https://h","encrypted_content":"XXXX"}]"#;
        let shown = r#"[{"type":"web_search_result","url":"https://h"}]"#;
        assert_eq!(read(found, None), (shown.to_owned(), false));
        let failed = r#"{"type":"web_search_tool_result_error","error_code":"max_uses_exceeded"}"#;
        let shown = r#"{"error_code":"max_uses_exceeded","type":"web_search_tool_result_error"}"#;
        assert_eq!(read(failed, None), (shown.to_owned(), true));
        assert_eq!(result_text(None, None), (String::new(), false));
    }
}
