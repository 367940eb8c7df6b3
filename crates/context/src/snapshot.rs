use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The values last admitted to a turn, by source. The model never sees it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextSnapshot(pub BTreeMap<String, SourceState>);

/// One source in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// The value, as its source's codec wrote it.
    pub value: Value,
    /// What to say should the source disappear; rendered in advance, since its code may be gone then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
}

impl ContextSnapshot {
    /// Reads a stored snapshot.
    ///
    /// # Errors
    /// When the text is not one.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// As it is stored.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(&self.0).expect("a snapshot holds only JSON values")
    }
}
