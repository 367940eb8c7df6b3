//! The content of messages on the wire.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::bedrock_converse::media::MediaBlock;
use crate::cache::wire_ttl;
use crate::json::RawJson;

/// A block; in JSON an object with one member.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    #[serde(rename = "reasoningContent")]
    Reasoning(Reasoning<'a>),
    #[serde(rename_all = "camelCase")]
    ToolUse {
        tool_use_id: Cow<'a, str>,
        name: Cow<'a, str>,
        input: Cow<'a, RawValue>,
    },
    #[serde(rename_all = "camelCase")]
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Vec<Content<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<&'static str>,
    },
    Image(MediaBlock<'a>),
    Document(MediaBlock<'a>),
    Video(MediaBlock<'a>),
    CachePoint(CachePoint),
    /// A block that Bedrock sent, verbatim.
    #[serde(untagged)]
    Verbatim(RawJson),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reasoning<'a> {
    ReasoningText {
        text: &'a str,
        signature: String,
    },
    /// Base64.
    RedactedContent(String),
}

/// A cache point: the content before it is kept in the prompt cache.
#[derive(Clone, Copy, Serialize)]
pub(super) struct CachePoint {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CachePoint {
    /// Makes a cache point that lasts `ttl_seconds`.
    /// <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_CachePointBlock.html>
    pub(super) fn of(ttl_seconds: Option<u32>) -> Self {
        Self { kind: "default", ttl: wire_ttl(ttl_seconds) }
    }
}

impl<'a> Content<'a> {
    /// Makes a text block, or none if the text is blank: Bedrock refuses those.
    pub(super) fn said(text: impl Into<Cow<'a, str>>) -> Option<Self> {
        let text = text.into();
        (!text.trim().is_empty()).then_some(Self::Text(text))
    }
}
