//! The agents that turns run as. A turn samples one at its start, and its calls keep it.

use std::collections::BTreeMap;

use domain::{ErrorCode, Permitted, SessionError};

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
}

const BUILD: &str = "\
You are OpenCode, a coding agent that works in a workspace through tools.
Do what the user asks, completely, and no more than that. Look before you change: read the files that \
matter, follow the conventions that you find, and keep changes small.
Use the tools to act; several independent calls may be made at once. When something can be checked by \
running it, run it. A tool result that says its outcome is unknown may have had its effect: look before \
you repeat it.
Answer briefly and in plain text. Say what you did, what you saw, and what is left.";

const PLAN: &str = "\
You are OpenCode, a coding agent that plans work in a workspace. You can look at everything in it and change \
nothing: you have no tools that write or run anything, and do not ask for any.
Look at the files that matter before you say how something is or could be done. Several independent calls \
may be made at once.
Answer with a plan that somebody can carry out without having seen what you saw: what to change and where, in \
which order, how to check it, and what you are not sure of. Be brief and use plain text.";

/// The tools of `plan`, which only look.
const LOOKING: [&str; 4] = ["glob", "grep", "read", "skill"];

impl Default for Agents {
    /// Returns `build`, which may do everything, and `plan`, which may only look.
    fn default() -> Self {
        let build = Agent {
            name: "build".into(),
            description: "Works in the workspace: reads, changes and runs what is needed.".into(),
            instructions: BUILD.into(),
            tools: Permitted::All,
            skills: Permitted::All,
            steps: None,
        };
        let plan = Agent {
            name: "plan".into(),
            description:
                "Looks at the workspace and says how to go about something; changes nothing.".into(),
            instructions: PLAN.into(),
            tools: Permitted::only(LOOKING),
            ..build.clone()
        };
        Self::of(build).with(plan)
    }
}

impl Agents {
    /// Returns a set of one agent, which is the default.
    #[must_use]
    pub fn of(default: Agent) -> Self {
        Self { default, others: BTreeMap::new() }
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
    /// `session.agent_unknown` when there is none.
    pub fn get(&self, name: &str) -> Result<&Agent, SessionError> {
        self.iter().find(|agent| agent.name == name).ok_or_else(|| {
            let known: Vec<_> = self.iter().map(|agent| agent.name.as_str()).collect();
            SessionError {
                code: ErrorCode::SessionAgentUnknown.into(),
                message: format!(
                    "there is no agent `{name}` (there is {}): send a prompt that chooses one of them",
                    known.join(", ")
                ),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_that_may_do_everything_and_one_that_only_looks() {
        let agents = Agents::default();
        let names: Vec<_> = agents.iter().map(|agent| agent.name.as_str()).collect();
        assert_eq!(names, ["build", "plan"]);
        let may = |agent: &str, tool: &str| agents.get(agent).expect("known").tools.allows(tool);
        for tool in ["glob", "grep", "read", "skill"] {
            assert!(may("build", tool) && may("plan", tool), "{tool}");
        }
        for tool in ["write", "edit", "shell", "what comes later"] {
            assert!(may("build", tool) && !may("plan", tool), "{tool}");
        }
    }

    #[test]
    fn an_unknown_one_is_an_error_that_names_those_there_are() {
        let error = Agents::default().get("review").expect_err("unknown");
        assert_eq!(error.code, ErrorCode::SessionAgentUnknown);
        assert!(error.message.contains("`review` (there is build, plan)"), "{error:?}");
    }

    #[test]
    fn one_of_the_same_name_gives_way() {
        let agents = Agents::default();
        let other = Agent { steps: Some(3), ..agents.get("build").expect("known").clone() };
        let agents = agents.with(other.clone()).with(Agent { name: "plan".into(), ..other });
        assert_eq!(agents.iter().map(|agent| agent.steps).collect::<Vec<_>>(), [Some(3), Some(3)]);
    }
}
