//! The frames of a message's stream, with the fields that we read. Each may be absent or null.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::decode_error::DecodeError;
use crate::error::truncate;
use crate::event::Usage;
use crate::json::{CacheCreation, Count, read_counts, read_index};
use crate::text::Text;

/// One frame of any type, with the fields of all types.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Frame<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(deserialize_with = "read_index")]
    pub(super) index: Option<u64>,
    pub(super) message: Option<MessageStart>,
    #[serde(borrow)]
    pub(super) content_block: Option<Block<'a>>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct MessageStart {
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage: Option<WireUsage>,
}

/// The content of a `content_block_start`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Block<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) thinking: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) signature: Option<Text<'a>>,
    /// In redacted thinking.
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    /// In the result of a tool that the provider ran.
    #[serde(borrow)]
    pub(super) tool_use_id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    pub(super) is_error: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Delta<'a> {
    #[serde(rename = "type", borrow)]
    pub(super) kind: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) thinking: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) signature: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<Text<'a>>,
    /// In a summary of the earlier conversation (`compaction_delta`).
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<&'a RawValue>,
}

/// The types that we read. Frames of other types, such as `ping`, are ignored.
const KNOWN: &[&str] = &[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
    "error",
];

impl<'a> Frame<'a> {
    /// Parses a frame. Frames that are not of this protocol give an empty one: JSON that is not an object, or
    /// an unknown type whose fields have types other than ours.
    pub(super) fn parse(data: &'a str) -> Result<Self, DecodeError> {
        let error = match serde_json::from_str(data) {
            Ok(frame) => return Ok(frame),
            Err(error) => error,
        };
        #[derive(Deserialize)]
        struct Type {
            #[serde(rename = "type")]
            kind: Option<Value>,
        }
        let ours = match serde_json::from_str::<Type>(data) {
            Ok(Type { kind: Some(Value::String(kind)) }) => KNOWN.contains(&kind.as_str()),
            Ok(Type { .. }) => false,
            // It is not an object, or not JSON at all.
            Err(_) => data.starts_with('{') || serde_json::from_str::<IgnoredAny>(data).is_err(),
        };
        if ours { Err(malformed(&error, data)) } else { Ok(Self::default()) }
    }
}

impl Frame<'_> {
    /// Returns whether the frame holds values that we keep as text.
    pub(super) fn keeps_raw(&self) -> bool {
        let block = self.content_block.as_ref();
        let raw = |block: &Block<'_>| {
            [block.data, block.input, block.content].iter().any(Option::is_some)
        };
        let summary = self.delta.as_ref().is_some_and(|delta| delta.content.is_some());
        self.error.is_some() || summary || block.is_some_and(raw)
    }
}

/// Returns the raw text of a frame's block. Only blocks of hosted tools are kept that way.
pub(super) fn block_text(data: &str) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Start<'a> {
        #[serde(borrow)]
        content_block: Option<&'a RawValue>,
    }
    serde_json::from_str::<Start<'_>>(data).ok()?.content_block
}

fn malformed(error: &serde_json::Error, data: &str) -> DecodeError {
    DecodeError::malformed(format!("{error} in frame: {}", truncate(data, 256)))
}

/// Token counts. They grow during an answer, and each frame that has them gives the totals so far.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    cache_creation_input_tokens: Count,
    cache_read_input_tokens: Count,
    /// The same as `cache_creation_input_tokens`, by the time that the cache keeps it.
    #[serde(deserialize_with = "read_counts")]
    cache_creation: Option<CacheCreation>,
}

impl WireUsage {
    /// Takes the larger of each count, because a server that does not know one sends 0 or nothing.
    pub(super) fn grow(&mut self, later: Self) {
        self.input_tokens = self.input_tokens.max(later.input_tokens);
        self.output_tokens = self.output_tokens.max(later.output_tokens);
        self.cache_creation_input_tokens = self.written().max(later.written());
        self.cache_read_input_tokens =
            self.cache_read_input_tokens.max(later.cache_read_input_tokens);
    }

    fn written(&self) -> Count {
        let split = self.cache_creation.and_then(CacheCreation::total);
        self.cache_creation_input_tokens.max(Count(split))
    }

    /// Converts the counts. Anthropic counts cached tokens beside the input, we count them in it.
    pub(super) fn into_usage(self) -> Usage {
        let cache_read_tokens = self.cache_read_input_tokens.0.unwrap_or(0);
        let cache_write_tokens = self.written().0.unwrap_or(0);
        let input = self.input_tokens.0.unwrap_or(0);
        let input_tokens =
            input.saturating_add(cache_read_tokens).saturating_add(cache_write_tokens);
        let output_tokens = self.output_tokens.0.unwrap_or(0);
        Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens: 0, // part of the output, not counted separately
            total_tokens: input_tokens.saturating_add(output_tokens),
            estimated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_grows_and_counts_the_cache_in() {
        let read = |text| serde_json::from_str::<WireUsage>(text).unwrap();
        let mut usage = read(
            r#"{"input_tokens":9,"cache_creation_input_tokens":3,"cache_read_input_tokens":5000,"output_tokens":2}"#,
        );
        usage.grow(read(r#"{"input_tokens":0,"cache_read_input_tokens":null,"output_tokens":7}"#));
        let expected = Usage {
            input_tokens: 5012,
            output_tokens: 7,
            cache_read_tokens: 5000,
            cache_write_tokens: 3,
            reasoning_tokens: 0,
            total_tokens: 5019,
            estimated: false,
        };
        assert_eq!(usage.into_usage(), expected);
        let split =
            r#"{"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4}}"#;
        assert_eq!(read(split).into_usage().cache_write_tokens, 7);
    }

    #[test]
    fn frames_of_others_are_empty_and_broken_ones_of_ours_are_not() {
        let kind = |data| Frame::parse(data).map(|frame| frame.kind.map(Text::into_string));
        assert_eq!(kind(r#"{"type":"novel","delta":7}"#), Ok(None));
        assert_eq!(kind(r#"{"type":5}"#), Ok(None));
        assert_eq!(kind("17"), Ok(None));
        assert_eq!(kind(r#"{"type":"ping"}"#), Ok(Some("ping".to_owned())));
        assert!(kind(r#"{"type":"content_block_delta","delta":7}"#).is_err());
        assert!(kind(r#"{"type":"#).is_err());
        assert!(kind("<html>").is_err());
    }
}
