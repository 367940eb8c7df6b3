use serde::{Deserialize, Serialize};

/// Who did something through the interface: created a session, sent a prompt, interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The id of the API key that was used. Not the key.
    pub key: String,
}

impl Author {
    /// Whom usage and limits count it for.
    #[must_use]
    pub fn person(&self) -> &str {
        &self.key
    }
}
