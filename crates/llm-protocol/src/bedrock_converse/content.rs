//! What messages are made of on the wire.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::bedrock_converse::media::MediaBlock;
use crate::json::RawJson;

/// A block, in JSON an object of one member.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    #[serde(rename = "reasoningContent")]
    Reasoning(Reasoning<'a>),
    #[serde(rename_all = "camelCase")]
    ToolUse {
        tool_use_id: Cow<'a, str>,
        name: &'a str,
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
    /// As Bedrock sent it.
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

/// What comes before it is kept in the prompt cache.
#[derive(Serialize)]
pub(super) struct CachePoint {
    #[serde(rename = "type")]
    kind: &'static str,
}

impl CachePoint {
    pub(super) const DEFAULT: Self = Self { kind: "default" };
}

impl<'a> Content<'a> {
    /// Text that says something: Bedrock refuses blank ones.
    pub(super) fn said(text: impl Into<Cow<'a, str>>) -> Option<Self> {
        let text = text.into();
        (!text.trim().is_empty()).then_some(Self::Text(text))
    }
}
