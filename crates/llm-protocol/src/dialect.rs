//! The differences between a deployment and its protocol. They are data, so that a provider needs no code.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The ways in which a provider or model deviates from its protocol. The default is the protocol's owner
/// itself.
///
/// It shapes the bytes that are sent, so it is stored with the request, unless it is the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dialect {
    /// The name under which provider state is stored. Two providers that speak the same protocol use
    /// different names, so that neither sees the other's state. None: the protocol's own
    /// ([`crate::Protocol::state_key`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_key: Option<String>,
    /// The model's name in bodies, if the deployment calls it differently from the name that chooses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The way to send instructions in the middle of a conversation. None: the protocol owner's way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// The field that bounds an answer's tokens, if it is not the protocol's (`max_completion_tokens`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// The field of an assistant message that returns its reasoning (`reasoning_content`,
    /// `reasoning_details`). Chat only; without it, reasoning is not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_field: Option<String>,
    /// The deployment refuses a message with calls that lacks its reasoning, so the field is there, and empty if
    /// there is no reasoning: another model made the calls, or this one did not think. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning_with_calls: bool,
    /// Sends prompt-cache marks inside the messages, in Anthropic's form. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inline_cache: bool,
    /// The deployment finds its cache by `prompt_cache_key`, which should be the same for all requests of a
    /// conversation. The caller that knows the conversation sets it; an encoder does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cache_key: bool,
    /// The ids of calls that the deployment accepts. None: any. Chat only; the other protocols know their
    /// owners' rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<CallIdForm>,
    /// The deployment wants a model message between results and the next user message. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub answers_results: bool,
    /// Joins neighbouring messages of the user, and of the model up to its calls, for chat templates that refuse two in
    /// a row. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub joins_messages: bool,
    /// Body fields that the deployment refuses, such as `temperature` or `stream_options`. They are never
    /// sent, even if the request asks for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit: Vec<String>,
    /// Compatibility body fields, added to every body. The request's own fields win.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
}

/// The ids of calls that a deployment accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallIdForm {
    /// Exactly nine letters and digits (Mistral).
    Nine,
}

/// The way to send instructions in the middle of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instructions {
    /// In a message of the role `system`.
    System,
    /// In a message of the role `developer`, and so are those before the conversation.
    Developer,
    /// In a user message, between tags ([`wrap_instructions`]).
    Wrapped,
}

impl Dialect {
    /// Returns the model's name in bodies, for the model chosen as `name`.
    pub(crate) fn name_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(name)
    }

    /// Returns whether nothing differs; then nothing is stored.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Wraps instructions for protocols without a role for them in the middle of a conversation.
#[must_use]
pub fn wrap_instructions(text: &str) -> String {
    format!("<system-update>\n{text}\n</system-update>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_stores_nothing_and_names_are_stable() {
        assert_eq!(serde_json::to_string(&Dialect::default()).unwrap(), "{}");
        let text = r#"{"stateKey":"xai","instructions":"developer","maxTokensField":"max_completion_tokens","omit":["temperature"]}"#;
        let dialect: Dialect = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&dialect).unwrap(), text);
        assert!(!dialect.is_default());
    }
}
