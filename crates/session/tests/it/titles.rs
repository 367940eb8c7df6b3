//! Titles that models give to sessions, beside the turns that answer them; and what it all costs.

use std::time::Duration;

use anyhow::{Context, Result};
use domain::DrainOutcome::{Completed, Interrupted};
use domain::{
    Clock as _, IdMint, RecordedEvent, SessionCreated, SessionEvent, SessionId, SessionRef,
    SessionRenamed, SideOutcome, Stamp, TitledBy, TurnUsage,
};
use history::History;
use session::{ModelFacts, Rates, drain_control};
use simulated_model::Script;
use store::NewSession;
use tokio_util::sync::CancellationToken;

use crate::tools::says;
use crate::world::{NEVER, ORG, SOON, Session, World};

const TITLE: &str = "<title-request>";

fn titles(script: Script) -> Script {
    Script { matches: TITLE.into(), ..script }
}

async fn title(world: &World, session: &Session) -> Result<String> {
    Ok(world.store().session(ORG, session.at.session.clone()).await?.title)
}

async fn outcomes(world: &World, session: &Session) -> Result<Vec<SideOutcome>> {
    let ended = |event| match event {
        SessionEvent::TitleEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| ended(event.event)).collect())
}

/// How many requests asked for a title.
fn asked(world: &World) -> Result<usize> {
    let requests = world.requests()?;
    let asks = |request: &&Vec<serde_json::Value>| {
        request.last().is_some_and(|last| last["content"].to_string().contains(TITLE))
    };
    Ok(requests.iter().filter(asks).count())
}

#[tokio::test]
async fn a_session_that_nobody_named_gets_a_title_while_its_first_turn_runs() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    let gate = Some("door".to_owned());
    world.script(Script { matches: "say".into(), gate, ..Script::default() })?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        // The title's request does not wait for the turn's.
        world.until_requests(2).await?;
        world.model().wait_for(|counts| counts.answered >= 1).await;
        world.model().open_gate("door")?;
        anyhow::Ok(())
    };
    let (settled, opened) = tokio::join!(world.settle(&session), meanwhile);
    opened?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(title(&world, &session).await?, "say 2 words");
    let kinds = world.kinds(&session).await?;
    let at = |kind| kinds.iter().position(|other| *other == kind);
    assert!(at("title.started") < at("turn.started"), "one write: {kinds:?}");
    let renamed = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::SessionRenamed(renamed) => Some(renamed.by),
        _ => None,
    });
    assert_eq!(renamed, Some(TitledBy::Model));
    // Its request shows nothing of the conversation, and no tools.
    let body = world
        .model()
        .requests()
        .into_iter()
        .filter_map(|request| request.body)
        .find(|body| body.contains(TITLE))
        .context("a title's request")?;
    assert!(!body.contains("\"tools\""), "{body}");
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!((asked(&world)?, world.requests()?.len()), (1, 3));
    world.check().await
}

#[tokio::test]
async fn a_title_costs_no_commit_of_its_own_when_it_comes_before_the_answer() -> Result<()> {
    let world = World::new().await?;
    let mut writes = Vec::new();
    for named in [true, false] {
        let session = world.session_titled("x", named).await?;
        let gate = Some(format!("door-{named}"));
        let matches = "say 2".into();
        world.script(Script {
            matches,
            gate: gate.clone(),
            times: Some(1),
            ..Script::default()
        })?;
        world.prompt(&session, "say 2 words").await?;
        let before = world.model().counts();
        let meanwhile = async {
            let requests = before.requests + 1 + u64::from(!named);
            let answered = before.answered + u64::from(!named);
            world
                .model()
                .wait_for(|counts| counts.requests >= requests && counts.answered >= answered)
                .await;
            // Until the worker has read it.
            tokio::time::sleep(Duration::from_millis(100)).await;
            world.model().open_gate(&gate.context("a gate")?)?;
            anyhow::Ok(())
        };
        let (settled, opened) = tokio::join!(world.settle(&session), meanwhile);
        opened?;
        assert_eq!(settled?, [Completed]);
        // The events of one write have one time.
        let mut times: Vec<_> = world
            .events(&session)
            .await?
            .into_iter()
            .filter(|event| event.claim.is_some())
            .map(|event| event.time)
            .collect();
        times.dedup();
        writes.push(times.len());
    }
    assert_eq!(writes, [2, 2], "the first boundary, and the answer with the end");
    world.check().await
}

#[tokio::test]
async fn a_session_that_somebody_named_or_that_is_a_child_gets_none() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("mine", true).await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!((title(&world, &session).await?.as_str(), asked(&world)?), ("mine", 0));

    // A child has whatever name its parent's call gave it.
    let row = world.store().session(ORG, session.at.session.clone()).await?;
    let now = world.clock.now_ms();
    let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
    let created = SessionCreated {
        by: None,
        project: row.project,
        location: session.at.location.clone(),
        directory: row.directory,
        title: "New session".into(),
        agent: row.agent,
        model: None,
        parent: Some(session.at.session.clone()),
        named: false,
        rules: Vec::new(),
        metadata: None,
    };
    world.store().create_session(ORG, NewSession { id: id.clone(), created, now }).await?;
    let child = session.another(SessionRef { session: id, ..session.at.clone() });
    world.prompt(&child, "say 2 words").await?;
    assert_eq!(world.settle(&child).await?, [Completed]);
    assert_eq!((title(&world, &child).await?.as_str(), asked(&world)?), ("New session", 0));
    assert!(outcomes(&world, &child).await?.is_empty());

    let off = World::with(|settings| settings.rules.titles = false).await?;
    let session = off.session_titled("New session", false).await?;
    off.prompt(&session, "say 2 words").await?;
    assert_eq!(off.settle(&session).await?, [Completed]);
    assert_eq!(asked(&off)?, 0);
    off.check().await?;
    world.check().await
}

#[tokio::test]
async fn a_name_that_somebody_gives_meanwhile_wins() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    world.script(titles(Script { gate: Some("door".into()), ..Script::default() }))?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        world.until_requests(2).await?;
        let (id, now) = (session.at.session.clone(), world.clock.now_ms());
        let renamed = SessionRenamed { title: "mine".into(), by: TitledBy::User };
        world.store().edit_session(ORG, id, renamed.into(), now).await?;
        world.model().open_gate("door")?;
        anyhow::Ok(())
    };
    let (settled, renamed) = tokio::join!(world.settle(&session), meanwhile);
    renamed?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(title(&world, &session).await?, "mine");
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    world.check().await
}

#[tokio::test]
async fn one_that_failed_is_made_of_the_first_prompt_at_the_next_promotion() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    world.script(titles(Script { status: Some(500), times: Some(1), ..Script::default() }))?;
    world.script(Script { times: Some(1), ..says(TITLE, 0, " \n ") })?;
    for prompt in ["say 2 words", "say 3 words", "say 4 words", "say 5 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let (failed, done) = (SideOutcome::Failed, SideOutcome::Completed);
    assert_eq!(outcomes(&world, &session).await?, [failed, failed, done]);
    assert_eq!(title(&world, &session).await?, "say 2 words");
    world.check().await
}

#[tokio::test]
async fn a_drain_with_nothing_else_to_do_waits_for_it_but_not_for_long() -> Result<()> {
    let mut world = World::with(|settings| settings.title_wait = SOON).await?;
    let session = world.session_titled("New session", false).await?;
    world.script(titles(Script { hang: true, times: Some(1), ..Script::default() }))?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost]);
    // This one comes when nothing else is left to do.
    world.settings.title_wait = NEVER;
    world.worker = world.another_worker()?;
    world.script(titles(Script { gate: Some("door".into()), ..Script::default() }))?;
    world.prompt(&session, "say 3 words").await?;
    let settled = |events: &[RecordedEvent]| {
        let turns = events.iter().filter(|event| event.event.kind() == "turn.settled");
        (turns.count() == 2).then_some(())
    };
    let meanwhile = async {
        world.until(&session, settled).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (outcomes, opened) = tokio::join!(world.settle(&session), meanwhile);
    opened?;
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(title(&world, &session).await?, "say 2 words");
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds.last(), Some(&"drain.ended"));
    world.check().await
}

#[tokio::test]
async fn an_interrupt_does_not_wait_for_it() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    world.script(titles(Script { hang: true, times: Some(1), ..Script::default() }))?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        world.until_kind(&session, "turn.settled").await?;
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost]);
    world.check().await
}

#[tokio::test]
async fn one_whose_worker_died_is_settled_and_the_turn_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    world.script(Script {
        matches: "say".into(),
        hang: true,
        times: Some(1),
        ..Script::default()
    })?;
    world.script(titles(Script { hang: true, times: Some(1), ..Script::default() }))?;
    world.prompt(&session, "say 2 words").await?;
    let (_handle, control) = drain_control(CancellationToken::new());
    tokio::select! {
        arrived = world.until_requests(2) => arrived?,
        (exit, _) = session.run(&world.worker, control, History::new()) => panic!("{exit:?}"),
    }
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    // The turn starts over as the first one, and the title with it.
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost, SideOutcome::Completed]);
    assert_eq!(title(&world, &session).await?, "say 2 words");
    world.check().await
}

#[tokio::test]
async fn every_attempt_costs_what_the_models_prices_say() -> Result<()> {
    let mut world = World::new().await?;
    let prices =
        Rates { input: 2_500_000, output: 10_000_000, cache_read: 250_000, ..Rates::default() };
    world.model_is(ModelFacts { prices: Some(prices.into()), ..ModelFacts::default() });
    let session = world.session_titled("New session", false).await?;
    world.script(Script {
        matches: "say".into(),
        cut_after_chunks: Some(3),
        times: Some(1),
        ..Script::default()
    })?;
    world.prompt(&session, "say 40 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.compact(&session, domain::Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (mut attempts, mut sides, mut turns) = (0, 0, 0);
    for event in world.events(&session).await? {
        match event.event {
            SessionEvent::AttemptEnded(ended) => {
                let Some(used) = ended.usage else { continue };
                let expected = (used.input * 2_500 + used.output * 10_000) as f64;
                assert!((used.cost as f64 - expected).abs() < 1.0, "{used:?}");
                assert!(used.cost > 0);
                attempts += used.cost;
            }
            SessionEvent::TurnSettled(settled) => turns += settled.usage.cost,
            SessionEvent::TitleEnded(ended) => sides += ended.usage.cost,
            SessionEvent::CompactionEnded(ended) => sides += ended.usage.cost,
            _ => {}
        }
    }
    assert!(turns > 0 && sides > 0);
    assert_eq!(attempts, turns + sides);
    let tree = world.store().tree_usage(ORG, session.at.session.clone()).await?;
    let TurnUsage { cost, .. } = tree.tree;
    assert_eq!(cost, attempts, "the session's row has all of it");
    world.check().await
}
