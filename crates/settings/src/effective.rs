use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::agent::AgentDefinition;
use crate::builtin::{self, DEFAULT_AGENT};
use crate::command::CommandDefinition;
use crate::diagnostic::{Diagnostic, Severity};
use crate::document::{OrganisationSettings, ProjectSettings};
use crate::merge::{MAX_NAMED, Merging, is_choice};
use crate::permissions::{Fault, Layer, Permissions};
use crate::sheet::Sheet;

/// The most remarks on a project's files that a session tells.
const MAX_TOLD: usize = 10;

/// The settings that count at a Location.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// Every agent that is not disabled, by name.
    pub agents: BTreeMap<String, AgentDefinition>,
    /// The agent of a session that has not chosen one. It is among the agents, and not hidden.
    pub default_agent: String,
    /// The commands by name.
    pub commands: BTreeMap<String, CommandDefinition>,
    /// The permission rules of all layers.
    pub permissions: Permissions,
    /// The bounds.
    pub bounds: Bounds,
    /// Remarks on both texts. They are not part of the hash.
    #[serde(skip)]
    pub diagnostics: Vec<Diagnostic>,
    /// The lines that a session tells its users about the project's files when it begins: each with its file and line. Not part of
    /// the hash.
    #[serde(skip)]
    pub notices: Vec<String>,
    /// SHA-256 of all the rest, in hex: equal settings have equal hashes.
    #[serde(skip)]
    pub hash: String,
}

/// The bounds that settings say. `None`: the service's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// The most turns in a row without new input, as the organisation says.
    pub steps: Option<u32>,
    /// The same, as the project says: it counts only where it is less.
    pub steps_at_most: Option<u32>,
    /// Whether conversations are summarised at the model's limits.
    pub auto_compaction: Option<bool>,
    /// Tokens of the model's context that stay free.
    pub buffer: Option<u64>,
    /// The most tokens of the recent conversation that stay after a summary.
    pub keep: Option<u64>,
    /// Tokens of the model's longest answer that count.
    pub answer: Option<u64>,
    /// Whether models give titles to sessions. A project can only switch them off.
    pub titles: Option<bool>,
    /// Hours after which an ask that nobody answers expires, as the organisation says.
    pub ask_hours: Option<u32>,
    /// Retries of a request that failed, as the organisation says.
    pub retries: Option<u32>,
}

/// Returns the settings that count at a Location: the built-in ones, changed by the organisation, then by the project as
/// far as that does not widen anything.
#[must_use]
pub fn effective(organisation: &OrganisationSettings, project: &ProjectSettings) -> Effective {
    let remarks = organisation.diagnostics.iter().chain(&project.diagnostics).cloned();
    let mut merging = Merging::new(remarks.collect());
    let may_allow: BTreeSet<&str> =
        organisation.sheet.projects_may_allow.iter().map(String::as_str).collect();
    merging.add(&organisation.sheet, Layer::Organisation, &BTreeSet::new());
    merging.disable();
    if !merging.agents.values().any(is_choice) {
        let built_in = builtin::agents().into_iter().filter(|agent| agent.name == DEFAULT_AGENT);
        merging.agents.extend(built_in.map(|agent| (agent.name.clone(), agent)));
        merging.note("no agent is left that people can choose: `build` stays".to_owned());
    }
    let trusted = merging.agents.clone();
    merging.add(&project.sheet, Layer::Project, &may_allow);
    merging.shut(&project.unreadable);
    merging.disable();
    if !merging.agents.values().any(is_choice) {
        merging.agents.extend(trusted);
        merging
            .note("the project leaves no agent that people can choose: it changes none".to_owned());
    }
    let default_agent = merging.default_agent(&project.sheet, &organisation.sheet);
    let mut commands: BTreeMap<_, _> =
        builtin::commands().into_iter().map(|command| (command.name.clone(), command)).collect();
    for sheet in [&organisation.sheet, &project.sheet] {
        for (name, command) in &sheet.commands {
            if commands.len() < MAX_NAMED || commands.contains_key(name) {
                commands.insert(name.clone(), command.clone());
            }
        }
    }
    let Merging { agents, rules, diagnostics, .. } = merging;
    let mut effective = Effective {
        agents,
        default_agent,
        commands,
        permissions: Permissions::new(rules, faults(project)),
        bounds: bounds(&organisation.sheet, &project.sheet),
        diagnostics,
        notices: notices(project),
        hash: String::new(),
    };
    let json =
        serde_json::to_vec(&effective).expect("settings are texts, numbers and maps of texts");
    effective.hash = hex::encode(Sha256::digest(&json));
    effective
}

/// Returns the hash of a text of settings: SHA-256, in hex.
#[must_use]
pub fn text_hash(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

impl Effective {
    /// Returns the settings of a Location for which nobody has set anything.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Effective> = LazyLock::new(|| {
            effective(&OrganisationSettings::default(), &ProjectSettings::default())
        });
        &BUILT_IN
    }

    /// Returns an agent that a prompt may choose.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&AgentDefinition> {
        let is_usable = |agent: &&AgentDefinition| !agent.hidden && agent.unreadable.is_none();
        self.agents.get(name).filter(is_usable)
    }

    /// Returns why there is no agent of this name, as far as the project's files are the reason: its own file cannot be
    /// read, or another one that may have it.
    #[must_use]
    pub fn why_no_agent(&self, name: &str) -> Option<String> {
        let agent = self.agents.get(name).filter(|agent| !agent.hidden);
        if let Some(why) = agent.and_then(|agent| agent.unreadable.as_ref()) {
            return Some(format!(
                "its file cannot be read, so that nobody knows what it may do ({why}): mend the file"
            ));
        }
        let Fault { source, message } = self.permissions.faults().first()?;
        agent
            .is_none()
            .then(|| format!("it may be in a settings file with a mistake ({source}: {message})"))
    }
}

impl Default for Effective {
    /// Returns the settings of a Location for which nobody has set anything.
    fn default() -> Self {
        Self::built_in().clone()
    }
}

fn errors(project: &ProjectSettings) -> impl Iterator<Item = &Diagnostic> {
    project.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
}

fn faults(project: &ProjectSettings) -> Vec<Fault> {
    let fault =
        |error: &Diagnostic| Fault { source: error.place(), message: error.message.clone() };
    errors(project).take(MAX_TOLD).map(fault).collect()
}

/// Returns the lines for users, the errors first.
fn notices(project: &ProjectSettings) -> Vec<String> {
    let error = |error: &Diagnostic| {
        format!(
            "{}: {}; until it is mended, every call of a tool needs your permission",
            error.place(),
            error.message
        )
    };
    let others = project
        .diagnostics
        .iter()
        .filter(|diagnostic| diagnostic.severity != Severity::Error && diagnostic.is_told);
    let others = others.map(|told| format!("{}: {}", told.place(), told.message));
    let all: Vec<String> = errors(project).map(error).chain(others).collect();
    let more = all.len().saturating_sub(MAX_TOLD);
    let more = (more > 0).then(|| format!("the settings files have {more} more remarks"));
    all.into_iter().take(MAX_TOLD).chain(more).map(|line| line.replace(['\n', '\r'], " ")).collect()
}

fn bounds(organisation: &Sheet, project: &Sheet) -> Bounds {
    let (of_org, of_project) = (organisation.bounds, project.bounds);
    Bounds {
        steps: of_org.steps,
        steps_at_most: of_project.steps,
        auto_compaction: of_project.auto.or(of_org.auto),
        buffer: of_project.buffer.or(of_org.buffer),
        keep: of_project.keep.or(of_org.keep),
        answer: of_project.answer.or(of_org.answer),
        titles: of_project.titles.filter(|on| !on).or(of_org.titles),
        ask_hours: of_org.ask_hours,
        retries: of_org.retries,
    }
}

#[cfg(test)]
mod tests {
    use domain::RuleAction;

    use super::*;
    use crate::document::SettingsFile;
    use crate::rules::action_of;

    fn project(text: &str) -> ProjectSettings {
        let file = SettingsFile { path: "opencode.json".into(), text: text.into(), more: false };
        ProjectSettings::parse(&[file])
    }

    fn of(organisation: &str, files: &str) -> Effective {
        effective(&OrganisationSettings::parse(organisation), &project(files))
    }

    fn decides(settings: &Effective, agent: &str, permission: &str) -> RuleAction {
        let is_about = |name: &str| name == "*" || action_of(name) == action_of(permission);
        settings
            .permissions
            .judge(agent, |rule| rule.pattern == "*" && is_about(&rule.permission))
            .action
    }

    // The words of the issue.
    #[test]
    fn a_repository_denies_and_does_not_allow() {
        let asks = r#"{"permission": {"bash": "ask"}}"#;
        assert_eq!(
            decides(&of(asks, r#"{"permission": {"bash": "allow"}}"#), "build", "shell"),
            RuleAction::Ask
        );
        assert_eq!(
            decides(&of(asks, r#"{"permission": {"shell": "deny"}}"#), "build", "bash"),
            RuleAction::Deny
        );
        assert_eq!(
            decides(&of("", r#"{"tools": {"bash": false}}"#), "build", "shell"),
            RuleAction::Deny
        );
        let leaves = r#"{"permission": {"bash": "ask"}, "projects_may_allow": ["bash"]}"#;
        let allows = of(leaves, r#"{"permission": {"shell": "allow"}}"#);
        assert_eq!(decides(&allows, "build", "shell"), RuleAction::Allow);
        let star = of(leaves, r#"{"permission": "allow"}"#);
        assert_eq!(decides(&star, "build", "shell"), RuleAction::Ask, "`*` names no action");
        let denied = r#"{"permission": {"bash": "deny"}, "projects_may_allow": ["bash"]}"#;
        let still = of(
            denied,
            r#"{"permission": {"bash": "allow"}, "agent": {"build": {"permission": "ask"}}}"#,
        );
        assert_eq!(decides(&still, "build", "shell"), RuleAction::Deny);
    }

    #[test]
    fn without_settings_only_secrets_and_circles_are_asked() {
        let settings = Effective::default();
        for (permission, expected) in [
            ("shell", RuleAction::Allow),
            ("edit", RuleAction::Allow),
            ("doom_loop", RuleAction::Ask),
            ("external_directory", RuleAction::Allow),
        ] {
            assert_eq!(decides(&settings, "build", permission), expected, "{permission}");
        }
        let asked = settings.permissions.iter().filter(|rule| rule.rule.action == RuleAction::Ask);
        assert_eq!(asked.count(), 3);
        let names: Vec<_> = settings
            .agents
            .values()
            .filter(|agent| !agent.hidden)
            .map(|agent| agent.name.as_str())
            .collect();
        assert_eq!(names, ["build", "explore", "general", "plan"]);
        assert_eq!(settings.default_agent, "build");
        assert_eq!(settings.diagnostics, []);
    }

    #[test]
    fn agents_are_changed_by_each_layer_and_their_rules_are_theirs() {
        let settings = of(
            r#"{"agent": {"review": {"description": "Reviews", "mode": "primary", "prompt": "Review.", "steps": 9},
                "plan": {"permission": {"edit": {"*.md": "allow"}}}}}"#,
            r#"{"agent": {"review": {"steps": 50, "prompt": "Review all.", "permission": {"bash": "deny"}},
                "plan": {"tools": {"bash": true}}}, "default_agent": "review"}"#,
        );
        let review = &settings.agents["review"];
        assert_eq!((review.steps, review.instructions.as_str()), (Some(9), "Review all."));
        assert_eq!(review.layer, Layer::Organisation);
        assert_eq!(settings.default_agent, "review");
        assert_eq!(decides(&settings, "review", "bash"), RuleAction::Deny);
        assert_eq!(decides(&settings, "build", "bash"), RuleAction::Allow);
        let plan = &settings.agents["plan"].tools;
        assert!(plan.allows("edit") && plan.allows("write") && !plan.allows("shell"), "{plan:?}");
    }

    #[test]
    fn a_disabled_agent_is_gone_and_one_to_choose_stays() {
        let off = r#"{"agent": {"build": {"disable": true}}}"#;
        let settings = of(off, r#"{"agent": {"build": {"disable": false}}}"#);
        assert!(!settings.agents.contains_key("build"));
        assert_eq!(settings.default_agent, "plan");
        let none = of(off, r#"{"agent": {"plan": {"hidden": true}}}"#);
        assert_eq!(none.default_agent, "plan");
        assert!(!none.agents.contains_key("build"), "{none:?}");
        let all = r#"{"agent": {"build": {"disable": true}, "plan": {"disable": true}}}"#;
        assert_eq!(of(all, "").default_agent, "build");
        assert_eq!(of("", all).agents.len(), Effective::default().agents.len());
        let unknown = of("", r#"{"default_agent": "explore"}"#);
        assert_eq!(unknown.default_agent, "build");
        assert!(unknown.diagnostics[0].message.contains("`explore`"), "{unknown:?}");
    }

    #[test]
    fn bounds_of_a_project_are_only_lower() {
        let settings = of(
            r#"{"steps": 30, "titles": false, "compaction": {"buffer": 1, "keep": {"tokens": 2}, "answer": 4}, "asks": {"hours": 5}, "retries": 0}"#,
            r#"{"steps": 90, "titles": true, "compaction": {"auto": false, "reserved": 3}, "asks": {"hours": 500}, "retries": 9}"#,
        );
        let expected = Bounds {
            steps: Some(30),
            steps_at_most: Some(90),
            auto_compaction: Some(false),
            buffer: Some(3),
            keep: Some(2),
            answer: Some(4),
            titles: Some(false),
            ask_hours: Some(5),
            retries: Some(0),
        };
        assert_eq!(settings.bounds, expected);
        let notes: Vec<_> = settings.diagnostics.iter().map(|said| said.message.as_str()).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(of("", r#"{"titles": false}"#).bounds.titles, Some(false));
    }

    #[test]
    fn a_mistake_in_a_projects_file_is_a_fault_with_its_line() {
        for (text, line) in [
            ("{\"permission\": {\n\"bash\": \"deny\"", "opencode.json:1"),
            ("{\"permission\":\n {\"bash\": {\"git push *\":\n \"aks\"}}}", "opencode.json:2"),
            ("{\n\"permission\": {\"bash\": false}}", "opencode.json:2"),
            ("{\n\"permission\": 3}", "opencode.json:2"),
            ("{\n\"permision\": {\"bash\": \"deny\"}}", "opencode.json:2"),
            ("{\n\"Permission\": \"deny\"}", "opencode.json:2"),
            ("{\n\"tools\": {\"bash\": \"off\"}}", "opencode.json:2"),
            (
                "{\n\"agent\": {\"build\": {\n\"permissions\": {\"bash\": \"no\"}}}}",
                "opencode.json:3",
            ),
            (
                "{\n\"agent\": {\"build\": {\n\"permisson\": {\"bash\": \"deny\"}}}}",
                "opencode.json:3",
            ),
            ("{\n\"agent\": [\"build\"]}", "opencode.json:2"),
            ("[\"deny\"]", "opencode.json:1"),
            ("{\n\"steps\": \"ten\"}", "opencode.json:2"),
        ] {
            let settings = of("", text);
            let faults = settings.permissions.faults();
            assert_eq!(faults.first().map(|fault| fault.source.as_str()), Some(line), "{text}");
            assert!(settings.notices[0].starts_with(line), "{:?}", settings.notices);
            assert_ne!(settings.hash, Effective::default().hash, "{text}");
        }
        let fine = r#"{"permission": {"bash": "deny"}, "theme": "x", "mcp": {}, "keybinds": {}, "unheard": 1}"#;
        let settings = of("", fine);
        assert_eq!(settings.permissions.faults(), []);
        assert_eq!(of("{\"permission\": \"aks\"}", "").permissions.faults(), [], "it was refused");
    }

    // Finding: report 30-b18 (anomalyco/opencode#28004): a colour without quotes made every call ask.
    #[test]
    fn a_setting_without_a_value_is_left_out() {
        let front = "description: d\ncolor: #9B59B6\nmodel:\nmode: null";
        let file = |path: &str, text: String| SettingsFile { path: path.into(), text, more: false };
        let files = [
            file(".opencode/agent/x.md", format!("---\n{front}\n---\nWork.")),
            file(".opencode/command/c.md", "---\nagent:\n---\nFix $1.".to_owned()),
            file(
                "opencode.json",
                r#"{"agent": {"y": {"color": null}}, "titles": null}"#.to_owned(),
            ),
        ];
        let settings = effective(&OrganisationSettings::default(), &ProjectSettings::parse(&files));
        assert_eq!(settings.permissions.faults(), []);
        let agent = settings.agent("x").expect("an agent");
        assert_eq!((agent.color.as_deref(), agent.description.as_str()), (None, "d"));
        assert!(settings.commands.contains_key("c"));
        let is_told = |said: &Diagnostic| said.message.contains("`color` has no value");
        assert!(settings.diagnostics.iter().any(is_told), "{:?}", settings.diagnostics);
        for rules in [r#"{"permission": null}"#, r#"{"agent": {"x": {"tools": null}}}"#] {
            assert_eq!(of("", rules).permissions.faults().len(), 1, "{rules}");
        }
    }

    #[test]
    fn what_has_no_effect_is_told_if_somebody_may_rely_on_it() {
        let text =
            "{\n\"mcp\": {},\n\"plugin\": [],\n\"lsp\": {},\n\"provider\": {},\n\"theme\": \"x\"}";
        let notices = of("", text).notices;
        assert_eq!(notices.len(), 4, "{notices:?}");
        for (line, name) in [(2, "mcp"), (3, "plugin"), (4, "lsp"), (5, "provider")] {
            let is_it = |told: &String| {
                told.starts_with(&format!("opencode.json:{line}: `{name}`")) && told.contains("no")
            };
            assert!(notices.iter().any(is_it), "{name}: {notices:?}");
        }
        let many = format!("{{{}}}", (0..40).map(|n| format!("\"x{n}\": 1,")).collect::<String>());
        assert_eq!(of("", &many).notices.len(), MAX_TOLD + 1);
    }

    #[test]
    fn an_agent_of_a_broken_file_is_refused_with_the_reason() {
        let file = |path: &str, text: &str| SettingsFile {
            path: path.into(),
            text: text.into(),
            more: false,
        };
        let files = [
            file(".opencode/agent/x.md", "---\ndescription: Reviews: all of it\n---\nReview."),
            file(".opencode/agent/plan.md", "---\nmode: all\nNo end."),
            file("opencode.json", r#"{"default_agent": "x"}"#),
            file(".opencode/agent/fine.md", "---\nmode: all\n---\nFine."),
        ];
        let settings = effective(&OrganisationSettings::default(), &ProjectSettings::parse(&files));
        for (name, place) in
            [("x", ".opencode/agent/x.md:2"), ("plan", ".opencode/agent/plan.md:1")]
        {
            assert_eq!(settings.agent(name), None);
            let why = settings.why_no_agent(name).expect("a reason");
            assert!(why.contains(place), "{name}: {why}");
        }
        assert_eq!(settings.default_agent, "x", "no other agent takes its place");
        assert!(settings.agent("fine").is_some() && settings.agent("build").is_some());
        assert_eq!(settings.permissions.faults().len(), 2);
        let cut = of("", "{\"agent\": {\"review\": {");
        let why = cut.why_no_agent("review").expect("a reason");
        assert!(why.contains("opencode.json:1"), "{why}");
        assert_eq!(cut.why_no_agent("build"), None);
        assert_eq!(Effective::default().why_no_agent("x"), None);
        let stored = ProjectSettings::parse(&files).to_json().expect("JSON");
        assert_eq!(
            ProjectSettings::from_json(&stored).expect("its own"),
            ProjectSettings::parse(&files)
        );
    }

    #[test]
    fn equal_settings_have_equal_hashes() {
        let some = of("", r#"{"permission": {"bash": "ask"}}"#);
        assert_eq!(some.hash, of("", "{ \"permission\": { \"bash\": \"ask\" } } // the same").hash);
        assert_ne!(some.hash, Effective::default().hash);
        assert_eq!(some.hash.len(), 64);
        assert_eq!(
            some.permissions.iter().last().map(|rule| rule.source.as_str()),
            Some("opencode.json:1")
        );
    }

    #[test]
    fn a_command_of_the_project_replaces_one_of_the_same_name() {
        let settings = of(
            r#"{"command": {"test": {"template": "Test.", "description": "of the organisation"}}}"#,
            r#"{"command": {"test": {"template": "Run $1."}, "empty": {"agent": "build"}}}"#,
        );
        assert_eq!(settings.commands.keys().collect::<Vec<_>>(), ["init", "test"]);
        assert_eq!(settings.commands["test"].template, "Run $1.");
        assert!(settings.diagnostics[0].message.contains("`empty` has no template"));
    }
}
