//! Compactions that succeed: on request at their place in the inbox, at the model's limits, and on a provider's
//! overflow.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::Completed;
use domain::{
    CompactionEnded, CompactionReason, CompactionStarted, Delivery, ErrorCode, SessionEvent,
    SideOutcome, TurnOutcome,
};
use serde_json::{Value, json};
use session::{CompactionSettings, ModelFacts};
use simulated_model::Script;

use crate::tools::{calls, says, shell};
use crate::world::{Session, World};

pub(crate) const SUMMARY: &str = "<summary-request>";

/// Small numbers, so that a short conversation is a long one.
pub(crate) const SMALL: CompactionSettings =
    CompactionSettings { auto: true, buffer: 500, output_cap: 500, keep: 300, cuts: true };

/// A world whose model has room for `tokens` more than its first request, which has been answered in the
/// session that is returned.
pub(crate) async fn cramped(tokens: u64) -> Result<(World, Session)> {
    let mut world = World::with(|settings| settings.rules.compaction = SMALL).await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let used = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::AttemptEnded(ended) => ended.usage,
        _ => None,
    });
    let first = u64::try_from(used.context("usage")?.input)?;
    let context_limit = Some(first + tokens + SMALL.buffer);
    world.model_is(ModelFacts { context_limit, ..ModelFacts::default() });
    Ok((world, session))
}

pub(crate) async fn started(world: &World, session: &Session) -> Result<Vec<CompactionStarted>> {
    let started = |event| match event {
        SessionEvent::CompactionStarted(started) => Some(started),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| started(event.event)).collect())
}

pub(crate) async fn ended(world: &World, session: &Session) -> Result<Vec<CompactionEnded>> {
    let ended = |event| match event {
        SessionEvent::CompactionEnded(ended) => Some(ended),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| ended(event.event)).collect())
}

pub(crate) async fn outcomes(world: &World, session: &Session) -> Result<Vec<SideOutcome>> {
    Ok(ended(world, session).await?.into_iter().map(|ended| ended.outcome).collect())
}

pub(crate) async fn turns(world: &World, session: &Session) -> Result<Vec<TurnOutcome>> {
    let settled = |event| match event {
        SessionEvent::TurnSettled(settled) => Some(settled.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| settled(event.event)).collect())
}

/// Role and the beginning of the text of each message.
pub(crate) fn gist(request: &[Value]) -> Vec<String> {
    let one = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        let line = text.trim_start().lines().next().unwrap_or_default();
        let line: String = line.chars().take(24).collect();
        format!("{}: {line}", message["role"].as_str().unwrap_or_default())
    };
    request.iter().skip(1).map(one).collect()
}

pub(crate) fn last_gist(world: &World) -> Result<Vec<String>> {
    Ok(gist(&world.requests()?.pop().context("a request")?))
}

pub(crate) fn overflows(matches: &str, times: u32) -> Script {
    let body = json!({ "error": {
        "code": "context_length_exceeded", "message": "this is too long for the model" } });
    Script {
        matches: matches.into(),
        times: Some(times),
        status: Some(400),
        body: Some(body),
        ..Script::default()
    }
}

#[tokio::test]
async fn on_request_the_conversation_becomes_a_summary_and_an_epoch_and_nobody_is_asked_twice()
-> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.clock.advance(Duration::from_secs(24 * 3_600));
    for prompt in ["say 2 words", "say 3 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.requests()?.len(), 3, "a summary, and no request without input");
    assert_eq!(
        last_gist(&world)?,
        [
            "user: say 2 words",
            "assistant: w0 w1",
            "user: say 3 words",
            "assistant: w0 w1 w2",
            "user: <summary-request>"
        ]
    );
    let kinds = world.kinds(&session).await?;
    assert_eq!(
        kinds[kinds.len() - 8..],
        [
            "control.admitted",
            "control.delivered",
            "compaction.started",
            "attempt.started",
            "attempt.ended",
            "compaction.ended",
            "epoch.started",
            "drain.ended"
        ]
    );
    let started = started(&world, &session).await?.pop().context("a compaction")?;
    assert_eq!((started.reason, started.continuing), (CompactionReason::Manual, false));
    world.prompt(&session, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    // All of it fits into what is kept: the newest exchange alone stays.
    assert_eq!(
        last_gist(&world)?,
        [
            "user: <conversation-checkpoint",
            "user: say 3 words",
            "assistant: w0 w1 w2",
            "user: say 4 words"
        ]
    );
    world.check().await
}

#[tokio::test]
async fn a_second_summary_builds_on_the_first_checkpoint() -> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.keep = 1).await?;
    let session = world.session().await?;
    world.script(Script { times: Some(1), ..says(SUMMARY, 0, "## Objective\nthe first one") })?;
    for _ in 0..2 {
        world.prompt(&session, "say 2 words").await?;
        world.compact(&session, Delivery::Queue).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed; 2]);
    let all = started(&world, &session).await?;
    let names_it = |at: usize| all[at].prompt.contains("A checkpoint of earlier work");
    assert_eq!((names_it(0), names_it(1)), (false, true));
    assert_eq!(
        last_gist(&world)?,
        [
            "user: <conversation-checkpoint",
            "user: say 2 words",
            "assistant: w0 w1",
            "user: <summary-request>"
        ]
    );
    let last = world.requests()?.pop().context("a request")?;
    assert!(last[1]["content"].to_string().contains("the first one"), "{}", last[1]);
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(last_gist(&world)?, ["user: <conversation-checkpoint", "user: say 3 words"]);
    world.check().await
}

#[tokio::test]
async fn what_steers_is_before_a_queued_compaction_and_the_rest_of_the_queue_behind_it()
-> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.compact(&session, Delivery::Queue).await?;
    world.admit(&session, Delivery::Queue, "say 4 words").await?;
    world.admit(&session, Delivery::Steer, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let requests = world.requests()?;
    assert_eq!(gist(&requests[1]).pop().as_deref(), Some("user: say 3 words"));
    assert_eq!(gist(&requests[2]).pop().as_deref(), Some("user: <summary-request>"));
    assert_eq!(gist(&requests[3]).pop().as_deref(), Some("user: say 4 words"));
    assert_eq!(requests.len(), 4);
    world.check().await
}

#[tokio::test]
async fn one_compaction_waits_at_a_time_and_a_cancelled_one_never_runs() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let first = world.compact(&session, Delivery::Steer).await?;
    let second = world.compact(&session, Delivery::Steer).await?;
    assert_eq!(second.control.message, first.control.message);
    let (id, now) = (session.at.session.clone(), first.admitted_ms);
    let input = first.control.message;
    world.store().cancel_input(crate::world::ORG, id, input, now).await?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert!(started(&world, &session).await?.is_empty());
    world.check().await
}

#[tokio::test]
async fn one_that_steers_comes_before_the_model_answers_its_results() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let work = "echo 1 > here; until [ -e go ]; do sleep 0.01; done; echo done";
    // Once: the summary quotes the prompt.
    world.script(Script { times: Some(1), ..calls("work", 0, vec![shell(work)]) })?;
    world.prompt(&session, "work").await?;
    let meanwhile = async {
        session.until_file("here").await?;
        world.compact(&session, Delivery::Steer).await?;
        world.admit(&session, Delivery::Queue, "say 3 words").await?;
        session.file("go", "")
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Completed]);
    let requests = world.requests()?;
    assert_eq!(
        gist(&requests[1]),
        ["user: work", "assistant: ", "tool: done", "user: <summary-request>"]
    );
    // The prompt stays word for word, and the work goes on from there before the queue does.
    assert_eq!(
        gist(&requests[2]),
        ["user: <conversation-checkpoint", "user: work", "user: <notice>Your work so far"]
    );
    assert_eq!(gist(&requests[3]).pop().as_deref(), Some("user: say 3 words"));
    assert_eq!(requests.len(), 4);
    let started = started(&world, &session).await?.pop().context("a compaction")?;
    assert!(started.continuing);
    world.check().await
}

#[tokio::test]
async fn its_request_has_the_prefix_of_a_turns() -> Result<()> {
    let (world, session) = cramped(900).await?;
    world.prompt(&session, "say 750 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 750 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let bodies: Vec<String> =
        world.model().requests().into_iter().map(|request| request.body.unwrap()).collect();
    let end = |body: &str| body.find("],\"tools\":").expect("messages come before tools");
    let reasons: Vec<_> =
        started(&world, &session).await?.into_iter().map(|started| started.reason).collect();
    assert_eq!(reasons, [CompactionReason::Manual, CompactionReason::Auto]);
    let mut summaries = 0;
    for pair in bodies.windows(2).filter(|pair| pair[1].contains(SUMMARY)) {
        let (before, summary) = (&pair[0], &pair[1]);
        let prefix = &before[..end(before)];
        ensure!(summary.starts_with(prefix), "{prefix} is no prefix of {summary}");
        ensure!(before[end(before)..] == summary[end(summary)..], "what follows is the same");
        summaries += 1;
    }
    assert_eq!(summaries, 2);
    world.check().await
}

#[tokio::test]
async fn near_the_models_limit_it_comes_before_the_turn_and_the_recent_exchanges_stay() -> Result<()>
{
    let (world, session) = cramped(700).await?;
    for prompt in ["say 700 words", "say 5 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let requests = world.requests()?;
    assert_eq!(
        gist(&requests[2]),
        [
            "user: say 2 words",
            "assistant: w0 w1",
            "user: say 700 words",
            "assistant: w0 w1 w2 w3 w4 w5 w6 w7 ",
            "user: say 5 words",
            "user: <summary-request>"
        ]
    );
    assert_eq!(gist(&requests[3]), ["user: <conversation-checkpoint", "user: say 5 words"]);
    assert_eq!(requests.len(), 4);
    // The next round: another long answer, and the summary of the first is updated.
    for prompt in ["say 700 words", "say 6 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let all = started(&world, &session).await?;
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|one| one.reason == CompactionReason::Auto && one.continuing));
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed; 2]);
    assert_eq!(last_gist(&world)?, ["user: <conversation-checkpoint", "user: say 6 words"]);
    world.check().await
}

#[tokio::test]
async fn a_model_whose_limit_is_not_known_or_switched_off_is_never_compacted_on_its_own()
-> Result<()> {
    let (mut world, session) = cramped(300).await?;
    world.model_is(ModelFacts::default());
    for prompt in ["say 700 words", "say 5 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    assert!(started(&world, &session).await?.is_empty());
    world.check().await
}

#[tokio::test]
async fn messages_of_an_earlier_epoch_leave_the_history_and_the_new_baseline_has_what_they_told()
-> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.keep = 100_000).await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.clock.advance(Duration::from_secs(24 * 3_600));
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert!(last_gist(&world)?.iter().any(|message| message.starts_with("system: ")));
    let first = world.requests()?.pop().context("a request")?[0].clone();
    world.compact(&session, Delivery::Steer).await?;
    world.prompt(&session, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        last_gist(&world)?,
        [
            "user: <conversation-checkpoint",
            "user: say 3 words",
            "assistant: w0 w1 w2",
            "user: say 4 words"
        ]
    );
    let last = world.requests()?.pop().context("a request")?[0].clone();
    assert_ne!(last["content"], first["content"], "the date is told in the baseline now");
    world.clock.advance(Duration::from_secs(24 * 3_600));
    world.prompt(&session, "say 5 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let now = world.requests()?.pop().context("a request")?;
    assert_eq!(now[0], last, "and the new one is as immutable");
    assert!(last_gist(&world)?.pop().context("a message")?.starts_with("system: "));
    world.check().await
}

#[tokio::test]
async fn an_overflow_is_compacted_once_and_the_turn_goes_on_without_new_input() -> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.keep = 1).await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.script(overflows("say 3", 1))?;
    world.script(Script {
        gate: Some("door".into()),
        matches: SUMMARY.into(),
        ..Script::default()
    })?;
    world.prompt(&session, "say 3 words").await?;
    let meanwhile = async {
        world.until_kind(&session, "compaction.started").await?;
        world.admit(&session, Delivery::Queue, "say 4 words").await?;
        world.model().open_gate("door")?;
        anyhow::Ok(())
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(
        turns(&world, &session).await?,
        [
            TurnOutcome::Completed,
            TurnOutcome::Overflowed,
            TurnOutcome::Completed,
            TurnOutcome::Completed
        ]
    );
    let requests = world.requests()?;
    // The prompt that was refused is not answered yet, so it stays.
    assert_eq!(gist(&requests[3]), ["user: <conversation-checkpoint", "user: say 3 words"]);
    assert_eq!(gist(&requests[4]).pop().as_deref(), Some("user: say 4 words"));
    let steps: Vec<i32> = world
        .events(&session)
        .await?
        .into_iter()
        .filter_map(|event| match event.event {
            SessionEvent::TurnStarted(started) => Some(started.step),
            _ => None,
        })
        .collect();
    assert_eq!(steps, [1, 1, 1, 1], "the step is given back");
    let started = started(&world, &session).await?.pop().context("a compaction")?;
    assert_eq!(started.reason, CompactionReason::Overflow);
    assert_eq!(started.cause.context("a cause")?.code, ErrorCode::ProviderContextOverflow);
    world.check().await
}
