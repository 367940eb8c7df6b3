//! How a deployment of a protocol differs from the protocol: data, so that a provider is no code.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What a provider or model does otherwise than its protocol says. The default is the protocol's owner itself.
///
/// It shapes the bytes that are sent, so it is stored with the request (and nothing of it when it is the default).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Dialect {
    /// The name under which provider state is kept and found again: what one provider sent is not shown to another
    /// that speaks the same protocol. None: the protocol's own ([`crate::Protocol::state_key`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_key: Option<String>,
    /// The model's name in bodies, where the deployment has another for it than the one by which it is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How instructions in the middle of a conversation are sent. None: as the protocol's owner has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// The name of the bound on an answer's tokens, where it is not the protocol's (`max_completion_tokens`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens_field: Option<String>,
    /// The field of an assistant message that takes its reasoning back (`reasoning_content`, `reasoning_details`).
    /// Chat only; without it reasoning is not sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_field: Option<String>,
    /// Marks for the prompt cache are sent in the messages, as Anthropic has them. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub inline_cache: bool,
    /// The deployment finds its cache by `prompt_cache_key`: requests of one conversation should have the same one. Who
    /// knows the conversation asks for it; an encoder does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cache_key: bool,
    /// Which ids of calls the deployment takes. None: any. Chat only; the other protocols know their owners'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_ids: Option<CallIdForm>,
    /// After results the deployment wants an answer of the model before anything of the user. Chat only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub answers_results: bool,
    /// Fields of the body that the deployment refuses: left out whoever asks for them (`temperature`,
    /// `stream_options`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub omit: Vec<String>,
    /// Compatibility body fields: added to every body, below what the request asks for.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
}

/// Which ids of calls a deployment takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallIdForm {
    /// Exactly nine letters and digits, as Mistral has them.
    Nine,
}

/// How instructions in the middle of a conversation are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Instructions {
    /// In a message of the role `system`.
    System,
    /// In a message of the role `developer`; those before the conversation too.
    Developer,
    /// In a user message, between tags ([`wrap_instructions`]).
    Wrapped,
}

impl Dialect {
    /// What a body calls the model that is chosen as `name`.
    pub(crate) fn name_of<'a>(&'a self, name: &'a str) -> &'a str {
        self.model.as_deref().unwrap_or(name)
    }

    /// Whether nothing differs: then nothing is stored.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The fallback where a protocol has no role for instructions in the middle of a conversation.
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
