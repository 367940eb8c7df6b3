use domain::{ModelRef, Permitted, words};
use serde::{Deserialize, Serialize};

use crate::permissions::Layer;
use crate::rules::Rule;

words! {
    /// Where an agent can be chosen.
    pub enum AgentMode {
        /// By people, for a session.
        Primary = "primary",
        /// By other agents, for a task.
        Subagent = "subagent",
        /// By both.
        All = "all",
    }
}

/// An agent as the settings define it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AgentDefinition {
    /// Its name, which prompts choose.
    pub name: String,
    /// Its purpose, for people.
    pub description: String,
    /// Where it can be chosen.
    pub mode: AgentMode,
    /// Whether lists leave it out and nobody chooses it: it works for the service itself.
    pub hidden: bool,
    /// The layer that made it.
    pub layer: Layer,
    /// The instructions at the beginning of every request.
    pub instructions: String,
    /// The tools that it has at most, whatever rules say.
    pub tools: Permitted,
    /// The most turns in a row without new input; `None` uses the bound of the settings.
    pub steps: Option<u32>,
    /// The model of a prompt that chooses this agent and no model.
    pub model: Option<ModelRef>,
    /// Its colour in clients, as it is written.
    pub color: Option<String>,
    /// Why nobody can choose it: its file cannot be read, so that nobody knows what it may do. With the file and the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// The changes of one layer to an agent, or a new agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct AgentChange {
    pub(crate) description: Option<String>,
    pub(crate) mode: Option<AgentMode>,
    pub(crate) hidden: Option<bool>,
    pub(crate) disabled: Option<bool>,
    pub(crate) instructions: Option<String>,
    pub(crate) steps: Option<u32>,
    pub(crate) model: Option<ModelRef>,
    pub(crate) color: Option<String>,
    pub(crate) rules: Vec<Rule>,
    /// Why its instructions cannot be read, with the place. The project's settings keep it, and no row does.
    #[serde(skip)]
    pub(crate) lost: Option<String>,
}

impl AgentChange {
    /// Adds the changes of a text that comes later.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            description,
            mode,
            hidden,
            disabled,
            instructions,
            steps,
            model,
            color,
            mut rules,
            lost,
        } = later;
        self.description = description.or(self.description.take());
        self.mode = mode.or(self.mode);
        self.hidden = hidden.or(self.hidden);
        self.disabled = disabled.or(self.disabled);
        self.instructions = instructions.or(self.instructions.take());
        self.steps = steps.or(self.steps);
        self.model = model.or(self.model.take());
        self.color = color.or(self.color.take());
        self.rules.append(&mut rules);
        self.lost = lost.or(self.lost.take());
    }
}
