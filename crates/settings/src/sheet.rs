use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::agent::AgentChange;
use crate::command::CommandDefinition;
use crate::rules::Rule;

/// The entries of one layer that count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sheet {
    pub(crate) rules: Vec<Rule>,
    pub(crate) agents: BTreeMap<String, AgentChange>,
    pub(crate) commands: BTreeMap<String, CommandDefinition>,
    pub(crate) default_agent: Option<String>,
    pub(crate) bounds: SheetBounds,
    /// Actions that projects may allow. Only the organisation's counts.
    pub(crate) projects_may_allow: Vec<String>,
}

/// The bounds of one layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SheetBounds {
    pub(crate) steps: Option<u32>,
    pub(crate) auto: Option<bool>,
    pub(crate) buffer: Option<u64>,
    pub(crate) keep: Option<u64>,
    pub(crate) answer: Option<u64>,
    pub(crate) titles: Option<bool>,
    /// How long an answer is waited for. Only the organisation's counts.
    pub(crate) ask_hours: Option<u32>,
    /// Only the organisation's counts.
    pub(crate) retries: Option<u32>,
}

impl Sheet {
    /// Returns how many permission rules there are, with those of agents.
    pub(crate) fn count_rules(&self) -> usize {
        let of_agents = self.agents.values().map(|agent| agent.rules.len());
        self.rules.len() + of_agents.sum::<usize>()
    }

    /// Adds the entries of a text that comes later and wins.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self { mut rules, agents, commands, default_agent, bounds, mut projects_may_allow } =
            later;
        self.rules.append(&mut rules);
        for (name, change) in agents {
            self.agents.entry(name).or_default().merge(change);
        }
        self.commands.extend(commands);
        self.default_agent = default_agent.or(self.default_agent.take());
        self.bounds = SheetBounds {
            steps: bounds.steps.or(self.bounds.steps),
            auto: bounds.auto.or(self.bounds.auto),
            buffer: bounds.buffer.or(self.bounds.buffer),
            keep: bounds.keep.or(self.bounds.keep),
            answer: bounds.answer.or(self.bounds.answer),
            titles: bounds.titles.or(self.bounds.titles),
            ask_hours: bounds.ask_hours.or(self.bounds.ask_hours),
            retries: bounds.retries.or(self.bounds.retries),
        };
        self.projects_may_allow.append(&mut projects_may_allow);
    }
}
