//! The files that `read` may show, for tools that show files which their calls do not name; and the files and pages to which a
//! call leads over links and redirects.

use std::sync::Arc;

use domain::{Need, RuleAction, SavedPermission, ToolRule, is_secret_path};
use serde_json::{Value, json};
use settings::Permissions;

use super::{GREP, Judged, Layers, PAGES, READ, is_about, is_whole};
use crate::tools::ReadNeeds;

/// The tools whose results are files that their calls do not name.
const SEARCHES: [&str; 2] = ["glob", GREP];

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

/// The rules of one call's agent and session about files and pages. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadScope(Arc<Scope>);

#[derive(Debug)]
struct Scope {
    permissions: Permissions,
    agent: String,
    session: Vec<ToolRule>,
    directory: String,
    /// The patterns that people have allowed for good.
    saved: Vec<SavedPermission>,
    /// Whether a rule may keep a file from being shown. Most often few patterns do.
    may_matter: bool,
    /// The same of the results of searches.
    may_hide: bool,
    needs: ReadNeeds,
}

impl ReadScope {
    pub(crate) fn new(layers: Layers<'_>, directory: &str, saved: Vec<SavedPermission>) -> Self {
        let rules = layers.permissions.of_agent(layers.agent).map(|rule| &rule.rule);
        let strict: Vec<&ToolRule> =
            rules.chain(layers.session).filter(|rule| rule.action != RuleAction::Allow).collect();
        let may_matter = strict.iter().any(|rule| is_about(rule, READ));
        let may_hide = strict
            .iter()
            .any(|rule| !is_whole(rule) && SEARCHES.iter().any(|tool| is_about(rule, tool)));
        Self(Arc::new(Scope {
            permissions: layers.permissions.clone(),
            agent: layers.agent.to_owned(),
            session: layers.session.to_vec(),
            directory: directory.to_owned(),
            saved,
            may_matter,
            may_hide,
            needs: layers.needs,
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
        let Scope { permissions, agent, session, directory, saved, may_matter, .. } = &*self.0;
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
                let is_it =
                    |saved: &SavedPermission| saved.action == READ && saved.pattern == pattern;
                if saved.iter().any(is_it) { RuleAction::Allow } else { RuleAction::Ask }
            }
        }
    }

    /// Returns whether rules about a tool that searches keep a file out of its results, given by its path below the session's
    /// directory.
    #[must_use]
    pub fn hides_result(&self, tool: &str, path: &str) -> bool {
        let Scope { permissions, agent, session, directory, may_hide, needs, .. } = &*self.0;
        if !may_hide {
            return false;
        }
        let layers = Layers { permissions, agent, session, can_ask: true, needs: *needs };
        let full = format!("{}/{path}", directory.trim_end_matches('/'));
        layers.hides_result(tool, &[path, &full])
    }

    /// Judges whether a file may be changed, given by its path below the session's directory.
    #[must_use]
    pub fn judge_edit(&self, path: &str) -> RuleAction {
        self.judge_call("edit", &json!({ "path": path }))
    }

    /// Judges whether a page may be fetched, given by its address.
    #[must_use]
    pub fn judge_page(&self, address: &str) -> RuleAction {
        self.judge_call(PAGES, &json!({ "url": address }))
    }

    /// Judges what a call leads to as if a call of its own named it.
    fn judge_call(&self, tool: &str, arguments: &Value) -> RuleAction {
        let Scope { permissions, agent, session, directory, saved, needs, .. } = &*self.0;
        let layers = Layers { permissions, agent, session, can_ask: true, needs: *needs };
        match layers.judge(tool, &arguments.to_string(), directory) {
            Judged::Run => RuleAction::Allow,
            Judged::Refuse(_) => RuleAction::Deny,
            Judged::Ask(Need { action, save, .. }) => {
                let is_saved = |pattern: &String| {
                    saved.iter().any(|saved| saved.action == action && saved.pattern == *pattern)
                };
                let is_allowed = !save.is_empty() && save.iter().all(is_saved);
                if is_allowed { RuleAction::Allow } else { RuleAction::Ask }
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
        let needs = ReadNeeds(tools::needs);
        let layers = Layers { permissions, agent: "build", session, can_ask: true, needs };
        let saved = saved.iter().map(|pattern| (*pattern).to_owned());
        let saved = saved.map(|pattern| SavedPermission { action: READ.to_owned(), pattern });
        ReadScope::new(layers, "/w", saved.collect())
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

    // Finding: report 30-b10 (anomalyco/opencode#35684).
    #[test]
    fn a_deny_of_a_search_keeps_files_out_of_its_results() {
        let text = r#"{"permission": {"glob": {"*": "allow", "**/secret.txt": "deny"},
            "grep": {"*": "deny", "TODO*": "allow", "*.pem": "deny"}}}"#;
        let scope = scope(text, &[], &[]);
        for (tool, path, is_hidden) in [
            ("glob", "src/secret.txt", true),
            ("glob", "secret.txt", true),
            ("glob", "src/a.txt", false),
            ("grep", "a.pem", true),
            ("grep", "src/a.txt", false),
        ] {
            assert_eq!(scope.hides_result(tool, path), is_hidden, "{tool} {path}");
        }
    }

    // Finding: report 30-b5 (prime-vector/open-agent-spec#114).
    #[test]
    fn what_a_call_leads_to_is_judged_as_its_own_call() {
        let text = r#"{"permission": {"edit": {"secrets/*": "deny", "b": "ask"},
            "webfetch": {"https://b.test/*": "deny", "https://c.test/*": "ask"}}}"#;
        let scope = scope(text, &[], &["*"]);
        for (path, action) in
            [("secrets/a", RuleAction::Deny), ("b", RuleAction::Ask), ("c", RuleAction::Allow)]
        {
            assert_eq!(scope.judge_edit(path), action, "{path}");
        }
        for (address, action) in [
            ("https://b.test/x", RuleAction::Deny),
            ("https://c.test/x", RuleAction::Ask),
            ("https://a.test/x", RuleAction::Allow),
        ] {
            assert_eq!(scope.judge_page(address), action, "{address}");
        }
    }
}
