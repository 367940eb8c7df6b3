use std::collections::BTreeMap;

use domain::ToolClass;
use llm_protocol::ToolDefinition;

/// The tools of a drain, as far as a decision needs to know.
#[derive(Debug, Clone, Default)]
pub struct ToolFacts {
    /// What providers are told, in an order that never changes.
    pub definitions: Vec<ToolDefinition>,
    /// What a takeover may do with a started call, by the tool's name.
    pub classes: BTreeMap<String, ToolClass>,
}

impl ToolFacts {
    /// The class of a tool. One that we do not have has no body: *pure*.
    #[must_use]
    pub fn class(&self, tool: &str) -> ToolClass {
        self.classes.get(tool).copied().unwrap_or(ToolClass::Pure)
    }
}
