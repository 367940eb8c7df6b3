//! The neutral request: the input of a turn, for any provider.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cache::CachePolicy;
use crate::call_ids::tool_name;
use crate::json::{RawJson, control_number};
use crate::message::{Message, Part};

/// One request to a model, independent of the provider that serves it.
///
/// Its JSON is the neutral form that the CLI, logs and tests speak: camelCase keys, absent means default,
/// unknown keys are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LlmRequest {
    /// The provider's own name for the model. May be empty if a route names it.
    #[serde(default)]
    pub model: String,
    /// The instructions that come before the conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<SystemPart>,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools that the model may call, in the order in which it sees them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolDefinition>,
    /// Whether the model must call a tool, and which.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// Sampling and length.
    #[serde(default)]
    pub generation: Generation,
    /// Model Request Options, by namespace. A protocol id's namespace holds fields of its body
    /// (`{"openai-chat": {"store": false}}`). A family's namespace holds options of its models in the AI
    /// SDK's names (`{"openai": {"reasoningEffort": "low"}}`). Other namespaces are not sent, so a request
    /// survives a switch of provider.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider_options: Map<String, Value>,
    /// The parts that the provider should cache, for protocols that mark them explicitly.
    #[serde(default, skip_serializing_if = "CachePolicy::is_none")]
    pub cache: CachePolicy,
}

impl LlmRequest {
    /// Makes a request with only a model and a conversation.
    #[must_use]
    pub fn new(model: impl Into<String>, messages: Vec<Message>) -> Self {
        Self {
            model: model.into(),
            system: Vec::new(),
            messages,
            tools: Vec::new(),
            tool_choice: ToolChoice::default(),
            generation: Generation::default(),
            provider_options: Map::new(),
            cache: CachePolicy::default(),
        }
    }

    /// Returns the sorted names of the tools that the conversation has called, in a form that providers
    /// accept.
    pub(crate) fn called_tools(&self) -> BTreeSet<Cow<'_, str>> {
        let parts = self.messages.iter().flat_map(|message| &message.content);
        let names = parts.filter_map(|part| match part {
            Part::ToolCall(call) => Some(tool_name(&call.name)),
            Part::ToolResult(_) | Part::Text(_) | Part::Reasoning(_) | Part::Media(_) => None,
        });
        names.collect()
    }
}

/// A piece of the instructions before the conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum SystemPart {
    /// Plain text.
    Text {
        /// The text, as the model reads it.
        text: String,
    },
}

impl SystemPart {
    /// Makes a text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Unique in the request; providers accept `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// The tool's purpose and when to use it.
    #[serde(default)]
    pub description: String,
    /// A JSON Schema of the input, sent verbatim: the order of its properties is what the model sees.
    pub input_schema: RawJson,
}

/// Whether the model must call a tool, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool may be called, although they are described.
    None,
    /// Some tool must be called.
    Required,
    /// The named tool must be called; in JSON `{"tool": "name"}`.
    Tool(String),
}

/// Sampling and length. `None` leaves the provider's default; numbers must be finite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Generation {
    /// The most tokens that the answer may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Randomness of sampling; 0 is the most deterministic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Samples from the k likeliest tokens. Not every provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Strings that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Makes answers repeatable, on a best-effort basis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
}

/// A protocol's names for the controls. A control without a name is not sent.
pub(crate) struct ControlNames<'a> {
    pub(crate) max_tokens: &'a str,
    pub(crate) temperature: &'a str,
    pub(crate) top_p: &'a str,
    pub(crate) top_k: Option<&'a str>,
    pub(crate) seed: Option<&'a str>,
    pub(crate) stop: Option<&'a str>,
}

impl Generation {
    /// Returns the controls that are set, by the protocol's names.
    pub(crate) fn named<'a>(&self, names: &ControlNames<'a>) -> Vec<(&'a str, Value)> {
        let stop = (!self.stop.is_empty()).then(|| Value::from(self.stop.clone()));
        let all = [
            (Some(names.max_tokens), self.max_tokens.map(Value::from)),
            (Some(names.temperature), self.temperature.map(control_number)),
            (Some(names.top_p), self.top_p.map(control_number)),
            (names.top_k, self.top_k.map(Value::from)),
            (names.seed, self.seed.map(Value::from)),
            (names.stop, stop),
        ];
        all.into_iter().filter_map(|(name, value)| name.zip(value)).collect()
    }
}
