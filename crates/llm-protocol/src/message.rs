//! Messages of the conversation and their parts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::RawJson;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The person, or text that stands in for them.
    User,
    /// The model.
    Assistant,
    /// Results of the calls in the assistant message before it.
    Tool,
    /// Instructions given in the middle of the conversation.
    System,
}

impl Role {
    /// Returns the name in neutral JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::System => "system",
        }
    }
}

/// One message. Deserialising refuses a part that its role cannot carry, such as a tool call by the user. If
/// code builds such a message, protocols skip that part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "crate::message_json::MessageFields")]
#[schemars(!try_from)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its parts, in order.
    pub content: Vec<Part>,
}

impl Message {
    /// Makes a user message of one text.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Part::text(text)] }
    }

    /// Makes a Mid-Conversation System Message of one text.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self { role: Role::System, content: vec![Part::text(text)] }
    }

    /// Makes a message of the model's text and calls.
    #[must_use]
    pub fn assistant(content: Vec<Part>) -> Self {
        Self { role: Role::Assistant, content }
    }

    /// Makes a message with the results of one batch of calls.
    #[must_use]
    pub fn tool(results: Vec<ToolResult>) -> Self {
        Self { role: Role::Tool, content: results.into_iter().map(Part::ToolResult).collect() }
    }
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[serde(try_from = "crate::message_json::PartFields")]
#[schemars(!try_from)]
pub enum Part {
    /// Plain text.
    Text(TextPart),
    /// Reasoning of the model.
    Reasoning(TextPart),
    /// An image, a sound or a document.
    Media(Media),
    /// A call that the model asked for.
    ToolCall(ToolCall),
    /// The result of a call.
    ToolResult(ToolResult),
}

impl Part {
    /// Makes a text part without provider state.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextPart { text: text.into(), provider_metadata: None })
    }

    /// Returns the name in neutral JSON.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Reasoning(_) => "reasoning",
            Self::Media(_) => "media",
            Self::ToolCall(_) => "tool-call",
            Self::ToolResult(_) => "tool-result",
        }
    }
}

/// Text and the provider state that belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextPart {
    /// The text.
    pub text: String,
    /// Opaque state for the provider that sent it; no other provider receives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_metadata: Option<RawJson>,
}

/// An image, a sound or a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Media {
    /// Its media type, such as `image/png`.
    pub mime: String,
    /// The bytes in base64 (RFC 4648 §4, padded, no line breaks), or an `https:` URL that the provider fetches.
    pub data: String,
    /// Opaque state for the provider that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_metadata: Option<RawJson>,
}

/// A call of a tool, as the model wrote it.
///
/// In neutral JSON the arguments are `input`, a JSON value. Numbers, escapes and key order stay as they are;
/// white space between tokens is dropped. Arguments that are not one clean JSON value (cut off, empty,
/// surrounded by white space) become the string `inputText`, which is always exact.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "crate::message_json::PartFields")]
pub struct ToolCall {
    /// The provider's id of the call. Unique within one answer, not within a conversation.
    pub id: String,
    /// The tool's name, which may not exist.
    pub name: String,
    /// The model's bytes. If they are not valid JSON, the call fails and the model is shown why.
    pub arguments: String,
    /// The provider ran the call; nobody else may.
    pub provider_executed: bool,
    /// Opaque state for the provider that sent it.
    pub provider_metadata: Option<RawJson>,
}

impl ToolCall {
    /// Makes a call that we are to run.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            provider_executed: false,
            provider_metadata: None,
        }
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", try_from = "crate::message_json::PartFields")]
#[schemars(!try_from)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The text and media that the model sees. JSON also accepts a string (one text) and any other value (its
    /// JSON text).
    #[schemars(schema_with = "crate::schema::tool_content")]
    pub content: Vec<ToolContent>,
    /// The call failed. Each protocol has its own way to show that to the model.
    #[schemars(default)]
    pub is_error: bool,
    /// Opaque state for the provider that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_metadata: Option<RawJson>,
}

impl ToolResult {
    /// Makes a successful result of one text.
    #[must_use]
    pub fn text(id: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            content: vec![ToolContent::Text { text: text.into() }],
            is_error: false,
            provider_metadata: None,
        }
    }

    /// Makes a failed result whose text says why.
    #[must_use]
    pub fn error(id: impl Into<String>, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(id, name, text) }
    }
}

/// A piece of a tool result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToolContent {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An image or a document; see [`Media`].
    Media {
        /// Its media type.
        mime: String,
        /// Base64, or an `https:` URL.
        data: String,
    },
}
