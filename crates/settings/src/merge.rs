//! Adds the layers to the built-in settings, one after the other.

use std::collections::{BTreeMap, BTreeSet};

use domain::{Permitted, RuleAction, rule_names};

use crate::agent::{AgentChange, AgentDefinition, AgentMode};
use crate::builtin::{self, DEFAULT_AGENT};
use crate::diagnostic::{Diagnostic, Severity};
use crate::permissions::{Layer, LayeredRule};
use crate::rules::{Rule, action_of};
use crate::sheet::Sheet;

/// The tools that an agent can be given, by their own names.
const TOOLS: [&str; 12] = [
    "apply_patch",
    "edit",
    "glob",
    "grep",
    "question",
    "read",
    "shell",
    "skill",
    "todoread",
    "todowrite",
    "webfetch",
    "write",
];
/// The most agents, and the most commands, of a Location.
pub(crate) const MAX_NAMED: usize = 500;

/// The settings while layers are added.
pub(crate) struct Merging {
    pub(crate) agents: BTreeMap<String, AgentDefinition>,
    disabled: BTreeSet<String>,
    pub(crate) rules: Vec<LayeredRule>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

impl Merging {
    pub(crate) fn new(diagnostics: Vec<Diagnostic>) -> Self {
        let agents = builtin::agents().into_iter();
        Self {
            agents: agents.map(|agent| (agent.name.clone(), agent)).collect(),
            disabled: BTreeSet::new(),
            rules: builtin::rules(),
            diagnostics,
        }
    }

    pub(crate) fn add(&mut self, sheet: &Sheet, layer: Layer, may_allow: &BTreeSet<&str>) {
        self.add_rules(&sheet.rules, None, layer, may_allow);
        for (name, change) in &sheet.agents {
            if self.disabled.contains(name) {
                self.note(format!("the organisation has disabled the agent `{name}`"));
                continue;
            }
            let known = self.agents.get(name);
            if layer == Layer::Project && known.is_some_and(|agent| agent.hidden) {
                self.note(format!(
                    "the agent `{name}` works for the service itself: a project does not change it"
                ));
                continue;
            }
            if known.is_none() && self.agents.len() >= MAX_NAMED {
                self.note(format!("there are at most {MAX_NAMED} agents: `{name}` does not count"));
                continue;
            }
            let agent = self.agents.entry(name.clone());
            change_agent(agent.or_insert_with(|| builtin::new_agent(name, layer)), change, layer);
            if change.disabled == Some(true) {
                self.disabled.insert(name.clone());
            }
            self.add_rules(&change.rules, Some(name), layer, may_allow);
        }
    }

    fn add_rules(
        &mut self,
        rules: &[Rule],
        agent: Option<&str>,
        layer: Layer,
        may_allow: &BTreeSet<&str>,
    ) {
        for Rule { rule, path, line } in rules {
            let place = if layer == Layer::Project { path.clone() } else { layer.to_string() };
            let source = if *line > 0 { format!("{place}:{line}") } else { place };
            let is_allow = rule.action == RuleAction::Allow;
            let widens = layer == Layer::Project
                && is_allow
                && may_allow.contains(action_of(&rule.permission));
            let (rule, agent) = (rule.clone(), agent.map(str::to_owned));
            self.rules.push(LayeredRule { rule, layer, agent, widens, source });
        }
    }

    /// Makes agents unusable whose files cannot be read. Nobody knows what they may do.
    pub(crate) fn shut(&mut self, unreadable: &BTreeMap<String, String>) {
        for (name, why) in unreadable {
            let known = self.agents.get(name);
            let is_own = known.is_some_and(|agent| agent.hidden);
            if is_own
                || self.disabled.contains(name)
                || (known.is_none() && self.agents.len() >= MAX_NAMED)
            {
                continue;
            }
            let agent = self.agents.entry(name.clone());
            let agent = agent.or_insert_with(|| builtin::new_agent(name, Layer::Project));
            agent.unreadable = Some(why.clone());
        }
    }

    /// Takes the disabled agents of a layer away. Those of the organisation stay away.
    pub(crate) fn disable(&mut self) {
        let Self { agents, disabled, .. } = self;
        agents.retain(|name, _| !disabled.contains(name));
    }

    pub(crate) fn default_agent(&mut self, project: &Sheet, organisation: &Sheet) -> String {
        for name in
            [project, organisation].into_iter().filter_map(|sheet| sheet.default_agent.as_ref())
        {
            if self.agents.get(name).is_some_and(is_choice) {
                return name.clone();
            }
            self.note(format!(
                "`default_agent` is `{name}`, and there is no such agent that people can choose"
            ));
        }
        let is_default = self.agents.get(DEFAULT_AGENT).is_some_and(is_choice);
        let first = self.agents.values().find(|agent| is_choice(agent));
        match first {
            Some(agent) if !is_default => agent.name.clone(),
            Some(_) | None => DEFAULT_AGENT.to_owned(),
        }
    }

    pub(crate) fn note(&mut self, message: String) {
        let (severity, path, is_told) = (Severity::Note, String::new(), false);
        self.diagnostics.push(Diagnostic { severity, path, line: None, message, is_told });
    }
}

pub(crate) fn is_choice(agent: &AgentDefinition) -> bool {
    !agent.hidden && agent.mode != AgentMode::Subagent
}

fn change_agent(agent: &mut AgentDefinition, change: &AgentChange, layer: Layer) {
    let AgentChange {
        description,
        mode,
        hidden,
        disabled: _,
        instructions,
        steps,
        model,
        color,
        rules,
        lost: _,
    } = change;
    let set = |to: &mut String, from: &Option<String>| {
        if let Some(from) = from {
            to.clone_from(from);
        }
    };
    set(&mut agent.description, description);
    set(&mut agent.instructions, instructions);
    agent.mode = mode.unwrap_or(agent.mode);
    agent.hidden = hidden.unwrap_or(agent.hidden);
    agent.steps = match (agent.steps, *steps) {
        // A project lowers what the organisation says, and never raises it.
        (Some(old), Some(new)) if layer == Layer::Project => Some(old.min(new)),
        (old, new) => new.or(old),
    };
    agent.model = model.clone().or(agent.model.take());
    agent.color = color.clone().or(agent.color.take());
    if layer == Layer::Organisation {
        for Rule { rule, .. } in rules {
            if rule.action != RuleAction::Deny {
                give(&mut agent.tools, &rule.permission);
            }
        }
    }
}

/// Gives an agent that has only some tools those that a rule of the organisation names.
fn give(tools: &mut Permitted, name: &str) {
    if name == "*" {
        *tools = Permitted::All;
    } else if let Permitted::Only(known) = tools {
        let named = TOOLS.into_iter().filter(|tool| rule_names(tool).contains(&name));
        known.extend(named.map(str::to_owned));
    }
}
