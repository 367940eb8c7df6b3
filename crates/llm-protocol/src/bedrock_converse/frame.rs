//! The frames of a Converse stream, with the fields that we read. A frame is an object with one member, the
//! event. Each of its fields may be absent or null.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::event::Usage;
use crate::json::{Count, read_counts};
use crate::text::Text;

pub(super) enum Frame<'a> {
    Start(BlockStart<'a>),
    Delta(BlockDelta<'a>),
    Stop(BlockStop),
    MessageStop(MessageStop<'a>),
    Metadata(Metadata),
    /// An exception of this name, or `error` for one that the framing reports.
    Exception(String, Exception<'a>),
    /// Providers add events, which is not an error.
    Unknown,
}

impl Frame<'_> {
    /// Returns whether the frame holds values that we keep as text.
    pub(super) fn keeps_raw(&self) -> bool {
        match self {
            Self::Delta(more) => {
                more.delta.as_ref().is_some_and(|delta| delta.tool_result.is_some())
            }
            Self::Start(_)
            | Self::Stop(_)
            | Self::MessageStop(_)
            | Self::Metadata(_)
            | Self::Exception(..)
            | Self::Unknown => false,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Frame<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Union;
        impl<'de> Visitor<'de> for Union {
            type Value = Frame<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event of a Converse stream")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Frame<'de>, M::Error> {
                let mut frame = Frame::Unknown;
                while let Some(name) = map.next_key::<Text<'de>>()? {
                    frame = match &*name {
                        "contentBlockStart" => Frame::Start(map.next_value()?),
                        "contentBlockDelta" => Frame::Delta(map.next_value()?),
                        "contentBlockStop" => Frame::Stop(map.next_value()?),
                        "messageStop" => Frame::MessageStop(map.next_value()?),
                        "metadata" => Frame::Metadata(map.next_value()?),
                        name if name == "error" || name.ends_with("Exception") => {
                            Frame::Exception(name.to_owned(), map.next_value()?)
                        }
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                }
                Ok(frame)
            }
        }
        deserializer.deserialize_map(Union)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct BlockStart<'a> {
    #[serde(default)]
    pub(super) content_block_index: u64,
    pub(super) start: Option<Start<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Start<'a> {
    pub(super) tool_use: Option<ToolUseStart<'a>>,
    pub(super) tool_result: Option<ToolResultStart<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct ToolUseStart<'a> {
    pub(super) tool_use_id: Option<Text<'a>>,
    pub(super) name: Option<Text<'a>>,
    /// `server_tool_use` if Bedrock runs it.
    #[serde(rename = "type")]
    pub(super) kind: Option<Text<'a>>,
}

/// The result of a tool that Bedrock ran.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct ToolResultStart<'a> {
    pub(super) tool_use_id: Option<Text<'a>>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Text<'a>>,
    pub(super) status: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct BlockDelta<'a> {
    #[serde(default)]
    pub(super) content_block_index: u64,
    pub(super) delta: Option<Delta<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct Delta<'a> {
    pub(super) text: Option<Text<'a>>,
    pub(super) tool_use: Option<ToolUseDelta<'a>>,
    pub(super) reasoning_content: Option<ReasoningDelta<'a>>,
    /// Pieces of a hosted tool's result, verbatim.
    #[serde(borrow)]
    pub(super) tool_result: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct ToolUseDelta<'a> {
    pub(super) input: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct ReasoningDelta<'a> {
    pub(super) text: Option<Text<'a>>,
    pub(super) signature: Option<Text<'a>>,
    /// Bytes in base64.
    pub(super) redacted_content: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStop {
    #[serde(default)]
    pub(super) content_block_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "'de: 'a")]
pub(super) struct MessageStop<'a> {
    pub(super) stop_reason: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Metadata {
    #[serde(deserialize_with = "read_counts")]
    pub(super) usage: Option<WireUsage>,
}

#[derive(Deserialize)]
#[serde(bound = "'de: 'a")]
pub(super) struct Exception<'a> {
    #[serde(alias = "Message")]
    pub(super) message: Option<Text<'a>>,
    /// The code of an `error`, whose name says nothing.
    pub(super) code: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireUsage {
    input_tokens: Count,
    output_tokens: Count,
    total_tokens: Count,
    cache_read_input_tokens: Count,
    cache_write_input_tokens: Count,
    /// The names before 2025.
    cache_read_input_token_count: Count,
    cache_write_input_token_count: Count,
}

impl WireUsage {
    /// Converts the counts. Bedrock counts cached tokens beside the input, we count them in it.
    pub(super) fn into_usage(self) -> Usage {
        let read = self.cache_read_input_tokens.max(self.cache_read_input_token_count);
        let written = self.cache_write_input_tokens.max(self.cache_write_input_token_count);
        let (cache_read_tokens, cache_write_tokens) = (read.0.unwrap_or(0), written.0.unwrap_or(0));
        let cached = cache_read_tokens.saturating_add(cache_write_tokens);
        let input_tokens = self.input_tokens.0.unwrap_or(0).saturating_add(cached);
        let output_tokens = self.output_tokens.0.unwrap_or(0);
        let sum = input_tokens.saturating_add(output_tokens);
        Usage {
            input_tokens,
            output_tokens,
            cache_read_tokens,
            cache_write_tokens,
            reasoning_tokens: 0, // Bedrock does not report it
            total_tokens: self.total_tokens.0.unwrap_or(0).max(sum),
            estimated: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_includes_what_the_cache_read_and_wrote() {
        let read = |text| serde_json::from_str::<WireUsage>(text).unwrap().into_usage();
        let usage = read(
            r#"{"inputTokens":3,"outputTokens":5,"totalTokens":1908,"cacheReadInputTokens":1800,"cacheWriteInputTokens":100,"serverToolUsage":{}}"#,
        );
        let expected = Usage {
            input_tokens: 1903,
            output_tokens: 5,
            cache_read_tokens: 1800,
            cache_write_tokens: 100,
            reasoning_tokens: 0,
            total_tokens: 1908,
            estimated: false,
        };
        assert_eq!(usage, expected);
        assert_eq!(read(r#"{"inputTokens":3,"outputTokens":null}"#).total_tokens, 3);
    }
}
