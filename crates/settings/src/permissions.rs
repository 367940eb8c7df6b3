use domain::{RuleAction, ToolRule, words};
use serde::Serialize;

words! {
    /// The origin of a setting. Later layers come after earlier ones.
    #[derive(PartialOrd, Ord, Default)]
    pub enum Layer {
        /// Built into the service.
        #[default]
        BuiltIn = "built-in",
        /// Set by an administrator of the organisation.
        Organisation = "organisation",
        /// Written in a file of the project.
        Project = "project",
    }
}

/// A permission rule with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayeredRule {
    /// The rule. Its name and its pattern are as they were written.
    pub rule: ToolRule,
    /// Where it comes from.
    pub layer: Layer,
    /// The agent whose calls it is about; `None`: every agent's.
    pub agent: Option<String>,
    /// Whether a project's *allow* turns *ask* into *allow*, because the organisation leaves this action to projects.
    pub widens: bool,
    /// Its place, for people: `opencode.json:12`, `built-in`, `organisation:3`.
    pub source: String,
}

/// A mistake in a settings file of the project, because of which rules of it may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its file and line, for people: `opencode.json:12`.
    pub source: String,
    /// One sentence about it.
    pub message: String,
}

/// The permission rules of a Location, for all of its agents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Permissions {
    /// In the order in which the last match of a layer decides: by layer, each layer's rules about every agent before
    /// those about one.
    rules: Vec<LayeredRule>,
    /// The mistakes of the project's files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
}

/// The decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement<'r> {
    /// The decision.
    pub action: RuleAction,
    /// The rule that decided; `None`: no rule matches, and the call is allowed.
    pub rule: Option<&'r LayeredRule>,
}

impl Permissions {
    pub(crate) fn new(mut rules: Vec<LayeredRule>, faults: Vec<Fault>) -> Self {
        rules.sort_by_key(|rule| (rule.layer, rule.agent.is_some()));
        Self { rules, faults }
    }

    /// Returns the mistakes of the project's files. While there is one, no call runs without a person's leave: nobody knows
    /// which rules are missing.
    #[must_use]
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns all rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = &LayeredRule> {
        self.rules.iter()
    }

    /// Returns the rules about an agent's calls, in order.
    pub fn of_agent<'r>(
        &'r self,
        agent: &'r str,
    ) -> impl DoubleEndedIterator<Item = &'r LayeredRule> {
        self.rules.iter().filter(move |rule| rule.agent.as_deref().is_none_or(|of| of == agent))
    }

    /// Decides about a call of an agent. `matches` says whether a rule is about the call.
    ///
    /// Of the built-in rules and the organisation's the last that matches decides. The project's last one that matches can
    /// only make that stricter, except where it [widens](LayeredRule::widens): then it turns *ask* into *allow*.
    #[must_use]
    pub fn judge<'r>(
        &'r self,
        agent: &'r str,
        matches: impl Fn(&ToolRule) -> bool,
    ) -> Judgement<'r> {
        let last = |of_project: bool| {
            let of_layer = |rule: &&LayeredRule| (rule.layer == Layer::Project) == of_project;
            self.of_agent(agent).rev().filter(of_layer).find(|rule| matches(&rule.rule))
        };
        let (trusted, project) = (last(false), last(true));
        let action = trusted.map_or(RuleAction::Allow, |rule| rule.rule.action);
        let trusted = Judgement { action, rule: trusted };
        let Some(project) = project else { return trusted };
        let counts = match (project.rule.action, trusted.action) {
            (RuleAction::Deny, RuleAction::Allow | RuleAction::Ask)
            | (RuleAction::Ask, RuleAction::Allow) => true,
            (RuleAction::Allow, RuleAction::Ask) => project.widens,
            (RuleAction::Allow, RuleAction::Allow | RuleAction::Deny)
            | (RuleAction::Ask, RuleAction::Ask | RuleAction::Deny)
            | (RuleAction::Deny, RuleAction::Deny) => false,
        };
        if counts {
            Judgement { action: project.rule.action, rule: Some(project) }
        } else {
            trusted
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(layer: Layer, permission: &str, action: RuleAction, widens: bool) -> LayeredRule {
        let rule = ToolRule { permission: permission.into(), pattern: "*".into(), action };
        LayeredRule { rule, layer, agent: None, widens, source: String::new() }
    }

    #[test]
    fn a_project_makes_stricter_and_never_wider() {
        use RuleAction::{Allow, Ask, Deny};
        for (organisation, project, widens, expected) in [
            (Allow, Allow, false, Allow),
            (Allow, Ask, false, Ask),
            (Allow, Deny, false, Deny),
            (Ask, Allow, false, Ask),
            (Ask, Allow, true, Allow),
            (Ask, Deny, true, Deny),
            (Deny, Allow, true, Deny),
            (Deny, Ask, true, Deny),
        ] {
            let rules = vec![
                rule(Layer::Project, "shell", project, widens),
                rule(Layer::Organisation, "shell", organisation, false),
            ];
            let judged = Permissions::new(rules, Vec::new());
            let judged = judged.judge("build", |_| true);
            assert_eq!(judged.action, expected, "{organisation} {project} {widens}");
        }
    }

    #[test]
    fn what_no_rule_is_about_is_allowed() {
        let none = Permissions::default();
        assert_eq!(none.judge("build", |_| true).action, RuleAction::Allow);
        let some = Permissions::new(
            vec![rule(Layer::Project, "shell", RuleAction::Deny, false)],
            Vec::new(),
        );
        let judged = some.judge("build", |rule| rule.permission == "edit");
        assert_eq!(judged, Judgement { action: RuleAction::Allow, rule: None });
    }
}
