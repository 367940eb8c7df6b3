//! The agents that turns run as. A turn samples one at its start, and its calls keep it.

use std::collections::BTreeMap;

use domain::{ErrorCode, Permitted, SessionError};
use settings::Effective;

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name, which prompts choose.
    pub name: String,
    /// Its purpose, for people.
    pub description: String,
    /// The instructions at the beginning of every request.
    pub instructions: String,
    /// The tools that it is offered and may use.
    pub tools: Permitted,
    /// The skills that it is shown and may load.
    pub skills: Permitted,
    /// The most turns in a row without new input; `None` uses the default of the settings.
    pub steps: Option<i32>,
}

/// All agents, with the default one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agents {
    default: Agent,
    others: BTreeMap<String, Agent>,
    /// Why some names cannot be used, or none that is unknown: mistakes in the project's files.
    refused: BTreeMap<String, String>,
    why_unknown: Option<String>,
}

impl Default for Agents {
    /// Returns the agents of a Location for which nobody has set anything.
    fn default() -> Self {
        Self::from(&Effective::default())
    }
}

impl Agents {
    /// Returns a set of one agent, which is the default.
    #[must_use]
    pub fn of(default: Agent) -> Self {
        Self { default, others: BTreeMap::new(), refused: BTreeMap::new(), why_unknown: None }
    }

    /// Refuses agents by their names, each for its reason, and says why one may be unknown.
    #[must_use]
    pub(crate) fn refusing(
        self,
        refused: BTreeMap<String, String>,
        why_unknown: Option<String>,
    ) -> Self {
        Self { refused, why_unknown, ..self }
    }

    /// Adds an agent, or replaces the one of the same name.
    #[must_use]
    pub fn with(mut self, agent: Agent) -> Self {
        if agent.name == self.default.name {
            self.default = agent;
        } else {
            self.others.insert(agent.name.clone(), agent);
        }
        self
    }

    /// Returns all agents, the default first, then by name.
    pub fn iter(&self) -> impl Iterator<Item = &Agent> {
        std::iter::once(&self.default).chain(self.others.values())
    }

    /// Returns an agent by its name.
    ///
    /// # Errors
    /// `session.agent_unknown` when there is none, or its file cannot be read.
    pub fn get(&self, name: &str) -> Result<&Agent, SessionError> {
        let is_usable = |agent: &&Agent| !self.refused.contains_key(&agent.name);
        let found = self.iter().filter(is_usable).find(|agent| agent.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self.iter().filter(is_usable).map(|agent| agent.name.as_str()).collect();
            let known = known.join(", ");
            let why = self.refused.get(name).or(self.why_unknown.as_ref());
            let message = match why {
                Some(why) => format!(
                    "the agent `{name}` cannot be used: {why}, or send a prompt that chooses another one (there is {known})"
                ),
                None => format!(
                    "there is no agent `{name}` (there is {known}): send a prompt that chooses one of them"
                ),
            };
            SessionError { code: ErrorCode::SessionAgentUnknown.into(), message }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_may_do_everything_and_others_only_look() {
        let agents = Agents::default();
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["build", "explore", "general", "plan"]);
        let may = |agent: &str, tool: &str| agents.get(agent).expect("known").tools.allows(tool);
        for tool in ["glob", "grep", "read", "skill"] {
            assert!(["build", "explore", "general", "plan"].iter().all(|agent| may(agent, tool)));
        }
        for tool in ["write", "edit", "shell", "what comes later"] {
            assert!(may("build", tool) && may("general", tool), "{tool}");
            assert!(!may("plan", tool) && !may("explore", tool), "{tool}");
        }
    }

    #[test]
    fn an_unknown_one_is_an_error_that_names_those_there_are() {
        let error = Agents::default().get("review").expect_err("unknown");
        assert_eq!(error.code, ErrorCode::SessionAgentUnknown);
        assert!(
            error.message.contains("`review` (there is build, explore, general, plan)"),
            "{error:?}"
        );
    }

    #[test]
    fn one_of_the_same_name_gives_way() {
        let agents = Agents::default();
        let other = Agent { steps: Some(3), ..agents.get("build").expect("known").clone() };
        let agents = agents.with(other.clone()).with(Agent { name: "plan".into(), ..other });
        assert_eq!(agents.iter().map(|agent| agent.steps).filter(Option::is_some).count(), 2);
    }
}
