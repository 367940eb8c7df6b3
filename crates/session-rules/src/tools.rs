use std::collections::BTreeMap;

use domain::{Permitted, ToolClass};
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
    /// What of them is offered to an agent that may use `permitted`.
    pub(crate) fn offered<'a>(
        &'a self,
        permitted: &'a Permitted,
    ) -> impl Iterator<Item = &'a ToolDefinition> {
        self.definitions.iter().filter(|tool| permitted.allows(&tool.name))
    }

    /// The class of a tool. One that we do not have has no body: *pure*.
    #[must_use]
    pub fn class(&self, tool: &str) -> ToolClass {
        self.classes.get(tool).copied().unwrap_or(ToolClass::Pure)
    }
}
