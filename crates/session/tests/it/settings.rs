//! Settings of the organisation and of the project: what a drain takes over from them, and what gateways can read.

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::SessionEvent;
use session::DrainExit;
use settings::{OrganisationSettings, ProjectSettings, effective, text_hash};
use store::{KnownSettings, SettingsOf, SettingsSeen, SettingsText};

use crate::agents::{offered, prompt_as};
use crate::tools::{calls, says, shell};
use crate::world::{ORG, Session, World};

/// Returns what gateways read of the project's settings.
async fn published(world: &World, session: &Session) -> Result<Option<ProjectSettings>> {
    let of = SettingsOf::Session(session.at.session.clone());
    let stored = world.store().settings(ORG, of, KnownSettings::default()).await?;
    match stored.location {
        SettingsSeen::New(text) => Ok(Some(ProjectSettings::from_json(&text.bytes)?)),
        SettingsSeen::Nothing | SettingsSeen::Known => Ok(None),
    }
}

pub(crate) async fn of_organisation(world: &World, text: &str) -> Result<()> {
    let text = SettingsText { bytes: text.into(), hash: text_hash(text) };
    Ok(world.store().set_organisation_settings(ORG, Some(text), 1).await?)
}

#[tokio::test]
async fn an_agent_of_the_project_works_and_is_published() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    std::fs::create_dir_all(session.root.join(".opencode/agent"))?;
    let text = "---\ndescription: Reviews\npermission:\n  bash: deny\n---\nYou review.";
    session.file(".opencode/agent/review.md", text)?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let request = world.requests()?.pop().context("a request")?;
    let system = request[0]["content"].as_str().context("a text")?;
    ensure!(system.starts_with("You review."), "{system}");
    let project = published(&world, &session).await?.context("published")?;
    let settings = effective(&OrganisationSettings::default(), &project);
    assert_eq!(settings.agents["review"].description, "Reviews");

    // A drain that finds other files publishes those; no files are no settings.
    std::fs::remove_file(session.root.join(".opencode/agent/review.md"))?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(published(&world, &session).await?, Some(ProjectSettings::default()));
    world.check().await
}

#[tokio::test]
async fn a_project_without_settings_publishes_nothing() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(published(&world, &session).await?, None);
    world.check().await
}

#[tokio::test]
async fn bounds_of_the_organisation_and_of_the_project_count() -> Result<()> {
    for (organisation, project) in [(r#"{"steps": 1}"#, "{}"), ("{}", r#"{"steps": 1}"#)] {
        let world = World::new().await?;
        let session = world.session().await?;
        of_organisation(&world, organisation).await?;
        session.file("opencode.json", project)?;
        world.script(calls("job", 0, vec![shell("touch a")]))?;
        world.script(says("job", 1, "done"))?;
        world.prompt(&session, "job").await?;
        world.settle(&session).await?;
        assert_eq!(world.requests()?.len(), 1, "{organisation} {project}");
        ensure!(!session.root.join("a").exists(), "the last step runs nothing");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_its_files_a_location_has_the_stored_settings() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    std::fs::create_dir_all(session.root.join(".opencode/agents"))?;
    session.file(".opencode/agents/review.md", "You review.")?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let before = published(&world, &session).await?.context("published")?;
    let away = session.root.with_extension("away");
    std::fs::rename(&session.root, &away)?;
    world.take_over(&session).await?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(published(&world, &session).await?, Some(before));
    world.check().await
}

#[tokio::test]
async fn a_project_offers_a_read_only_agent_no_tool_more() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file(
        "opencode.json",
        r#"{"agent": {"plan": {"permission": "allow", "tools": {"bash": true}}}}"#,
    )?;
    prompt_as(&world, &session, "plan", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(offered(&world)?, [["glob", "grep", "read", "skill"]]);
    world.check().await
}

#[tokio::test]
async fn a_project_cannot_allow_what_is_asked_about() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    of_organisation(&world, r#"{"permission": {"bash": "ask"}}"#).await?;
    session.file("opencode.json", r#"{"permission": {"bash": "allow"}}"#)?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.prompt(&session, "job").await?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Waiting));
    ensure!(!session.root.join("a").exists());
    // Only an organisation leaves an action to its projects.
    of_organisation(&world, r#"{"permission": {"bash": "ask"}, "projects_may_allow": ["bash"]}"#)
        .await?;
    let other = world.session().await?;
    other.file("opencode.json", r#"{"permission": {"bash": "allow"}}"#)?;
    world.script(calls("more", 0, vec![shell("touch b")]))?;
    world.script(says("more", 1, "done"))?;
    world.prompt(&other, "more").await?;
    assert_eq!(world.settle(&other).await?, [Completed]);
    ensure!(other.root.join("b").exists());
    world.check().await
}

// Reports 5: a file that was cut short after a deny lost it, and nobody was told.
#[tokio::test]
async fn a_broken_settings_file_makes_calls_ask_and_is_told_once() -> Result<()> {
    for broken in [
        "{\"permission\": {\"bash\": {\"touch *\": \"deny\"}",
        "{\"permission\": {\"bash\": {\"touch *\": \"aks\"}}}",
    ] {
        let world = World::new().await?;
        let session = world.session().await?;
        session.file("opencode.json", broken)?;
        world.script(calls("job", 0, vec![shell("touch a")]))?;
        world.prompt(&session, "job").await?;
        assert!(matches!(world.drain(&session).await?, DrainExit::Waiting), "{broken}");
        ensure!(!session.root.join("a").exists(), "{broken}");
        let notices = notices(&world, &session).await?;
        ensure!(notices.len() == 1 && notices[0].starts_with("opencode.json:1: "), "{notices:?}");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn settings_without_effect_are_told_once_to_people_alone() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("opencode.json", r#"{"mcp": {}, "permission": {"bash": "allow"}}"#)?;
    for _ in 0..2 {
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let notices = notices(&world, &session).await?;
    ensure!(notices == ["opencode.json:1: `mcp` has no effect here"], "{notices:?}");
    for request in world.requests()? {
        ensure!(!serde_json::to_string(&request)?.contains("no effect"), "{request:?}");
    }
    world.check().await
}

#[tokio::test]
async fn an_agent_of_a_broken_file_is_refused_with_file_and_line() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    std::fs::create_dir_all(session.root.join(".opencode/agent"))?;
    let text = "---\ndescription: Reviews: all of it\npermission:\n  bash: deny\n---\nReview.";
    session.file(".opencode/agent/review.md", text)?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    ensure!(world.requests()?.is_empty(), "nothing was asked as another agent");
    let errors = list_errors(&world, &session).await?;
    ensure!(errors.concat().contains(".opencode/agent/review.md:2"), "{errors:?}");
    world.check().await
}

// Next report 31: the instructions were the letters `{file:…}`, and nobody was told.
#[tokio::test]
async fn an_agents_instructions_are_the_file_that_it_names() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    std::fs::create_dir_all(session.root.join("prompts"))?;
    session.file("prompts/review.txt", "You review well.\n")?;
    let text = "{\"agent\": {\"review\":\n{\"prompt\": \"{file:./prompts/review.txt}\"}}}";
    session.file("opencode.json", text)?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let requests = world.requests()?;
    let system = requests[0][0]["content"].as_str().context("a text")?;
    ensure!(system.starts_with("You review well."), "{system}");
    ensure!(!system.contains("{file:"), "{system}");

    std::fs::remove_file(session.root.join("prompts/review.txt"))?;
    prompt_as(&world, &session, "review", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(world.requests()?.len(), requests.len(), "nothing is asked without them");
    let errors = list_errors(&world, &session).await?.concat();
    ensure!(errors.contains("opencode.json:2") && errors.contains("no such file"), "{errors}");
    world.check().await
}

// Next report 33: an agent in a folder below was not there, and its rules were lost.
#[tokio::test]
async fn an_agent_of_a_folder_below_works_with_its_rules() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    std::fs::create_dir_all(session.root.join(".opencode/agent/team"))?;
    let text = "---\nmode: primary\npermission:\n  bash:\n    'touch *': deny\n---\nYou look.";
    session.file(".opencode/agent/team/look.md", text)?;
    world.script(calls("job", 0, vec![shell("touch a")]))?;
    world.script(says("job", 1, "done"))?;
    prompt_as(&world, &session, "team/look", "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let requests = world.requests()?;
    let system = requests[0][0]["content"].as_str().context("a text")?;
    ensure!(system.starts_with("You look."), "{system}");
    ensure!(!session.root.join("a").exists());
    world.check().await
}

/// The errors with which drains have ended.
async fn list_errors(world: &World, session: &Session) -> Result<Vec<String>> {
    let errors = world.events(session).await?.into_iter().filter_map(|event| match event.event {
        SessionEvent::DrainEnded(ended) => ended.error,
        _ => None,
    });
    Ok(errors.map(|error| error.message).collect())
}

/// The notices for the session's users, in their order.
pub(crate) async fn notices(world: &World, session: &Session) -> Result<Vec<String>> {
    let events = world.events(session).await?.into_iter();
    let told = events.filter_map(|event| match event.event {
        SessionEvent::TurnStarted(started) => started.notice,
        _ => None,
    });
    Ok(told.collect())
}

#[tokio::test]
async fn a_project_denies_what_nobody_else_does() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("opencode.json", r#"{"permission": {"bash": {"touch *": "deny"}}}"#)?;
    world.script(calls("job", 0, vec![shell("touch a"), shell("ls")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    ensure!(!session.root.join("a").exists());
    let made = crate::agents::made(&world, &session).await?;
    ensure!(made[0].3.contains("a rule of the project refuses this call"), "{made:?}");
    assert_eq!(made[1].2, domain::ToolOutcomeKind::Completed);
    world.check().await
}
