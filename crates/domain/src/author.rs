use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who did something through the interface: created a session, sent a prompt, interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// The id of the API key or of the login that was used. Not the key.
    pub key: String,
    /// The person or service account that it is of. Older builds did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

impl Author {
    /// The author of whom only the key is known.
    #[must_use]
    pub fn of_key(key: impl Into<String>) -> Self {
        Self { key: key.into(), actor: None }
    }

    /// Whom usage and limits count it for: the person or service account, else the key.
    #[must_use]
    pub fn person(&self) -> &str {
        self.actor.as_deref().unwrap_or(&self.key)
    }
}
