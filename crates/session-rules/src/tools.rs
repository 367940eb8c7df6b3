use std::collections::BTreeMap;

use domain::{Need, Permitted, ToolClass};
use llm_protocol::ToolDefinition;

use crate::permission::Layers;

/// The tools of a drain, as far as decisions need them.
#[derive(Debug, Clone, Default)]
pub struct ToolFacts {
    /// The definitions for providers, in an order that never changes.
    pub definitions: Vec<ToolDefinition>,
    /// The actions that a takeover may take with a started call, by the tool's name.
    pub classes: BTreeMap<String, ToolClass>,
    /// Reads the needs of a call.
    pub needs: ReadNeeds,
}

/// Reads what a call asks leave for, from its text alone: the tool, the arguments, and the session's directory.
/// Without anything better, that is leave for the tool.
#[derive(Debug, Clone, Copy)]
pub struct ReadNeeds(pub fn(&str, &str, &str) -> Vec<Need>);

impl Default for ReadNeeds {
    fn default() -> Self {
        Self(|tool, _, _| vec![Need::whole(tool)])
    }
}

impl ToolFacts {
    /// Returns the tools for an agent that may use `permitted`, less those that the rules refuse altogether.
    pub(crate) fn offered<'a>(
        &'a self,
        permitted: &'a Permitted,
        rules: Layers<'a>,
    ) -> impl Iterator<Item = &'a ToolDefinition> {
        let may = move |tool: &str| permitted.allows(tool) && !rules.is_shut(tool);
        self.definitions.iter().filter(move |tool| may(&tool.name))
    }

    /// Returns the class of a tool. An unknown tool has no body, so it is *pure*.
    #[must_use]
    pub fn class(&self, tool: &str) -> ToolClass {
        self.classes.get(tool).copied().unwrap_or(ToolClass::Pure)
    }
}
