//! Instruction files and other Context Sources that come, change, go, or cannot be looked at for a while.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use context::{ContextSource, Loaded, Producer, SourceKey, SystemContext};
use domain::DrainOutcome::{Completed, Failed};
use domain::{Clock as _, EntrySet, ErrorCode, SessionEvent};
use history::History;
use serde_json::Value;
use session::{DrainExit, ObservedAt, Workspace, drain, drain_control};
use tokio_util::sync::CancellationToken;

use crate::world::{ORG, Session, World};

/// Returns the system messages of the newest request: the baseline, then the later ones.
fn system_messages(world: &World) -> Result<Vec<String>> {
    let messages = world.requests()?.pop().context("a request")?;
    let system = messages.iter().filter(|message| message["role"] == "system");
    Ok(system.map(|message| text(&message["content"])).collect())
}

fn text(content: &Value) -> String {
    content.as_str().map_or_else(|| content.to_string(), ToOwned::to_owned)
}

async fn answered(world: &World, session: &Session, prompt: &str) -> Result<Vec<String>> {
    world.prompt(session, prompt).await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    system_messages(world)
}

/// One drain of the first worker in a workspace of the test's.
async fn drain_in(world: &World, session: &Session, workspace: &Workspace) -> DrainExit {
    let (_handle, control) = drain_control(CancellationToken::new());
    let at = &session.at;
    let history = History::new();
    let drain = drain(&world.worker, at, session.token(), workspace, control, history);
    Box::pin(drain).await.0
}

#[tokio::test]
async fn instructions_are_told_then_their_changes_then_that_they_are_gone() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("AGENTS.md", "Use tabs.\n")?;
    let origin = format!("Instructions from: {}/AGENTS.md\n", session.root.display());
    let first = answered(&world, &session, "say 2 words").await?;
    let told = format!("\n\nInstructions for this workspace:\n\n{origin}Use tabs.");
    ensure!(first.last().context("a baseline")?.ends_with(&told), "{first:?}");
    assert_eq!(answered(&world, &session, "say 3 words").await?, first, "nothing has changed");
    session.file("AGENTS.md", "Use spaces.\n")?;
    let changed = answered(&world, &session, "say 4 words").await?;
    let update =
        "The instructions for this workspace are now the following; they replace all earlier ones:";
    assert_eq!(changed[first.len()..], [format!("{update}\n\n{origin}Use spaces.")]);
    fs::remove_file(session.root.join("AGENTS.md"))?;
    let gone = answered(&world, &session, "say 5 words").await?;
    let removal = "The instructions for this workspace given before no longer apply.";
    assert_eq!(gone[changed.len()..], [removal.to_owned()]);
    assert_eq!(gone[..changed.len()], changed, "what was told stays");
    session.file("AGENTS.md", "Use nothing.\n")?;
    let back = answered(&world, &session, "say 6 words").await?;
    assert_eq!(
        back[gone.len()..],
        [format!("Instructions for this workspace:\n\n{origin}Use nothing.")]
    );
    world.check().await
}

#[tokio::test]
async fn a_change_while_a_session_is_idle_wakes_nobody_and_writes_nothing() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    answered(&world, &session, "say 2 words").await?;
    let before = world.kinds(&session).await?;
    session.file("AGENTS.md", "Use tabs.\n")?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle));
    assert_eq!(world.kinds(&session).await?, before);
    world.check().await
}

#[tokio::test]
async fn a_project_above_the_location_is_told_unless_project_configuration_is_off() -> Result<()> {
    for (on, files) in [(true, ["Far.", "Near."].as_slice()), (false, &[])] {
        let world = World::with(|settings| settings.project_instructions = on).await?;
        let session = world.session().await?;
        fs::create_dir_all(session.root.join(".git"))?;
        let below = session.root.join("below");
        fs::create_dir(&below)?;
        session.file("AGENTS.md", "Far.")?;
        session.file("below/AGENTS.md", "Near.")?;
        let plain = session.workspace(session.token());
        let shown = below.display().to_string();
        let workspace = Workspace::at(below, shown, plain.lock().cloned()).in_project();
        world.prompt(&session, "say 2 words").await?;
        let exit = drain_in(&world, &session, &workspace).await;
        assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
        let baseline = system_messages(&world)?.concat();
        let places: Vec<_> = ["Far.", "Near."].iter().map(|text| baseline.find(text)).collect();
        assert_eq!(places.iter().flatten().count(), files.len(), "{baseline}");
        ensure!(places.is_sorted(), "the nearest comes last: {baseline}");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn instructions_of_a_directory_are_told_once_the_model_has_read_there() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    fs::create_dir_all(session.root.join("a/b"))?;
    session.file("a/AGENTS.md", "In a.")?;
    session.file("a/b/x.txt", "x\n")?;
    let told = answered(&world, &session, "read a/b/x.txt").await?;
    let nested = told.last().context("a message")?;
    ensure!(nested.starts_with("Instructions for parts of this workspace"), "{nested}");
    ensure!(
        nested.ends_with(&format!("{}/a/AGENTS.md\nIn a.", session.root.display())),
        "{nested}"
    );
    let requests = world.requests()?;
    let roles: Vec<_> =
        requests[1].iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
    let end = roles.len();
    assert_eq!(roles[end - 3..], ["assistant", "tool", "system"], "after the result, not before");
    ensure!(!requests[0].iter().any(|message| text(&message["content"]).contains("In a.")));
    // Another worker, which knows nothing but rows, has nothing to add.
    let other = world.another_worker()?;
    world.take_over(&session).await?;
    world.prompt(&session, "say 2 words").await?;
    let (_handle, control) = drain_control(CancellationToken::new());
    let (exit, _) = session.run(&other, control, History::new()).await;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    assert_eq!(system_messages(&world)?, told);
    // One more is told by itself.
    session.file("a/b/AGENTS.md", "In b.")?;
    let more = answered(&world, &session, "say 3 words").await?;
    ensure!(more.last().is_some_and(|text| text.ends_with("In b.") && !text.contains("In a.")));
    world.check().await
}

/// A fact that can be hidden.
#[derive(Debug, Clone)]
struct Weather(&'static str);

impl ContextSource for Weather {
    type Told = String;

    fn told(&self) -> String {
        self.0.to_owned()
    }

    fn baseline(&self) -> String {
        format!("It is {}.", self.0)
    }

    fn update(&self, _told: &String) -> String {
        format!("It is {} now.", self.0)
    }

    fn removal(&self) -> Option<String> {
        Some("There is no weather.".to_owned())
    }
}

struct Sky {
    hidden: Arc<AtomicBool>,
    weather: &'static str,
}

#[async_trait]
impl Producer<ObservedAt> for Sky {
    async fn observe(&self, _at: &ObservedAt) -> SystemContext {
        let hidden = self.hidden.load(Ordering::Relaxed);
        let fog = || Loaded::Unavailable("fog".to_owned());
        let loaded = if hidden { fog() } else { Loaded::Value(Weather(self.weather)) };
        SystemContext::make(SourceKey::fixed("test/weather"), loaded)
    }
}

#[tokio::test]
async fn a_first_baseline_waits_for_all_of_it_and_the_prompt_with_it() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let workspace = session.workspace(session.token());
    let hidden = Arc::new(AtomicBool::new(true));
    let sky = Arc::new(Sky { hidden: Arc::clone(&hidden), weather: "sunny" });
    let key = SourceKey::fixed("test/weather");
    let _registration = workspace.sources().register(key, sky)?;
    world.prompt(&session, "say 2 words").await?;
    let exit = drain_in(&world, &session, &workspace).await;
    assert!(matches!(exit, DrainExit::Ended(Failed)), "{exit:?}");
    let last = world.events(&session).await?.pop().context("an event")?.event;
    let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
    let error = ended.error.context("why")?;
    assert_eq!(error.code, ErrorCode::ContextUnavailable);
    ensure!(error.message.contains("test/weather (fog)"), "{error:?}");
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds[1..], ["prompt.admitted", "drain.ended"], "nothing is promoted");
    assert_eq!(world.model().counts().requests, 0);
    ensure!(!world.store().session(ORG, session.at.session.clone()).await?.busy, "it waits");
    hidden.store(false, Ordering::Relaxed);
    world.prompt(&session, "say 3 words").await?;
    let exit = drain_in(&world, &session, &workspace).await;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    ensure!(system_messages(&world)?.concat().ends_with("It is sunny."));
    let roles: Vec<_> = world.told(&session).await?.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "user", "assistant"], "both are answered");
    world.check().await
}

#[tokio::test]
async fn what_was_told_stays_in_effect_while_its_source_is_unavailable() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let workspace = session.workspace(session.token());
    let hidden = Arc::new(AtomicBool::new(false));
    let key = || SourceKey::fixed("test/weather");
    let sky = |weather| Arc::new(Sky { hidden: Arc::clone(&hidden), weather });
    let sunny = workspace.sources().register(key(), sky("sunny"))?;
    let mut counts = Vec::new();
    let mut sunny = Some(sunny);
    let mut rainy = None;
    for step in 0..5 {
        hidden.store(step == 1, Ordering::Relaxed);
        if step == 2 {
            sunny = None;
            rainy = Some(workspace.sources().register(key(), sky("rainy"))?);
        }
        if step == 4 {
            rainy = None;
        }
        world.prompt(&session, "say 2 words").await?;
        let exit = drain_in(&world, &session, &workspace).await;
        assert!(matches!(exit, DrainExit::Ended(Completed)), "{step}: {exit:?}");
        counts.push(system_messages(&world)?.len());
    }
    drop((sunny, rainy));
    let messages = system_messages(&world)?;
    let first = counts[0];
    assert_eq!(counts, [first, first, first + 1, first + 1, first + 2]);
    assert_eq!(messages[first..], ["It is rainy now.", "There is no weather."]);
    world.check().await
}

#[tokio::test]
async fn an_organisations_instructions_come_first_and_stay_without_the_projects() -> Result<()> {
    for project in [true, false] {
        let world = World::with(|settings| settings.project_instructions = project).await?;
        let session = world.session().await?;
        session.file("AGENTS.md", "Use tabs.")?;
        let set = |text: Option<&str>| {
            let text = text.map(ToOwned::to_owned);
            world.store().set_organisation_instructions(ORG, text, world.clock.now_ms())
        };
        set(Some("Be brief.\n")).await?;
        let first = answered(&world, &session, "say 2 words").await?;
        let baseline = first.last().context("a baseline")?;
        let (theirs, ours) = (baseline.find("Be brief."), baseline.find("Use tabs."));
        ensure!(theirs.is_some() && ours.is_some() == project, "{baseline}");
        ensure!(ours.is_none() || theirs < ours, "the nearest comes last: {baseline}");
        set(None).await?;
        world.clock.advance(Duration::from_secs(2)); // for so long, what was said last is good
        let gone = answered(&world, &session, "say 3 words").await?;
        let update = gone.last().context("an update")?;
        ensure!(gone.len() == first.len() + 1 && !update.contains("Be brief."), "{gone:?}");
        ensure!(update.contains("Use tabs.") == project, "the complete set: {update}");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn entries_are_told_with_the_first_baseline_and_then_one_by_one() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let id = || session.at.session.clone();
    let set = |value: &str| {
        let entry = EntrySet { key: "ticket".into(), value: value.into() };
        world.store().set_entry(ORG, id(), entry, world.clock.now_ms())
    };
    set("{\"id\": 7}").await?;
    assert!(matches!(world.drain(&session).await?, DrainExit::Idle), "an entry wakes nobody");
    let first = answered(&world, &session, "say 2 words").await?;
    let told = "\n\n<context key=\"ticket\">\n{\"id\": 7}\n</context>";
    ensure!(first.last().is_some_and(|baseline| baseline.ends_with(told)), "{first:?}");
    set("null").await?;
    let null = answered(&world, &session, "say 3 words").await?;
    let update = "This context entry is now:\n<context key=\"ticket\">\nnull\n</context>";
    assert_eq!(null[first.len()..], [update.to_owned()]);
    world.store().remove_entry(ORG, id(), "ticket".into(), world.clock.now_ms()).await?;
    let gone = answered(&world, &session, "say 4 words").await?;
    assert_eq!(gone[null.len()..], ["The context entry \"ticket\" no longer applies.".to_owned()]);
    world.check().await
}
