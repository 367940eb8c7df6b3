//! Skills: which of them a model is told of, and how it loads one.

use anyhow::{Context as _, Result, ensure};
use domain::DrainOutcome::{Completed, Failed};
use domain::{Permitted, ToolOutcomeKind};
use serde_json::json;

use crate::agents::{changed, made, prompt_as};
use crate::settings::notices;
use crate::tools::{call, calls, says};
use crate::world::{Session, World};

fn skill(session: &Session, name: &str, description: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(session.root.join(".opencode/skills").join(name))?;
    let file = format!(".opencode/skills/{name}/SKILL.md");
    session.file(&file, &format!("---\nname: {name}\ndescription: {description}\n---\n{text}"))
}

/// Returns the system messages of the newest request: the baseline, then the later ones.
fn told(world: &World) -> Result<Vec<String>> {
    let messages = world.requests()?.pop().context("a request")?;
    let system = messages.iter().filter(|message| message["role"] == "system");
    Ok(system.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect())
}

async fn answered(world: &World, session: &Session, agent: &str) -> Result<Vec<String>> {
    prompt_as(world, session, agent, "say 2 words").await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    told(world)
}

/// The results of the calls so far, in the order of the calls.
async fn results(world: &World, session: &Session) -> Result<Vec<(ToolOutcomeKind, String)>> {
    let made = made(world, session).await?;
    Ok(made.into_iter().map(|(_, _, outcome, text)| (outcome, text)).collect())
}

const NOW: &str = "The skills that can be loaded with the skill tool are now these, and no others:";

/// A world in which `plan` may only load `review`.
async fn world() -> Result<World> {
    let agents = changed("plan", |plan| plan.skills = Permitted::only(["review"]));
    World::with(|settings| settings.rules.agents = agents).await
}

#[tokio::test]
async fn the_selected_agents_are_told_by_name_and_a_switch_is_a_message_in_the_same_epoch()
-> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    skill(&session, "deploy", "Ship it.", "SECRET")?;
    skill(&session, "review", "Look again.", "SECRET")?;
    let first = answered(&world, &session, "build").await?;
    let baseline =
        "Skills that can be loaded with the skill tool:\n- deploy: Ship it.\n- review: Look again.";
    ensure!(first.last().is_some_and(|told| told.ends_with(baseline)), "{first:?}");
    ensure!(!first.concat().contains("SECRET") && !first.concat().contains(".opencode"));

    let plan = answered(&world, &session, "plan").await?;
    assert_eq!(plan[first.len()..], [format!("{NOW}\n- review: Look again.")]);
    assert_eq!(answered(&world, &session, "plan").await?, plan, "it is told once");
    let build = answered(&world, &session, "build").await?;
    let both = format!("{NOW}\n- deploy: Ship it.\n- review: Look again.");
    assert_eq!(build[plan.len()..], [both]);

    // A change of what it may not load tells an agent nothing.
    let plan = answered(&world, &session, "plan").await?;
    skill(&session, "deploy", "Ship it twice.", "SECRET")?;
    assert_eq!(answered(&world, &session, "plan").await?, plan);
    skill(&session, "review", "Look twice.", "SECRET")?;
    let changed = answered(&world, &session, "plan").await?;
    assert_eq!(changed[plan.len()..], [format!("{NOW}\n- review: Look twice.")]);

    std::fs::remove_dir_all(session.root.join(".opencode"))?;
    let gone = answered(&world, &session, "build").await?;
    let none = "The skills that were told of before can no longer be loaded.".to_owned();
    assert_eq!(gone[changed.len()..], [none]);
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds.iter().filter(|kind| **kind == "epoch.started").count(), 1);
    world.check().await
}

#[tokio::test]
async fn the_first_baseline_is_for_the_agent_that_the_first_prompt_chooses() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    skill(&session, "deploy", "Ship it.", "")?;
    skill(&session, "review", "Look again.", "")?;
    let plan = answered(&world, &session, "plan").await?;
    let list = "Skills that can be loaded with the skill tool:\n- review: Look again.";
    ensure!(plan.last().is_some_and(|told| told.ends_with(list)), "{plan:?}");
    // An agent that there is not changes nothing of what was told.
    prompt_as(&world, &session, "nobody", "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(answered(&world, &session, "plan").await?, plan);
    world.check().await
}

#[tokio::test]
async fn a_skill_is_loaded_by_the_agents_that_may() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    skill(&session, "deploy", "Ship it.", "Run `./ship`.")?;
    skill(&session, "review", "Look again.", "Read it twice.")?;
    let load = |name: &str| call("skill", json!({ "name": name }));
    world.script(calls("job", 0, vec![load("deploy"), load("review"), load("none")]))?;
    world.script(says("job", 1, "Loaded."))?;
    for agent in ["build", "plan"] {
        prompt_as(&world, &session, agent, "job").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let results = results(&world, &session).await?;
    let root = session.root.display();
    let loaded = |text: &str, name: &str| {
        let text =
            format!("{text}\n(paths in this skill are relative to {root}/.opencode/skills/{name})");
        (ToolOutcomeKind::Completed, text)
    };
    let none = |name: &str, known: &str| {
        let text = format!("there is no skill {name} to load; those that there are: {known}");
        (ToolOutcomeKind::Failed, text)
    };
    let expected = [
        loaded("Run `./ship`.", "deploy"),
        loaded("Read it twice.", "review"),
        none("none", "deploy, review"),
        none("deploy", "review"),
        loaded("Read it twice.", "review"),
        none("none", "review"),
    ];
    assert_eq!(results, expected);
    world.check().await
}

#[tokio::test]
async fn while_the_workspace_cannot_be_read_what_was_told_stays() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    skill(&session, "deploy", "Ship it.", "")?;
    let first = answered(&world, &session, "build").await?;
    let away = session.root.with_extension("away");
    std::fs::rename(&session.root, &away)?;
    assert_eq!(answered(&world, &session, "build").await?, first);
    std::fs::rename(&away, &session.root)?;
    assert_eq!(answered(&world, &session, "build").await?, first);
    world.check().await
}

#[tokio::test]
async fn without_the_projects_configuration_there_are_none() -> Result<()> {
    let world = World::with(|settings| settings.project_instructions = false).await?;
    let session = world.session().await?;
    skill(&session, "deploy", "Ship it.", "Run it.")?;
    world.script(calls("job", 0, vec![call("skill", json!({"name": "deploy"}))]))?;
    prompt_as(&world, &session, "build", "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    ensure!(!told(&world)?.concat().contains("deploy"));
    let none = (ToolOutcomeKind::Failed, "there are no skills here".to_owned());
    assert_eq!(results(&world, &session).await?, [none]);
    world.check().await
}

// Next reports 34 and 35: neither was told, to nobody.
#[tokio::test]
async fn skills_below_and_with_a_colon_are_told() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    skill(&session, "group/deep", "Configure it: hooks and skills", "Read it.")?;
    skill(&session, "broken", "[", "")?;
    let told = answered(&world, &session, "build").await?;
    let list = "with the skill tool:\n- group/deep: Configure it: hooks and skills";
    ensure!(told.last().is_some_and(|told| told.ends_with(list)), "{told:?}");
    let notices = notices(&world, &session).await?;
    let [notice] = notices.as_slice() else { anyhow::bail!("{notices:?}") };
    ensure!(notice.starts_with(".opencode/skills/broken/SKILL.md:"), "{notice}");
    world.check().await
}

// Finding: report 30-b9 (anomalyco/opencode#21793): the model was told of skills that a rule denies.
#[tokio::test]
async fn a_skill_that_a_rule_denies_is_not_told() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("opencode.json", r#"{"permission": {"skill": {"lark-*": "deny"}}}"#)?;
    skill(&session, "lark-doc", "Write it.", "")?;
    skill(&session, "other", "Look again.", "")?;
    world.script(calls("job", 0, vec![call("skill", json!({"name": "nope"}))]))?;
    world.script(says("job", 1, "Not loaded."))?;
    prompt_as(&world, &session, "build", "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let told = told(&world)?;
    let list = "Skills that can be loaded with the skill tool:\n- other: Look again.";
    ensure!(told.last().is_some_and(|last| last.ends_with(list)), "{told:?}");
    let none = "there is no skill nope to load; those that there are: other".to_owned();
    assert_eq!(results(&world, &session).await?, [(ToolOutcomeKind::Failed, none)]);
    world.check().await
}
