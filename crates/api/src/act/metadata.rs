//! A session's metadata: a JSON object that its client keeps with it. It is kept word for word, and no model sees it.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::ApiError;
use crate::text::is_readable_json;

/// The most bytes of it.
const MAX_BYTES: usize = 16 * 1024;
/// The most objects and lists that lie in one another.
const MAX_DEPTH: usize = 16;

/// A client's metadata, which nobody has looked at.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct MetadataRequest(Box<RawValue>);

impl JsonSchema for MetadataRequest {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Metadata".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

impl MetadataRequest {
    /// Returns the client's bytes, if they are an object within bounds.
    pub(crate) fn checked(self) -> Result<String, ApiError> {
        let text: String = Box::<str>::from(self.0).into();
        if !text.starts_with('{') {
            return Err(ApiError::invalid("`metadata` is a JSON object"));
        }
        if !is_readable_json(&text) {
            return Err(ApiError::invalid(
                "`metadata` has a text with half a surrogate pair, or a number that is too large; other programs could not read it",
            ));
        }
        if text.len() > MAX_BYTES || depth(&text) > MAX_DEPTH {
            return Err(ApiError::Invalid(format!(
                "`metadata` has at most {MAX_BYTES} bytes, and {MAX_DEPTH} objects or lists in one another; send less"
            )));
        }
        Ok(text)
    }
}

/// Returns metadata that came in another way than a request, if it is an object within bounds.
pub(super) fn checked(text: String) -> Result<String, ApiError> {
    let text = RawValue::from_string(text)
        .map_err(|_| ApiError::invalid("`metadata` is a JSON object"))?;
    MetadataRequest(text).checked()
}

/// Returns how many objects and lists of a JSON text lie in one another.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut quoted, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<String, ApiError> {
        serde_json::from_str::<MetadataRequest>(text).expect("JSON").checked()
    }

    #[test]
    fn an_object_within_bounds_is_kept_word_for_word() {
        for text in [r"{}", r#"{ "b": 1.0, "a": [ "\u0000", {} ], "b": 2e3 }"#] {
            assert_eq!(checked(text).expect("kept"), text);
        }
        let deep =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(checked(&deep(MAX_DEPTH - 1)).is_ok());
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_BYTES));
        for bad in ["null", "[]", "1", &deep(MAX_DEPTH), &long] {
            assert!(checked(bad).is_err(), "{bad:.20}");
        }
    }

    /// Such a session made the list of its whole organisation unreadable.
    #[test]
    fn what_other_programs_cannot_read_is_refused() {
        for bad in [
            r#"{"a":"\ud800"}"#,
            r#"{"a":["\udc00\ud800"]}"#,
            r#"{"\ud800":1}"#,
            r#"{"a":[{"b":1e999}]}"#,
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
        for good in [
            r#"{"a":"\ud83d\ude00"}"#,
            r#"{"a":-1e-999}"#,
            r#"{"a":123456789012345678901234567890}"#,
        ] {
            assert_eq!(checked(good).expect("kept"), good);
        }
    }

    #[test]
    fn brackets_in_texts_are_no_depth() {
        for (text, deep) in [(r#"{"a":"[[\"[["}"#, 1), (r#"{"a\\":[{}],"b":[]}"#, 3)] {
            assert_eq!(depth(text), deep, "{text}");
        }
    }
}
