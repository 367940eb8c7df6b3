//! The files that `read` may show, for tools that show files which their calls do not name.

use std::sync::Arc;

use domain::{Need, RuleAction, ToolRule, is_secret_path};
use settings::Permissions;

use super::{Judged, Layers, READ, is_about};
use crate::tools::ReadNeeds;

/// The tool that loads skills.
const SKILL: &str = "skill";

impl Layers<'_> {
    /// Returns whether the model may know of a skill: no rule denies it.
    pub(crate) fn shows_skill(self, name: &str) -> bool {
        let need = Need {
            action: SKILL.to_owned(),
            resources: vec![name.to_owned()],
            save: Vec::new(),
            is_opaque: false,
            guises: Vec::new(),
        };
        let layers = Self { can_ask: true, ..self };
        !matches!(layers.judge_need(SKILL, &need), Judged::Refuse(_))
    }
}

/// The rules about `read` of one call's agent and session. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadScope(Arc<Scope>);

#[derive(Debug)]
struct Scope {
    permissions: Permissions,
    agent: String,
    session: Vec<ToolRule>,
    directory: String,
    /// The patterns for which people have allowed `read` for good.
    saved: Vec<String>,
    /// Whether a rule may keep a file from being shown. Most often few patterns do.
    may_matter: bool,
}

impl ReadScope {
    pub(crate) fn new(layers: Layers<'_>, directory: &str, saved: Vec<String>) -> Self {
        let rules = layers.permissions.of_agent(layers.agent).map(|rule| &rule.rule);
        let mut strict =
            rules.chain(layers.session).filter(|rule| rule.action != RuleAction::Allow);
        let may_matter = strict.any(|rule| is_about(rule, READ));
        Self(Arc::new(Scope {
            permissions: layers.permissions.clone(),
            agent: layers.agent.to_owned(),
            session: layers.session.to_vec(),
            directory: directory.to_owned(),
            saved,
            may_matter,
        }))
    }

    /// Returns the rules of an agent in a directory, where no session is meant.
    #[must_use]
    pub fn of_directory(permissions: &Permissions, agent: &str, directory: &str) -> Self {
        let layers =
            Layers { permissions, agent, session: &[], can_ask: true, needs: ReadNeeds(none) };
        Self::new(layers, directory, Vec::new())
    }

    /// Returns whether the model may know of a skill.
    #[must_use]
    pub fn shows_skill(&self, name: &str) -> bool {
        let Scope { permissions, agent, session, .. } = &*self.0;
        let layers = Layers { permissions, agent, session, can_ask: true, needs: ReadNeeds(none) };
        layers.shows_skill(name)
    }

    /// Judges whether `read` may show a file, given by its path below the session's directory: *ask* means that a person must
    /// be asked first.
    #[must_use]
    pub fn judge(&self, path: &str) -> RuleAction {
        let Scope { permissions, agent, session, directory, saved, may_matter } = &*self.0;
        if !may_matter {
            return RuleAction::Allow;
        }
        let layers = Layers { permissions, agent, session, can_ask: true, needs: ReadNeeds(none) };
        let full = format!("{}/{path}", directory.trim_end_matches('/'));
        let need = Need {
            action: READ.to_owned(),
            resources: vec![path.to_owned(), full],
            save: Vec::new(),
            is_opaque: false,
            guises: Vec::new(),
        };
        match layers.judge_need(READ, &need) {
            Judged::Run => RuleAction::Allow,
            Judged::Refuse(_) => RuleAction::Deny,
            Judged::Ask(_) => {
                let pattern = if is_secret_path(path) { path } else { "*" };
                let is_saved = saved.iter().any(|saved| saved == pattern);
                if is_saved { RuleAction::Allow } else { RuleAction::Ask }
            }
        }
    }
}

fn none(_: &str, _: &str, _: &str) -> Vec<Need> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use settings::{OrganisationSettings, ProjectSettings, SettingsFile, effective};

    use super::*;

    fn scope(project: &str, session: &[ToolRule], saved: &[&str]) -> ReadScope {
        let (path, text) = ("opencode.json".to_owned(), project.to_owned());
        let project = ProjectSettings::parse(&[SettingsFile { path, text, more: false }]);
        let permissions = &effective(&OrganisationSettings::default(), &project).permissions;
        let needs = ReadNeeds(none);
        let layers = Layers { permissions, agent: "build", session, can_ask: true, needs };
        ReadScope::new(layers, "/w", saved.iter().map(|saved| (*saved).to_owned()).collect())
    }

    #[test]
    fn a_file_is_judged_as_read_would_judge_it() {
        let built_in = scope("{}", &[], &[]);
        for (path, action) in [
            ("a.rs", RuleAction::Allow),
            (".env", RuleAction::Ask),
            ("b/prod.env.local", RuleAction::Ask),
            (".env.example", RuleAction::Allow),
        ] {
            assert_eq!(built_in.judge(path), action, "{path}");
        }
        assert_eq!(scope("{}", &[], &[".env"]).judge(".env"), RuleAction::Allow);
        assert_eq!(scope("{}", &[], &[".env"]).judge("b/.env"), RuleAction::Ask);
        let text = r#"{"permission": {"read": {"keys/*": "deny", "/w/full": "deny"}}}"#;
        let denies = scope(text, &[], &["*"]);
        for path in ["keys/a", "keys/b/c", "full"] {
            assert_eq!(denies.judge(path), RuleAction::Deny, "{path}");
        }
        assert_eq!(denies.judge("key"), RuleAction::Allow);
        let own = ToolRule {
            permission: "read".into(),
            pattern: "*.pem".into(),
            action: RuleAction::Ask,
        };
        assert_eq!(scope("{}", std::slice::from_ref(&own), &[]).judge("x.pem"), RuleAction::Ask);
        assert_eq!(scope("{}", &[own], &["*"]).judge("x.pem"), RuleAction::Allow);
    }
}
