//! The original's scenarios that no other file has: titles, controls, what is sampled when, and context beside them.
//!
//! `docs/session-runtime.md` says for each of them which test it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use context::{ContextSource, Loaded, Producer, SourceKey, SystemContext};
use domain::Delivery::{Queue, Steer};
use domain::DrainOutcome::{Completed, Failed};
use domain::{
    Clock as _, Delivery, ErrorCode, IdMint, MessageId, ModelRef, PartId, PromptAdmitted,
    PromptPart, SessionEvent, SideOutcome, Stamp, TurnStarted,
};
use history::{History, hash_hex};
use serde_json::{Value, json};
use session::{DrainExit, ObservedAt, Workspace, drain, drain_control};
use simulated_model::Script;
use store::NewPrompt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::compaction::{ended, outcomes};
use crate::tools::{call, calls, says};
use crate::world::{ORG, Session, World};

/// Parts of a prompt besides its text.
#[derive(Default)]
pub(crate) struct With<'a> {
    pub(crate) delivery: Delivery,
    pub(crate) model: Option<(&'a str, &'a str)>,
    pub(crate) synthetic: Option<&'a str>,
}

pub(crate) async fn send(
    world: &World,
    session: &Session,
    text: &str,
    with: With<'_>,
) -> Result<MessageId> {
    let now = world.clock.now_ms();
    let mut mint = IdMint::after(Stamp::default(), now);
    let message = MessageId::mint(&mut mint);
    let model = |(provider, model): (&str, &str)| ModelRef::new(provider, model);
    let prompt = PromptAdmitted {
        by: None,
        message: message.clone(),
        delivery: with.delivery,
        parts: vec![PromptPart::Text { id: PartId::mint(&mut mint), text: text.to_owned() }],
        agent: None,
        model: with.model.map(model),
        wake: true,
        digest: hash_hex(text.as_bytes()),
        synthetic: with.synthetic.map(ToOwned::to_owned),
    };
    let new = NewPrompt { session: session.at.session.clone(), prompt, now };
    world.store().admit_prompt(ORG, new).await?;
    Ok(message)
}

pub(crate) async fn turns_started(world: &World, session: &Session) -> Result<Vec<TurnStarted>> {
    let started = |event| match event {
        SessionEvent::TurnStarted(started) => Some(started),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| started(event.event)).collect())
}

/// The name of the model that each request was for.
fn models_asked(world: &World) -> Result<Vec<String>> {
    let name = |body: Option<String>| -> Result<String> {
        let body: Value = serde_json::from_str(&body.context("a body that was kept")?)?;
        Ok(body["model"].as_str().context("a model")?.to_owned())
    };
    world.model().requests().into_iter().map(|request| name(request.body)).collect()
}

/// The error that the newest drain ended with.
pub(crate) async fn error_code(world: &World, session: &Session) -> Result<String> {
    let code = |event: &SessionEvent| match event {
        SessionEvent::DrainEnded(ended) => ended.error.clone().map(|error| error.code.to_string()),
        _ => None,
    };
    let events = world.events(session).await?;
    events.iter().rev().find_map(|event| code(&event.event)).context("an error")
}

/// One drain in a workspace of the test's.
async fn drain_in(world: &World, session: &Session, workspace: &Workspace) -> DrainExit {
    let (_handle, control) = drain_control(CancellationToken::new());
    let (at, token) = (&session.at, session.token());
    Box::pin(drain(&world.worker, at, token, workspace, control, History::new())).await.0
}

/// A source that can be out of reach, or take its time.
pub(crate) struct Tide {
    unavailable: AtomicBool,
    /// Set: each look says so at `asked`, and waits for `answer`.
    slow: AtomicBool,
    asked: Notify,
    answer: Notify,
}

impl Tide {
    fn new() -> Arc<Self> {
        let (unavailable, slow) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { unavailable, slow, asked: Notify::new(), answer: Notify::new() })
    }

    /// One that is out of reach.
    pub(crate) fn unavailable() -> Arc<Self> {
        let tide = Self::new();
        tide.unavailable.store(true, Ordering::Relaxed);
        tide
    }

    pub(crate) fn key() -> SourceKey {
        SourceKey::fixed("test/tide")
    }
}

#[derive(Debug, Clone)]
struct High;

impl ContextSource for High {
    type Told = String;

    fn told(&self) -> String {
        "high".to_owned()
    }

    fn baseline(&self) -> String {
        "The tide is high.".to_owned()
    }

    fn update(&self, _told: &String) -> String {
        "The tide is high now.".to_owned()
    }
}

#[async_trait]
impl Producer<ObservedAt> for Tide {
    async fn observe(&self, _at: &ObservedAt) -> SystemContext {
        if self.slow.load(Ordering::Relaxed) {
            self.asked.notify_one();
            self.answer.notified().await;
        }
        let away = self.unavailable.load(Ordering::Relaxed);
        let loaded =
            if away { Loaded::Unavailable("no gauge".to_owned()) } else { Loaded::Value(High) };
        SystemContext::make(Self::key(), loaded)
    }
}

#[tokio::test]
async fn while_a_title_is_made_no_other_is_asked_for() -> Result<()> {
    let world = World::new().await?;
    let session = world.session_titled("New session", false).await?;
    let gated = |matches: &str, gate: &str| Script {
        matches: matches.into(),
        gate: Some(gate.into()),
        ..Script::default()
    };
    world.script(gated("<title-request>", "title"))?;
    world.script(gated("say 2", "turn"))?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        world.until_requests(2).await?;
        world.prompt(&session, "say 3 words").await?;
        world.model().open_gate("turn")?;
        world.until_requests(3).await?;
        world.model().open_gate("title")?;
        anyhow::Ok(())
    };
    let (settled, opened) = tokio::join!(world.settle(&session), meanwhile);
    opened?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(turns_started(&world, &session).await?.len(), 2);
    let kinds = world.kinds(&session).await?;
    assert_eq!(kinds.iter().filter(|kind| **kind == "title.started").count(), 1);
    let row = world.store().session(ORG, session.at.session.clone()).await?;
    assert_eq!(row.title, "say 2 words");
    world.check().await
}

#[tokio::test]
async fn synthetic_input_during_work_is_answered_in_the_same_drain() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        gate: Some("door".into()),
        ..calls("look", 0, vec![call("glob", json!({"pattern": "*"}))])
    })?;
    world.prompt(&session, "look").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        let with = With { synthetic: Some("the build"), ..With::default() };
        send(&world, &session, "say 2 words", with).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (settled, sent) = tokio::join!(world.settle(&session), meanwhile);
    sent?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1");
    let requests = world.requests()?;
    let roles: Vec<_> = requests[1].iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    let told = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::PromptPromoted(promoted) => promoted.synthetic,
        _ => None,
    });
    assert_eq!(told.as_deref(), Some("the build"));
    world.check().await
}

#[tokio::test]
async fn a_control_is_delivered_though_the_first_context_is_not_there() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let workspace = session.workspace(session.token());
    let tide = Tide::unavailable();
    let _kept = workspace.sources().register(Tide::key(), tide.clone())?;
    world.compact(&session, Steer).await?;
    let exit = drain_in(&world, &session, &workspace).await;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    let kinds = world.kinds(&session).await?;
    assert!(kinds.contains(&"control.delivered"), "{kinds:?}");
    // A prompt has to wait for it.
    world.prompt(&session, "say 2 words").await?;
    let exit = drain_in(&world, &session, &workspace).await;
    assert!(matches!(exit, DrainExit::Ended(Failed)), "{exit:?}");
    assert_eq!(world.model().counts().requests, 0);
    tide.unavailable.store(false, Ordering::Relaxed);
    world.prompt(&session, "say 3 words").await?;
    let exit = drain_in(&world, &session, &workspace).await;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    assert_eq!(world.model().counts().requests, 1);
    world.check().await
}

#[tokio::test]
async fn the_agents_text_comes_first_then_the_context_then_the_conversation() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let events = world.events(&session).await?;
    let attempt = events.iter().find_map(|event| match &event.event {
        SessionEvent::AttemptStarted(started) => Some(started.attempt.to_string()),
        _ => None,
    });
    let attempt = world.store().attempt(ORG, attempt.context("an attempt")?).await?;
    let mut names: BTreeMap<String, String> = serde_json::from_str(&attempt.components)?;
    let hash = names.remove("agent").context("an agent's text")?;
    let agent = String::from_utf8(world.store().component(ORG, &hash).await?)?;
    let baseline = events.iter().find_map(|event| match &event.event {
        SessionEvent::EpochStarted(started) => Some(started.baseline.clone()),
        _ => None,
    });
    let request = world.requests()?.pop().context("a request")?;
    let (system, rest): (Vec<_>, Vec<_>) =
        request.into_iter().partition(|message| message["role"] == "system");
    let told: String = system.iter().filter_map(|message| message["content"].as_str()).collect();
    ensure!(!agent.is_empty() && told.starts_with(&agent), "{told}");
    ensure!(told.ends_with(&baseline.context("a baseline")?), "{told}");
    assert_eq!(rest.len(), 1);
    world.check().await
}

#[tokio::test]
async fn a_model_that_is_chosen_during_a_turn_answers_its_results_and_the_epoch_stays() -> Result<()>
{
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.clock.advance(Duration::from_secs(24 * 3_600)); // something is told since the baseline
    world.script(Script {
        gate: Some("door".into()),
        ..calls("look", 0, vec![call("glob", json!({"pattern": "*"}))])
    })?;
    world.prompt(&session, "look").await?;
    let meanwhile = async {
        world.until_requests(2).await?;
        let with = With { model: Some(("simulated", "other")), ..With::default() };
        send(&world, &session, "say 3 words", with).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (settled, sent) = tokio::join!(world.settle(&session), meanwhile);
    sent?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(models_asked(&world)?, ["simulated", "simulated", "other"]);
    let turns = turns_started(&world, &session).await?;
    let models: Vec<_> = turns.iter().map(|turn| turn.model.model.as_str()).collect();
    assert_eq!(models, ["simulated", "simulated", "other"]);
    assert_eq!(turns.iter().map(|turn| turn.epoch).collect::<Vec<_>>(), [1, 1, 1]);
    let requests = world.requests()?;
    assert_eq!(requests[2][..requests[1].len()], requests[1], "baseline and updates are kept");
    ensure!(requests[1].iter().skip(1).any(|message| message["role"] == "system"), "{requests:?}");
    world.check().await
}

#[tokio::test]
async fn what_is_chosen_while_context_is_looked_at_counts_for_the_turn_that_promotes_it()
-> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let workspace = session.workspace(session.token());
    let tide = Tide::new();
    tide.slow.store(true, Ordering::Relaxed);
    let _kept = workspace.sources().register(Tide::key(), tide.clone())?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        tide.asked.notified().await;
        let with = With { model: Some(("simulated", "other")), ..With::default() };
        send(&world, &session, "say 3 words", with).await?;
        tide.slow.store(false, Ordering::Relaxed);
        tide.answer.notify_one();
        anyhow::Ok(())
    };
    let (exit, sent) = tokio::join!(drain_in(&world, &session, &workspace), meanwhile);
    sent?;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    // The head had moved: it was decided again, with both prompts.
    assert_eq!(models_asked(&world)?, ["other"]);
    let roles: Vec<_> = world.told(&session).await?.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "user", "assistant"]);
    world.check().await
}

#[tokio::test]
async fn a_model_that_nobody_has_fails_before_a_request_and_another_choice_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let of = |provider| With { model: Some((provider, "simulated")), ..With::default() };
    send(&world, &session, "say 2 words", of("nowhere")).await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error_code(&world, &session).await?, "model.unknown");
    assert_eq!(world.model().counts().requests, 0);
    assert!(turns_started(&world, &session).await?.is_empty());
    send(&world, &session, "say 3 words", of("simulated")).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.requests()?[0].len(), 3, "both prompts are answered");
    // Nor is a summary asked for, and what waits behind it goes on.
    send(&world, &session, "say 4 words", of("nowhere")).await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    world.compact(&session, Queue).await?;
    let with = With { delivery: Queue, ..of("simulated") };
    send(&world, &session, "say 5 words", with).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let failed = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(failed.outcome, SideOutcome::Failed);
    assert_eq!(failed.error.context("an error")?.code, ErrorCode::ModelUnknown);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2 w3 w4");
    assert_eq!(world.model().counts().requests, 2);
    world.check().await
}

#[tokio::test]
async fn no_summary_is_asked_for_while_what_was_told_cannot_be_told_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let workspace = session.workspace(session.token());
    let tide = Tide::new();
    let _kept = workspace.sources().register(Tide::key(), tide.clone())?;
    let answered = async |text: &str, unavailable| {
        tide.unavailable.store(unavailable, Ordering::Relaxed);
        world.prompt(&session, text).await?;
        let exit = drain_in(&world, &session, &workspace).await;
        assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
        let request = world.requests()?.pop().context("a request")?;
        anyhow::Ok(request)
    };
    let first = answered("say 2 words", false).await?;
    world.compact(&session, Steer).await?;
    let second = answered("say 3 words", true).await?;
    let failed = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(failed.outcome, SideOutcome::Failed);
    assert_eq!(failed.error.context("an error")?.code, ErrorCode::ContextUnavailable);
    assert_eq!(world.model().counts().requests, 2, "no summary was asked for");
    assert_eq!(second[..first.len()], first, "nothing is half applied");
    // It is told in the next epoch's baseline, once it can be.
    world.compact(&session, Steer).await?;
    let third = answered("say 4 words", false).await?;
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Failed, SideOutcome::Completed]);
    let baseline = third[0]["content"].as_str().context("a baseline")?;
    ensure!(baseline.ends_with("The tide is high."), "{baseline}");
    world.check().await
}

#[tokio::test]
async fn prompts_calls_results_and_context_are_one_request_in_the_order_of_things() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    world.prompt(&session, "read a.txt then say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.clock.advance(Duration::from_secs(24 * 3_600));
    world.script(says("later", 0, "yes"))?;
    world.prompt(&session, "later").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = world.requests()?.pop().context("a request")?;
    let roles: Vec<_> = last.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user", "system"]);
    world.check().await
}
