use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The values that the model last received, by source. The model never sees it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContextSnapshot(pub BTreeMap<String, SourceState>);

/// One source in a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceState {
    /// The value, as serialised by its source.
    pub value: Value,
    /// The text to send if the source disappears. Rendered in advance, because its code may be gone by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal: Option<String>,
}

impl ContextSnapshot {
    /// Reads a stored snapshot.
    ///
    /// # Errors
    /// The text is not a snapshot.
    pub fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Returns the stored form.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(&self.0).expect("a snapshot holds only JSON values")
    }
}
