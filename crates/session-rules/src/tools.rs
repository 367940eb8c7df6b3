use std::collections::{BTreeMap, BTreeSet};

use domain::{Need, Permitted, ToolClass, TurnId, meant_tool};
use llm_protocol::{LlmEvent, ToolCall, ToolDefinition};

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

/// The tools that are others than those that a turn was offered: another release or a reload has come between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedTools {
    /// The turn.
    pub turn: TurnId,
    names: BTreeSet<String>,
}

impl ChangedTools {
    /// Returns whether a call of `turn` would meet another tool than the model meant.
    pub(crate) fn has(&self, turn: &TurnId, tool: &str) -> bool {
        self.turn == *turn && self.names.contains(tool)
    }
}

impl ToolFacts {
    /// Returns an event of a stream with the tool that a call means in place of the name that the model has for it. From here on
    /// it is that tool: in the log, in the rules, and in what the model is shown of its own call.
    #[must_use]
    pub fn name_tool_of(&self, event: LlmEvent) -> LlmEvent {
        let LlmEvent::ToolCall(call) = event else { return event };
        if call.provider_executed {
            return LlmEvent::ToolCall(call);
        }
        let known = self.classes.keys().map(String::as_str);
        let name = meant_tool(&call.name, &call.arguments, &known).map(str::to_owned);
        LlmEvent::ToolCall(ToolCall { name: name.unwrap_or(call.name), ..call })
    }

    /// Returns the tools for an agent that may use `permitted`, less those that the rules refuse altogether.
    pub(crate) fn offered<'a>(
        &'a self,
        permitted: &'a Permitted,
        rules: Layers<'a>,
    ) -> impl Iterator<Item = &'a ToolDefinition> {
        let may = move |tool: &str| permitted.allows(tool) && !rules.is_shut(tool);
        self.definitions.iter().filter(move |tool| may(&tool.name))
    }

    /// Compares the tools of now with those that `turn` was `offered`.
    #[must_use]
    pub fn since(&self, turn: TurnId, offered: &[ToolDefinition]) -> ChangedTools {
        let others = |from: &[ToolDefinition], than: &[ToolDefinition]| -> Vec<String> {
            let changed = from.iter().filter(|tool| !than.contains(tool));
            changed.map(|tool| tool.name.clone()).collect()
        };
        let (gone, new) = (others(offered, &self.definitions), others(&self.definitions, offered));
        ChangedTools { turn, names: gone.into_iter().chain(new).collect() }
    }

    /// Returns the class of a tool. An unknown tool has no body, so it is *pure*.
    #[must_use]
    pub fn class(&self, tool: &str) -> ToolClass {
        self.classes.get(tool).copied().unwrap_or(ToolClass::Pure)
    }
}
