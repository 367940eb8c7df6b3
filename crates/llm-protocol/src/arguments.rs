//! The arguments of a call for protocols that want a JSON object, although the model may have written
//! anything.

use std::borrow::Cow;

use serde_json::value::{RawValue, to_raw_value};

use crate::json::RawJson;
use crate::surrogates;

/// Returns the arguments as a JSON object: the model's own bytes if they are one, `{}` if they are empty or
/// `null`, otherwise `{"invalid_json": "<the model's text>"}`, so that the model sees its mistake.
pub(crate) fn object(arguments: &str) -> Cow<'_, RawValue> {
    if let Ok(raw) = serde_json::from_str::<&RawValue>(arguments) {
        if raw.get().starts_with('{') {
            // Providers refuse half surrogate pairs, in this request and in every later one of the
            // conversation.
            let whole = surrogates::whole(raw.get()).map(RawValue::from_string);
            return whole.and_then(Result::ok).map_or(Cow::Borrowed(raw), Cow::Owned);
        }
        if raw.get() == "null" {
            return Cow::Owned(empty());
        }
    }
    if arguments.trim().is_empty() {
        return Cow::Owned(empty());
    }
    let wrapped = serde_json::json!({ "invalid_json": arguments });
    Cow::Owned(to_raw_value(&wrapped).expect("a string is always written"))
}

/// Returns the result of [`object`] as text.
///
/// vLLM answers 400 and llama.cpp 500 to every request whose conversation holds arguments that are not a JSON
/// object (<https://github.com/vllm-project/vllm/issues/43995>,
/// <https://github.com/ggml-org/llama.cpp/issues/25510>). Without this, one call cut off by the token limit
/// would end the conversation.
pub(crate) fn object_text(arguments: &str) -> Cow<'_, str> {
    match object(arguments) {
        Cow::Borrowed(raw) => Cow::Borrowed(raw.get()),
        Cow::Owned(raw) => Cow::Owned(String::from(Box::<str>::from(raw))),
    }
}

/// Returns the result of [`object`] as an owned value.
pub(crate) fn owned_object(arguments: &str) -> RawJson {
    RawJson::parse(object(arguments).get()).expect("it is a JSON object")
}

fn empty() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).expect("it is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_its_bytes_and_anything_else_is_shown_to_the_model() {
        let cases = [
            (r#"{"b": 1.0,"a":"é"}"#, r#"{"b": 1.0,"a":"é"}"#),
            (" {} \n", "{}"),
            (r#"{"a":"\ud83d!"}"#, r#"{"a":"\ufffd!"}"#),
            ("", "{}"),
            (" ", "{}"),
            ("null", "{}"),
            (r#"{"a":"#, r#"{"invalid_json":"{\"a\":"}"#),
            ("[1]", r#"{"invalid_json":"[1]"}"#),
            ("\"text\"", r#"{"invalid_json":"\"text\""}"#),
            ("{}{}", r#"{"invalid_json":"{}{}"}"#),
        ];
        for (arguments, expected) in cases {
            assert_eq!(object(arguments).get(), expected, "{arguments:?}");
            assert_eq!(owned_object(arguments).get(), expected);
            assert_eq!(object_text(arguments), expected);
        }
    }
}
