//! Compactions that fail, are cancelled or lose their worker: each is settled, and none is half applied.

use anyhow::{Context, Result};
use domain::DrainOutcome::{Completed, Failed, Interrupted};
use domain::{
    AttemptOutcome, Delivery, ErrorCode, SessionError, SessionEvent, SideOutcome, TurnOutcome,
};
use history::History;
use session::{DrainExit, ModelFacts, drain_control};
use simulated_model::Script;
use tokio_util::sync::CancellationToken;

use crate::compaction::{
    SMALL, SUMMARY, cramped, ended, gist, last_gist, outcomes, overflows, started, turns,
};
use crate::tools::says;
use crate::world::{Session, World};

/// A session with one exchange.
async fn begun() -> Result<(World, Session)> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    Ok((world, session))
}

fn summary(script: Script) -> Script {
    Script { matches: SUMMARY.into(), ..script }
}

async fn attempts(world: &World, session: &Session) -> Result<Vec<AttemptOutcome>> {
    let ended = |event| match event {
        SessionEvent::AttemptEnded(ended) => Some(ended.outcome),
        _ => None,
    };
    let events = world.events(session).await?;
    Ok(events.into_iter().skip(10).filter_map(|event| ended(event.event)).collect())
}

async fn error(world: &World, session: &Session) -> Result<SessionError> {
    let last = world.events(session).await?.pop().context("an event")?.event;
    let SessionEvent::DrainEnded(ended) = last else { panic!("{last:?}") };
    ended.error.context("an error")
}

/// The next prompt is answered with the whole conversation before it.
async fn goes_on_unchanged(world: &World, session: &Session) -> Result<()> {
    world.prompt(session, "say 3 words").await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    assert_eq!(last_gist(world)?, ["user: say 2 words", "assistant: w0 w1", "user: say 3 words"]);
    world.check().await
}

#[tokio::test]
async fn without_history_it_says_so_asks_nobody_and_releases_what_is_behind_it() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.compact(&session, Delivery::Queue).await?;
    world.admit(&session, Delivery::Queue, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let failed = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(failed.outcome, SideOutcome::Failed);
    assert_eq!(failed.error.context("an error")?.code, ErrorCode::SessionNothingToCompact);
    assert_eq!(world.requests()?.len(), 1, "only the prompt's");
    world.check().await
}

#[tokio::test]
async fn an_answer_that_is_no_summary_is_asked_for_once_more() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(Script { times: Some(1), ..says(SUMMARY, 0, "I would rather not.") })?;
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    assert_eq!(
        last_gist(&world)?,
        [
            "user: say 2 words",
            "assistant: w0 w1",
            "user: <summary-request>",
            "assistant: I would rather not.",
            "user: <summary-request>"
        ]
    );
    world.check().await
}

#[tokio::test]
async fn a_second_answer_that_is_no_summary_fails_it_and_the_queue_goes_on() -> Result<()> {
    let (world, session) = begun().await?;
    // Calls instead of text: they are ignored, and never run.
    world.script(Script {
        tool_calls: vec![crate::tools::shell("echo 1 > ran")],
        ..summary(Script::default())
    })?;
    world.compact(&session, Delivery::Queue).await?;
    world.admit(&session, Delivery::Queue, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let failed = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(failed.error.context("an error")?.code, ErrorCode::SessionCompactionFailed);
    assert!(failed.usage.input > 0, "what it used counts");
    assert_eq!(session.content("ran"), "");
    assert_eq!(last_gist(&world)?, ["user: say 2 words", "assistant: w0 w1", "user: say 3 words"]);
    assert_eq!(world.requests()?.len(), 4);
    world.check().await
}

#[tokio::test]
async fn a_network_that_fails_is_asked_again_and_drafts_are_forgotten() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(summary(Script { status: Some(503), times: Some(1), ..Script::default() }))?;
    world.script(summary(Script {
        cut_after_chunks: Some(3),
        times: Some(1),
        ..says(SUMMARY, 0, "## Objective half of it")
    }))?;
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (failed, whole) = (AttemptOutcome::Failed, AttemptOutcome::Completed);
    assert_eq!(attempts(&world, &session).await?, [failed, failed, whole]);
    let done = ended(&world, &session).await?.pop().context("an end")?;
    assert!(!done.checkpoint.context("a checkpoint")?.contains("half of it"));
    world.check().await
}

#[tokio::test]
async fn retries_are_bounded_across_a_reminder() -> Result<()> {
    let (world, session) = begun().await?;
    let down = |times| summary(Script { status: Some(503), times, ..Script::default() });
    world.script(down(Some(1)))?;
    world.script(Script { times: Some(1), ..says(SUMMARY, 0, "no") })?;
    world.script(down(None))?;
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    // Two retries in all: one before the reminder, one after it.
    assert_eq!(world.requests()?.len(), 1 + 4);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Failed]);
    goes_on_unchanged(&world, &session).await
}

#[tokio::test]
async fn a_cut_or_withheld_summary_is_refused_without_a_retry() -> Result<()> {
    for script in [
        Script { finish_reason: Some("length".into()), ..says(SUMMARY, 0, "## Objective\nx") },
        Script {
            finish_reason: Some("content_filter".into()),
            ..says(SUMMARY, 0, "## Objective\nx")
        },
    ] {
        let (world, session) = begun().await?;
        world.script(script)?;
        world.compact(&session, Delivery::Steer).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Failed]);
        assert_eq!(attempts(&world, &session).await?, [AttemptOutcome::Failed]);
        assert_eq!(world.requests()?.len(), 2);
        goes_on_unchanged(&world, &session).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_interrupt_cancels_it_and_ends_the_drain() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(summary(Script { hang: true, times: Some(1), ..Script::default() }))?;
    world.compact(&session, Delivery::Steer).await?;
    let meanwhile = async {
        world.until_requests(2).await?;
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    let cancelled = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(cancelled.outcome, SideOutcome::Cancelled);
    let error = cancelled.error.context("an error")?;
    assert_eq!(error.message, "Compaction cancelled");
    goes_on_unchanged(&world, &session).await
}

/// Lets the session's worker die while it waits for a summary, and gives it to another.
async fn die_while_summarising(world: &World, session: &Session) -> Result<()> {
    world.script(summary(Script { hang: true, times: Some(1), ..Script::default() }))?;
    let known = world.requests()?.len() as u64;
    let (_handle, control) = drain_control(CancellationToken::new());
    let summary = async {
        loop {
            let last = world.requests()?.pop().context("a request")?;
            if gist(&last).pop().is_some_and(|last| last.contains(SUMMARY)) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let waited = async {
        world.until_requests(known + 1).await?;
        summary.await
    };
    tokio::select! {
        waited = waited => waited?,
        (exit, _) = session.run(&world.worker, control, History::new()) => panic!("{exit:?}"),
    }
    world.take_over(session).await?;
    Ok(())
}

#[tokio::test]
async fn one_whose_worker_died_is_settled_and_not_asked_for_again() -> Result<()> {
    let (world, session) = begun().await?;
    world.compact(&session, Delivery::Steer).await?;
    world.admit(&session, Delivery::Queue, "say 3 words").await?;
    die_while_summarising(&world, &session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let lost = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(lost.outcome, SideOutcome::Lost);
    assert_eq!(lost.error.context("an error")?.code, ErrorCode::SessionCompactionInterrupted);
    assert_eq!(last_gist(&world)?, ["user: say 2 words", "assistant: w0 w1", "user: say 3 words"]);
    // Another one is not in its way.
    world.compact(&session, Delivery::Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost, SideOutcome::Completed]);
    world.check().await
}

#[tokio::test]
async fn one_that_was_needed_comes_again_after_its_worker_died() -> Result<()> {
    let (world, session) = cramped(700).await?;
    world.prompt(&session, "say 700 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 5 words").await?;
    die_while_summarising(&world, &session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost, SideOutcome::Completed]);
    assert_eq!(last_gist(&world)?, ["user: <conversation-checkpoint", "user: say 5 words"]);
    world.check().await
}

// Finding core-3 M5: the drain ended, and the next prompt paid for the same failure.
#[tokio::test]
async fn one_that_is_needed_is_tried_once_more() -> Result<()> {
    let (world, session) = cramped(700).await?;
    world.prompt(&session, "say 1500 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.script(Script { times: Some(2), ..says(SUMMARY, 0, "no") })?;
    world.prompt(&session, "say 5 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (failed, completed) = (SideOutcome::Failed, SideOutcome::Completed);
    assert_eq!(outcomes(&world, &session).await?, [failed, completed]);
    assert_eq!(last_gist(&world)?, ["user: <conversation-checkpoint", "user: say 5 words"]);
    world.check().await
}

// Finding scenarios F6: a summary that failed blocked every prompt, though the turn would fit.
#[tokio::test]
async fn one_that_fails_does_not_block_what_fits() -> Result<()> {
    let (world, session) = cramped(700).await?;
    world.prompt(&session, "say 700 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let cut = || Script {
        finish_reason: Some("length".into()),
        times: Some(1),
        ..says(SUMMARY, 0, "## Objective\nx")
    };
    world.script(cut())?;
    world.prompt(&session, "say 5 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Failed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2 w3 w4");
    // Work of several steps asks once more; after the second failure the oldest exchanges are left out.
    world.script(cut())?;
    world.script(Script {
        times: Some(1),
        ..crate::tools::calls("work", 0, vec![crate::tools::shell("echo 1")])
    })?;
    world.prompt(&session, "work").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (failed, completed) = (SideOutcome::Failed, SideOutcome::Completed);
    assert_eq!(outcomes(&world, &session).await?, [failed, failed, completed]);
    let last = started(&world, &session).await?.pop().context("a compaction")?;
    assert!(last.scope.left_out > 0, "{last:?}");
    world.prompt(&session, "say 6 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn what_does_not_fit_even_then_is_not_sent() -> Result<()> {
    let (world, session) = cramped(700).await?;
    let long = format!("say 2 words {}", "and so on ".repeat(900));
    world.prompt(&session, &long).await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error(&world, &session).await?.code, ErrorCode::ContextTooLarge);
    assert!(started(&world, &session).await?.is_empty(), "no summary would make it fit");
    assert_eq!(world.requests()?.len(), 1, "the first turn's");
    world.check().await
}

#[tokio::test]
async fn a_first_prompt_that_cannot_fit_is_not_sent() -> Result<()> {
    let mut world = World::with(|settings| settings.rules.compaction = SMALL).await?;
    world.model_is(ModelFacts { context_limit: Some(10), ..ModelFacts::default() });
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error(&world, &session).await?.code, ErrorCode::ContextTooLarge);
    assert!(world.requests()?.is_empty() && started(&world, &session).await?.is_empty());
    world.check().await
}

#[tokio::test]
async fn an_overflow_is_the_turns_error_when_nothing_may_be_done_about_it() -> Result<()> {
    let world = World::with(|settings| settings.rules.compaction.auto = false).await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.script(overflows("say 3", 1))?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error(&world, &session).await?.code, ErrorCode::ProviderContextOverflow);
    assert!(started(&world, &session).await?.is_empty());
    world.check().await
}

#[tokio::test]
async fn a_second_overflow_is_the_turns_error() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(overflows("say 3", 2))?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error(&world, &session).await?.code, ErrorCode::ProviderContextOverflow);
    assert_eq!(
        turns(&world, &session).await?,
        [TurnOutcome::Completed, TurnOutcome::Overflowed, TurnOutcome::Failed]
    );
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    world.prompt(&session, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn when_a_summary_for_an_overflow_fails_another_is_tried() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(overflows("say 3", 1))?;
    world.script(Script { times: Some(2), ..says(SUMMARY, 0, "no") })?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (failed, completed) = (SideOutcome::Failed, SideOutcome::Completed);
    assert_eq!(outcomes(&world, &session).await?, [failed, completed]);
    world.check().await
}

#[tokio::test]
async fn what_keeps_a_provider_from_answering_is_the_error() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(overflows("say 3", 1))?;
    world.script(summary(Script { status: Some(401), ..Script::default() }))?;
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Failed]);
    assert_eq!(error(&world, &session).await?.code, ErrorCode::ProviderAuthentication);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Failed]);
    world.check().await
}

#[tokio::test]
async fn an_interrupt_of_an_overflows_recovery_ends_it_all() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(overflows("say 3", 1))?;
    world.script(summary(Script { hang: true, times: Some(1), ..Script::default() }))?;
    world.prompt(&session, "say 3 words").await?;
    let meanwhile = async {
        world.until_requests(3).await?;
        world.interrupt(&session).await
    };
    let (settled, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(settled?, [Interrupted]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Cancelled]);
    world.check().await
}

#[tokio::test]
async fn a_hand_over_waits_for_the_summary_and_the_next_owner_begins_the_turn() -> Result<()> {
    let (world, session) = cramped(700).await?;
    world.prompt(&session, "say 700 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let gate = Some("door".to_owned());
    world.script(summary(Script { gate, ..Script::default() }))?;
    world.prompt(&session, "say 5 words").await?;
    let stopping = CancellationToken::new();
    let (handle, control) = drain_control(stopping.clone());
    let drained = world.drive(&world.worker, &session, &handle, control, History::new());
    let meanwhile = async {
        world.until_kind(&session, "compaction.started").await?;
        stopping.cancel();
        world.model().open_gate("door")?;
        anyhow::Ok(())
    };
    let (drained, asked) = tokio::join!(drained, meanwhile);
    asked?;
    assert!(matches!(drained?.0, DrainExit::HandedOver));
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(last_gist(&world)?, ["user: <conversation-checkpoint", "user: say 5 words"]);
    world.check().await
}
