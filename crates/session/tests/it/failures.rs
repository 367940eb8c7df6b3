//! Providers that refuse, and streams that break.

use std::time::Duration;

use anyhow::{Context, Result};
use domain::DrainOutcome::{Completed, Failed};
use domain::{AttemptOutcome, Delivery, SessionEvent, TurnOutcome};
use simulated_model::Script;

use crate::tools::{calls, says, shell};
use crate::world::{SOON, Session, World};

fn refuses(matches: &str, status: u16, times: u32) -> Script {
    let (matches, status, times) = (matches.into(), Some(status), Some(times));
    Script { matches, status, times, ..Script::default() }
}

async fn attempts(world: &World, session: &Session) -> Result<Vec<AttemptOutcome>> {
    let outcome = |event: &SessionEvent| match event {
        SessionEvent::AttemptEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| outcome(&event.event)).collect())
}

async fn turns(world: &World, session: &Session) -> Result<Vec<TurnOutcome>> {
    let outcome = |event: &SessionEvent| match event {
        SessionEvent::TurnSettled(settled) => Some(settled.outcome),
        _ => None,
    };
    Ok(world.events(session).await?.iter().filter_map(|event| outcome(&event.event)).collect())
}

async fn error_code(world: &World, session: &Session) -> Result<String> {
    let code = |event: &SessionEvent| match event {
        SessionEvent::DrainEnded(ended) => ended.error.clone().map(|error| error.code.to_string()),
        _ => None,
    };
    let events = world.events(session).await?;
    events.iter().rev().find_map(|event| code(&event.event)).context("an error")
}

#[tokio::test]
async fn a_rate_limit_is_waited_out_in_the_same_turn_with_the_same_bytes() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { retry_after_ms: Some(150), ..refuses("say", 429, 1) })?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(
        attempts(&world, &session).await?,
        [AttemptOutcome::Failed, AttemptOutcome::Completed]
    );
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Completed]);
    let events = world.events(&session).await?;
    let scheduled = events.iter().find_map(|event| match &event.event {
        SessionEvent::RetryScheduled(scheduled) => Some((event.time, scheduled.clone())),
        _ => None,
    });
    let (at, scheduled) = scheduled.context("a durable retry")?;
    assert_eq!((scheduled.ordinal, scheduled.error.code.as_str()), (2, "provider.rate-limit"));
    assert!(scheduled.at >= at + 150, "{scheduled:?}");
    let sent = world.model().counts().by_sha256;
    assert_eq!(sent.values().collect::<Vec<_>>(), [&2]);
    world.check().await
}

#[tokio::test]
async fn retries_end_in_a_failure_and_the_next_prompt_runs() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(refuses("busy", 429, 3))?;
    world.prompt(&session, "busy").await?;
    world.admit(&session, Delivery::Queue, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed, Completed]);
    assert_eq!(error_code(&world, &session).await?, "provider.rate-limit");
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Failed, TurnOutcome::Completed]);
    assert_eq!(world.model().counts().refused, 3);
    let failed = &world.messages(&session).await?[1];
    assert_eq!(failed.error.as_ref().map(|error| error.code.as_str()), Some("provider.rate-limit"));
    assert_eq!(world.answer(&session).await?, "w0 w1");
    world.check().await
}

#[tokio::test]
async fn a_wrong_key_is_terminal_at_once() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(refuses("key", 401, 9))?;
    world.prompt(&session, "key").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(attempts(&world, &session).await?, [AttemptOutcome::Failed]);
    assert_eq!(error_code(&world, &session).await?, "provider.authentication");
    world.check().await
}

#[tokio::test]
async fn a_stream_that_breaks_before_any_output_is_tried_again() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let cut = Script { matches: "say".into(), times: Some(1), ..Script::default() };
    world.script(Script { cut_before_headers: true, ..cut.clone() })?;
    world.script(Script { cut_after_chunks: Some(1), ..cut })?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Completed]);
    assert_eq!(attempts(&world, &session).await?.len(), 3);
    assert_eq!(world.messages(&session).await?.len(), 2);
    world.check().await
}

#[tokio::test]
async fn a_call_that_nobody_saw_does_not_make_a_broken_stream_visible() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let work = calls("work", 0, vec![shell("echo x >> ran"), shell("echo y >> ran")]);
    let cut_after_chunks = Some(100_000); // just before the finish: the first call is whole
    world.script(Script { times: Some(1), cut_after_chunks, ..work.clone() })?;
    world.script(work)?;
    world.script(says("work", 1, "done"))?;
    world.prompt(&session, "work").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Completed; 2]);
    assert_eq!(
        attempts(&world, &session).await?,
        [AttemptOutcome::Failed, AttemptOutcome::Completed, AttemptOutcome::Completed]
    );
    let mut ran: Vec<_> = session.content("ran").lines().map(str::to_owned).collect();
    ran.sort();
    assert_eq!(ran, ["x", "y"]);
    world.check().await
}

#[tokio::test]
async fn a_stream_that_breaks_after_text_is_continued_and_nothing_is_said_twice() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        times: Some(1),
        cut_after_chunks: Some(4),
        ..says("story", 0, "once upon a time there was")
    })?;
    world.script(says("story", 0, "the end"))?;
    world.prompt(&session, "story").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Cut, TurnOutcome::Completed]);
    assert_eq!(attempts(&world, &session).await?, [AttemptOutcome::Cut, AttemptOutcome::Completed]);
    let told = world.told(&session).await?;
    let roles: Vec<_> = told.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "notice", "assistant"]);
    assert!(told[1].1.concat().starts_with("once"), "{told:?}");
    let last = world.requests()?.pop().context("a request")?;
    let said = serde_json::to_string(&last)?;
    assert_eq!(said.matches("upon").count(), 1, "{said}");
    assert_eq!(last.len(), 4);
    world.check().await
}

#[tokio::test]
async fn a_stream_that_breaks_beside_a_running_tool_keeps_its_call_and_result() -> Result<()> {
    let world = World::with(|settings| {
        // The tool must go on while the drain backs off.
        settings.rules.retry.base = Duration::from_millis(2_000);
        settings.intent_delay = SOON;
        settings.result_delay = SOON;
    })
    .await?;
    let session = world.session().await?;
    let chunks = 100_000;
    world.script(Script {
        times: Some(1),
        gate: Some("cut".into()),
        gate_after_chunks: Some(chunks),
        cut_after_chunks: Some(chunks),
        ..calls("tool", 0, vec![shell("echo ran >> ran"), shell("echo never >> never")])
    })?;
    world.script(says("tool", 1, "done"))?;
    world.prompt(&session, "tool").await?;
    let meanwhile = async {
        session.until_file("ran").await?;
        Ok::<_, anyhow::Error>(world.model().open_gate("cut")?)
    };
    let (outcomes, seen) = tokio::join!(world.settle(&session), meanwhile);
    seen?;
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(turns(&world, &session).await?, [TurnOutcome::Cut, TurnOutcome::Completed]);
    assert_eq!((session.content("ran").as_str(), session.content("never").as_str()), ("ran\n", ""));
    // Its result was durable before the back-off ended.
    let events = world.events(&session).await?;
    let at = |kind: &str| events.iter().find(|event| event.event.kind() == kind).map(|e| e.time);
    assert!(at("tool.settled") < at("turn.settled"), "{:?}", world.kinds(&session).await?);
    let last = world.requests()?.pop().context("a request")?;
    let roles: Vec<_> = last.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
    world.check().await
}

#[tokio::test]
async fn cuts_share_the_budget_of_retries() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { cut_after_chunks: Some(3), ..says("story", 0, "once upon a time") })?;
    world.prompt(&session, "story").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(
        turns(&world, &session).await?,
        [TurnOutcome::Cut, TurnOutcome::Cut, TurnOutcome::Failed]
    );
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn a_withheld_answer_is_a_failure_that_keeps_its_text_and_its_tools() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        finish_reason: Some("content_filter".into()),
        ..says("policy", 0, "I would")
    })?;
    world.prompt(&session, "policy").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error_code(&world, &session).await?, "provider.content-filter");
    assert_eq!(world.answer(&session).await?, "I would");
    world.check().await
}

// Finding llm 5: a request that may have been charged is sent anew only so often.
#[tokio::test]
async fn retries_that_may_be_charged_are_bounded() -> Result<()> {
    let world = World::with(|settings| {
        settings.rules.retry.max_retries = 9;
        settings.rules.retry.max_paid_retries = 1;
    })
    .await?;
    let session = world.session().await?;
    let lost = Script { matches: "lost".into(), cut_before_headers: true, ..Script::default() };
    world.script(lost)?;
    // One that was refused costs nothing, and does not count.
    world.script(refuses("busy", 429, 3))?;
    world.prompt(&session, "lost").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error_code(&world, &session).await?, "provider.transport");
    assert_eq!(attempts(&world, &session).await?, [AttemptOutcome::Failed; 2]);
    world.prompt(&session, "busy").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

// Finding scenarios F12: each request says which session it belongs to.
#[tokio::test]
async fn requests_name_their_session() -> Result<()> {
    let world = World::new().await?;
    for _ in 0..2 {
        let session = world.session().await?;
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let request = world.model().requests().pop().context("a request")?;
        let named = request.headers.get("x-session-affinity").cloned();
        assert_eq!(named, Some(session.at.session.to_string()));
    }
    Ok(())
}
