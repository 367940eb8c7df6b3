//! Properties over random settings: nothing panics, and a project never widens.

use domain::{RuleAction, ToolRule};
use proptest::collection::vec;
use proptest::prelude::*;
use settings::{Effective, OrganisationSettings, ProjectSettings, SettingsFile, effective};

const ACTIONS: [&str; 9] =
    ["*", "bash", "shell", "edit", "write", "read", "e*", "doom_loop", "external_directory"];
const PATTERNS: [&str; 5] = ["*", "git *", "*.env", "git push*", "src/*"];
const EFFECTS: [&str; 5] = ["allow", "ask", "deny", "maybe", "allow"];
const AGENTS: [&str; 7] = ["build", "plan", "explore", "general", "title", "mine", "other"];
const PATHS: [&str; 7] = [
    "opencode.json",
    "a/opencode.jsonc",
    ".opencode/opencode.json",
    ".opencode/agent/mine.md",
    ".opencode/agents/plan.md",
    ".opencode/command/go.md",
    ".opencode/commands/go.md",
];

fn one_of(all: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(all)
}

fn permission() -> impl Strategy<Value = String> {
    let effect = || one_of(&EFFECTS).prop_map(|effect| format!("\"{effect}\""));
    let patterns = vec((one_of(&PATTERNS), effect()), 0..4).prop_map(|rules| {
        let rules: Vec<_> = rules.iter().map(|(p, e)| format!("\"{p}\": {e}")).collect();
        format!("{{{}}}", rules.join(", "))
    });
    let of_action = prop_oneof![effect(), patterns];
    let actions = vec((one_of(&ACTIONS), of_action), 0..5).prop_map(|rules| {
        let rules: Vec<_> = rules.iter().map(|(a, e)| format!("\"{a}\": {e}")).collect();
        format!("{{{}}}", rules.join(", "))
    });
    prop_oneof![effect(), actions]
}

fn agent() -> impl Strategy<Value = String> {
    let entry = prop_oneof![
        permission().prop_map(|rules| format!("\"permission\": {rules}")),
        (one_of(&ACTIONS), any::<bool>())
            .prop_map(|(a, on)| format!("\"tools\": {{\"{a}\": {on}}}")),
        any::<bool>().prop_map(|on| format!("\"disable\": {on}")),
        any::<bool>().prop_map(|on| format!("\"hidden\": {on}")),
        (0..300).prop_map(|steps| format!("\"steps\": {steps}")),
        one_of(&["primary", "subagent", "all", "odd"]).prop_map(|m| format!("\"mode\": \"{m}\"")),
    ];
    vec(entry, 0..4).prop_map(|entries| format!("{{{}}}", entries.join(", ")))
}

/// Settings as people write them. `leaves` are actions that an organisation leaves to projects.
fn config(leaves: &'static [&'static str]) -> impl Strategy<Value = String> {
    let own = if leaves.is_empty() {
        r#""projects_may_allow": ["bash", "edit", "read", "doom_loop"]"#
    } else {
        r#""titles": true"#
    };
    let entry = prop_oneof![
        permission().prop_map(|rules| format!("\"permission\": {rules}")),
        (one_of(&ACTIONS), any::<bool>())
            .prop_map(|(a, on)| format!("\"tools\": {{\"{a}\": {on}}}")),
        (one_of(&AGENTS), agent()).prop_map(|(name, a)| format!("\"agent\": {{\"{name}\": {a}}}")),
        one_of(&AGENTS).prop_map(|name| format!("\"default_agent\": \"{name}\"")),
        (0..300).prop_map(|steps| format!("\"steps\": {steps}")),
        any::<bool>().prop_map(|on| format!("\"titles\": {on}")),
        Just(own.to_owned()),
    ];
    vec(entry, 0..6).prop_map(move |mut entries| {
        if !leaves.is_empty() {
            entries.push(format!("\"projects_may_allow\": {leaves:?}"));
        }
        format!("{{{}}}", entries.join(",\n"))
    })
}

fn markdown() -> impl Strategy<Value = String> {
    (agent(), "\\PC{0,40}").prop_map(|(front, body)| format!("---\n{front}\n---\n{body}"))
}

fn files() -> impl Strategy<Value = Vec<SettingsFile>> {
    let text = prop_oneof![4 => config(&[]), 2 => markdown(), 1 => "\\PC{0,80}"];
    vec((one_of(&PATHS), text), 0..4).prop_map(|files| {
        let file =
            |(path, text): (&str, String)| SettingsFile { path: path.into(), text, more: false };
        files.into_iter().map(file).collect()
    })
}

fn strictness(action: RuleAction) -> u8 {
    match action {
        RuleAction::Allow => 0,
        RuleAction::Ask => 1,
        RuleAction::Deny => 2,
    }
}

/// Decides about a call of which nothing is known but which rules match it: bit `n` of `matching` is about the rules of one
/// name and pattern. So it holds however patterns are compared.
fn decide(settings: &Effective, agent: &str, matching: u64) -> RuleAction {
    let is_about = |rule: &ToolRule| {
        let known = |all: &[&str], text: &str| all.iter().position(|one| *one == text);
        let (action, pattern) =
            (known(&ACTIONS, &rule.permission), known(&PATTERNS, &rule.pattern));
        let bit = action.unwrap_or(9) * 6 + pattern.unwrap_or(5);
        matching >> bit & 1 == 1
    };
    settings.permissions.judge(agent, is_about).action
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_project_never_widens(
        organisation in config(&[]).prop_map(|text| text.replace("projects_may_allow", "titles")),
        files in files(),
        matching in any::<u64>(),
    ) {
        let organisation = OrganisationSettings::parse(&organisation);
        let without = effective(&organisation, &ProjectSettings::default());
        let with = effective(&organisation, &ProjectSettings::parse(&files));
        for agent in AGENTS {
            let (before, after) = (decide(&without, agent, matching), decide(&with, agent, matching));
            prop_assert!(strictness(after) >= strictness(before), "{agent}: {before} became {after}");
            if let (Some(before), Some(after)) = (without.agents.get(agent), with.agents.get(agent)) {
                prop_assert_eq!(&before.tools, &after.tools);
                let steps = |of: Option<u32>| of.unwrap_or(u32::MAX);
                prop_assert!(before.steps.is_none() || steps(after.steps) <= steps(before.steps));
            }
        }
        prop_assert!(without.bounds.titles != Some(false) || with.bounds.titles == Some(false));
        prop_assert_eq!(without.bounds.steps, with.bounds.steps);
    }

    #[test]
    fn an_action_left_to_projects_is_never_undenied(
        organisation in config(&["bash", "edit", "doom_loop"]),
        files in files(),
        matching in any::<u64>(),
    ) {
        let organisation = OrganisationSettings::parse(&organisation);
        let without = effective(&organisation, &ProjectSettings::default());
        let with = effective(&organisation, &ProjectSettings::parse(&files));
        for agent in AGENTS {
            if decide(&without, agent, matching) == RuleAction::Deny {
                prop_assert_eq!(decide(&with, agent, matching), RuleAction::Deny);
            }
        }
        let widening = with.permissions.iter().filter(|rule| rule.widens);
        for rule in widening {
            prop_assert!(["bash", "shell", "edit", "write", "doom_loop"].contains(&rule.rule.permission.as_str()));
        }
    }

    #[test]
    fn somebody_can_always_choose_the_default_agent(organisation in config(&[]), files in files()) {
        let organisation = OrganisationSettings::parse(&organisation);
        let settings = effective(&organisation, &ProjectSettings::parse(&files));
        let agent = settings.agents.get(&settings.default_agent);
        prop_assert!(agent.is_some_and(|agent| !agent.hidden), "{}", settings.default_agent);
    }

    #[test]
    fn no_text_panics(text in any::<String>(), path in one_of(&PATHS), json in config(&[]), cut in any::<prop::sample::Index>()) {
        let cut = cut.index(json.len() + 1);
        let broken = String::from_utf8_lossy(&json.as_bytes()[..cut]).into_owned();
        for text in [text.clone(), format!("---\n{text}\n---\n{text}"), broken] {
            let organisation = OrganisationSettings::parse(&text);
            let file = SettingsFile { path: path.to_owned(), text, more: false };
            let project = ProjectSettings::parse(&[file]);
            let json = project.to_json().expect("JSON");
            prop_assert!(!json.contains('\0') && !json.contains("\\u0000"));
            prop_assert_eq!(ProjectSettings::from_json(&json).expect("its own"), project.clone());
            let settings = effective(&organisation, &project);
            for command in settings.commands.values() {
                prop_assert!(command.expand("a \"b c\" $1").is_ok());
            }
        }
    }
}
