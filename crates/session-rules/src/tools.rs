use std::collections::BTreeMap;

use domain::{Permitted, ToolClass, ToolRule};
use llm_protocol::ToolDefinition;

use crate::permission;

/// The tools of a drain, as far as decisions need them.
#[derive(Debug, Clone, Default)]
pub struct ToolFacts {
    /// The definitions for providers, in an order that never changes.
    pub definitions: Vec<ToolDefinition>,
    /// The actions that a takeover may take with a started call, by the tool's name.
    pub classes: BTreeMap<String, ToolClass>,
}

impl ToolFacts {
    /// Returns the tools for an agent that may use `permitted`, less those that the session's rules refuse altogether.
    pub(crate) fn offered<'a>(
        &'a self,
        permitted: &'a Permitted,
        rules: &'a [ToolRule],
    ) -> impl Iterator<Item = &'a ToolDefinition> {
        let may = |tool: &str| permitted.allows(tool) && !permission::is_shut(rules, tool);
        self.definitions.iter().filter(move |tool| may(&tool.name))
    }

    /// Returns the class of a tool. An unknown tool has no body, so it is *pure*.
    #[must_use]
    pub fn class(&self, tool: &str) -> ToolClass {
        self.classes.get(tool).copied().unwrap_or(ToolClass::Pure)
    }
}
