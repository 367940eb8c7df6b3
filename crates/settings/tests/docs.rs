//! The examples of `docs/settings.md` are read without a remark.

use std::fs;
use std::path::Path;

use settings::{OrganisationSettings, ProjectSettings, SettingsFile, effective};

/// Returns the texts of the document's blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let document = fs::read_to_string(path).expect("the document");
    let open = format!("```{language}\n");
    let all = document.split(&open).skip(1);
    all.filter_map(|rest| Some(rest.split_once("\n```")?.0.to_owned())).collect()
}

#[test]
fn examples_in_json_are_an_organisations_and_a_projects() {
    let all = blocks("jsonc");
    assert_eq!(all.len(), 4);
    for text in all {
        let organisation = OrganisationSettings::parse(&text);
        assert_eq!(organisation.diagnostics, [], "{text}");
        assert_ne!(organisation, OrganisationSettings::default(), "{text}");
        let file = SettingsFile { path: "opencode.jsonc".into(), text: text.clone(), more: false };
        let project = ProjectSettings::parse(&[file]);
        let own = ["projects_may_allow", "\"asks\": {", "\"retries\""];
        let own = own.into_iter().filter(|key| text.contains(key)).count();
        assert_eq!(project.diagnostics.len(), own, "{text}");
    }
}

#[test]
fn examples_in_markdown_are_an_agent_and_a_command() {
    let all = blocks("markdown");
    let [agent, command] = all.as_slice() else { panic!("{all:?}") };
    let file =
        |path: &str, text: &str| SettingsFile { path: path.into(), text: text.into(), more: false };
    let files =
        [file(".opencode/agent/review.md", agent), file(".opencode/command/fix.md", command)];
    let project = ProjectSettings::parse(&files);
    assert_eq!(project.diagnostics, []);
    let settings = effective(&OrganisationSettings::default(), &project);
    let review = &settings.agents["review"];
    assert_eq!((review.steps, review.instructions.is_empty()), (Some(30), false));
    assert_eq!(review.model.as_ref().map(|model| model.provider.as_str()), Some("anthropic"));
    let own = settings.permissions.of_agent("review").filter(|rule| rule.agent.is_some());
    assert_eq!(own.count(), 3);
    let prompt = settings.commands["fix"].expand("12 quickly").expect("short");
    assert!(prompt.starts_with("Fix issue 12 quickly as @docs/conventions.md"), "{prompt}");
}
