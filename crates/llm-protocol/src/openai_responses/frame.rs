//! The frames of a response's stream, with the fields that we read. Each may be absent or null.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::classify::classify_in_stream;
use crate::decode_error::DecodeError;
use crate::error::{ErrorReason, ProviderError, truncate};
use crate::event::Usage;
use crate::json::{CacheWrites, Count, inclusive_input, read_counts, read_index};
use crate::text::Text;

/// One frame of any type, with the fields of all types.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) delta: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item_id: Option<Text<'a>>,
    #[serde(deserialize_with = "read_index")]
    pub(super) output_index: Option<u64>,
    #[serde(deserialize_with = "read_index")]
    pub(super) content_index: Option<u64>,
    #[serde(deserialize_with = "read_index")]
    pub(super) summary_index: Option<u64>,
    #[serde(borrow)]
    pub(super) response: Option<Response<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The types that we read. Frames of other types are ignored.
const KNOWN: &[&str] = &[
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.refusal.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.completed",
    "response.incomplete",
    "response.failed",
    "error",
];

impl<'a> Frame<'a> {
    /// Parses a frame. Frames that are not of this protocol give an empty one: JSON that is not an object, or
    /// an unknown type whose fields have types other than ours.
    pub(super) fn parse(data: &'a str) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Type {
            #[serde(rename = "type")]
            kind: Option<String>,
        }
        let error = match serde_json::from_str(data) {
            Ok(frame) => return Ok(frame),
            Err(error) => error,
        };
        let foreign = match serde_json::from_str::<Type>(data) {
            Ok(Type { kind: Some(kind) }) => !KNOWN.contains(&kind.as_str()),
            Ok(Type { kind: None }) => false,
            Err(_) => is_json_but_no_object(data),
        };
        if foreign {
            return Ok(Self::default());
        }
        Err(DecodeError::malformed(format!("{error} in frame: {}", truncate(data, 256))))
    }
}

impl Frame<'_> {
    /// Returns whether the frame holds values that we keep as text.
    pub(super) fn keeps_raw(&self) -> bool {
        let failed = self
            .response
            .as_ref()
            .is_some_and(|response| response.error.is_some() || response.output.is_some());
        self.item.is_some() || self.arguments.is_some() || self.error.is_some() || failed
    }
}

fn is_json_but_no_object(data: &str) -> bool {
    serde_json::from_str::<&RawValue>(data).is_ok_and(|value| !value.get().starts_with('{'))
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage: Option<WireUsage>,
    pub(super) incomplete_details: Option<Incomplete>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    /// All items, which also come one by one before it.
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Incomplete {
    pub(super) reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage {
    input_tokens: Count,
    #[serde(deserialize_with = "read_counts")]
    input_tokens_details: Option<InputDetails>,
    output_tokens: Count,
    #[serde(deserialize_with = "read_counts")]
    output_tokens_details: Option<OutputDetails>,
    total_tokens: Count,
    #[serde(flatten)]
    written: CacheWrites,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    #[serde(flatten)]
    written: CacheWrites,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

impl WireUsage {
    pub(super) fn into_usage(self) -> Usage {
        let details = self.input_tokens_details.unwrap_or_default();
        let cached = details.cached_tokens.0.unwrap_or(0);
        let written = self.written.total().max(details.written.total()).unwrap_or(0);
        let input = self.input_tokens.0.unwrap_or(0);
        let input = inclusive_input(input, cached.saturating_add(written));
        let output = self.output_tokens.0.unwrap_or(0);
        Usage {
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: self
                .output_tokens_details
                .and_then(|of| of.reasoning_tokens.0)
                .unwrap_or(0),
            total_tokens: self.total_tokens.0.unwrap_or_else(|| input.saturating_add(output)),
            estimated: false,
        }
    }
}

/// Returns the error that a frame reports. Without details it is an internal error of the provider.
pub(super) fn failure(error: Option<&RawValue>) -> DecodeError {
    let error: Option<Value> = error.and_then(|error| serde_json::from_str(error.get()).ok());
    error.map_or_else(
        || {
            let reason = ErrorReason::ProviderInternal { retry_after_ms: None };
            let message = "the response failed, and does not say why".to_owned();
            ProviderError { reason, message }.into()
        },
        |error| classify_in_stream(&error).into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding reports 10.
    #[test]
    fn cache_writes_are_read_beside_and_in_the_details() {
        let spellings = [
            r#""input_tokens_details":{"cached_tokens":600,"cache_write_tokens":300}"#,
            r#""cache_creation_input_tokens":300,"input_tokens_details":{"cached_tokens":600}"#,
        ];
        for spelling in spellings {
            let text = format!(r#"{{"input_tokens":1000,"output_tokens":5,{spelling}}}"#);
            let usage = serde_json::from_str::<WireUsage>(&text).unwrap().into_usage();
            assert_eq!((usage.cache_read_tokens, usage.cache_write_tokens), (600, 300), "{text}");
            assert_eq!(usage.total_tokens, 1005);
        }
    }
}
