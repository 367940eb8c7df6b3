use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{PartId, words};

words! {
    /// The way in which an admitted prompt joins a busy session.
    #[derive(Default)]
    pub enum Delivery {
        /// Joins the running work at the next Safe Provider-Turn Boundary.
        #[default]
        Steer = "steer",
        /// Waits until the running work has ended, one at a time.
        Queue = "queue",
    }
}

/// One part of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum PromptPart {
    /// Plain text.
    Text {
        /// The part's id, fixed at admission.
        id: PartId,
        /// The user's text.
        text: String,
    },
}

/// A model by provider and name, as clients choose it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ModelRef {
    /// The provider's id, such as `openai`.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// The model's variant, such as `high`; `None` is the plain model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl ModelRef {
    /// Returns a model without a variant.
    #[must_use]
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), variant: None }
    }
}
