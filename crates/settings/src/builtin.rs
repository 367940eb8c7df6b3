//! The agents, commands and rules that every Location has.

use domain::{Permitted, RuleAction, ToolRule};

use crate::agent::{AgentDefinition, AgentMode};
use crate::command::CommandDefinition;
use crate::permissions::{Layer, LayeredRule};

/// The agent of a session that has not chosen one.
pub(crate) const DEFAULT_AGENT: &str = "build";

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

const EXPLORE: &str = "\
You are OpenCode, a coding agent that finds things out in a workspace. You can look at everything in it and change \
nothing.
Search widely first, then read what matters. Several independent calls may be made at once.
Answer the question that you were given with the facts that you found, each with its file and line. Say what you \
did not find. Be brief and use plain text.";

const INIT: &str = "\
Look at this project and write an `AGENTS.md` at its top for the coding agents that will work here: how to build it, \
how to run its checks and one single test, and the conventions of its code that cannot be seen in one file. If there \
is one, keep what is right in it and improve the rest. At most 150 lines.

$ARGUMENTS";

/// The tools of an agent that only looks.
const LOOKING: [&str; 5] = ["glob", "grep", "read", "skill", "webfetch"];
/// The tools of an agent that looks, and plans with a person.
const PLANNING: [&str; 8] =
    ["glob", "grep", "question", "read", "skill", "todoread", "todowrite", "webfetch"];

/// Texts of the agents that the service works with itself: it has its own, so these say only that they are there.
const OF_THE_SERVICE: [(&str, &str); 3] = [
    ("compaction", "Summarises a conversation that is too long."),
    ("summary", "Sums up the changes of a session."),
    ("title", "Gives a session its title."),
];

pub(crate) fn agents() -> Vec<AgentDefinition> {
    let build = AgentDefinition {
        name: DEFAULT_AGENT.to_owned(),
        description: "Works in the workspace: reads, changes and runs what is needed.".to_owned(),
        mode: AgentMode::Primary,
        hidden: false,
        layer: Layer::BuiltIn,
        instructions: BUILD.to_owned(),
        tools: Permitted::All,
        steps: None,
        model: None,
        color: None,
        unreadable: None,
    };
    let plan = AgentDefinition {
        name: "plan".to_owned(),
        description: "Looks at the workspace and says how to go about something; changes nothing."
            .to_owned(),
        instructions: PLAN.to_owned(),
        tools: Permitted::only(PLANNING),
        ..build.clone()
    };
    let general = AgentDefinition {
        name: "general".to_owned(),
        description: "Works on a task of its own that takes several steps, and reports.".to_owned(),
        mode: AgentMode::Subagent,
        ..build.clone()
    };
    let explore = AgentDefinition {
        name: "explore".to_owned(),
        description: "Finds things out in the workspace and reports; changes nothing.".to_owned(),
        mode: AgentMode::Subagent,
        instructions: EXPLORE.to_owned(),
        tools: Permitted::only(LOOKING),
        ..build.clone()
    };
    let hidden = OF_THE_SERVICE.map(|(name, description)| AgentDefinition {
        name: name.to_owned(),
        description: description.to_owned(),
        hidden: true,
        instructions: String::new(),
        tools: Permitted::NOTHING.clone(),
        ..build.clone()
    });
    [build, plan, general, explore].into_iter().chain(hidden).collect()
}

/// Returns the agent that a layer's new one begins as: `build` without its description.
pub(crate) fn new_agent(name: &str, layer: Layer) -> AgentDefinition {
    AgentDefinition {
        name: name.to_owned(),
        description: String::new(),
        mode: AgentMode::All,
        hidden: false,
        layer,
        instructions: BUILD.to_owned(),
        tools: Permitted::All,
        steps: None,
        model: None,
        color: None,
        unreadable: None,
    }
}

pub(crate) fn commands() -> Vec<CommandDefinition> {
    vec![CommandDefinition {
        name: "init".to_owned(),
        description: "Writes an AGENTS.md for this project.".to_owned(),
        agent: None,
        model: None,
        subtask: false,
        template: INIT.to_owned(),
        layer: Layer::BuiltIn,
    }]
}

/// Everything is allowed. Asked is only for files that often hold secrets, and for calls that go in circles. Nobody is asked about
/// files outside of the Location: the file tools reach none, and commands see those of their sandbox.
pub(crate) fn rules() -> Vec<LayeredRule> {
    let rules = [
        ("*", "*", RuleAction::Allow),
        ("read", "*.env", RuleAction::Ask),
        ("read", "*.env.*", RuleAction::Ask),
        ("read", "*.env.example", RuleAction::Allow),
        ("doom_loop", "*", RuleAction::Ask),
    ];
    let layered = rules.map(|(permission, pattern, action)| LayeredRule {
        rule: ToolRule { permission: permission.to_owned(), pattern: pattern.to_owned(), action },
        layer: Layer::BuiltIn,
        agent: None,
        widens: false,
        source: Layer::BuiltIn.to_string(),
    });
    layered.into()
}
