//! The original's scenarios of compactions that `compaction*.rs` do not have.

use anyhow::{Context, Result};
use domain::DrainOutcome::Completed;
use domain::{Delivery, ErrorCode, SideOutcome};
use history::History;
use session::{ModelFacts, drain_control};
use simulated_model::Script;
use tokio_util::sync::CancellationToken;

use crate::compaction::{SUMMARY, ended, last_gist, outcomes, started};
use crate::tools::{calls, says, shell};
use crate::world::{Session, World};

/// A session with one exchange.
async fn begun() -> Result<(World, Session)> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    Ok((world, session))
}

#[tokio::test]
async fn what_a_provider_says_against_a_summary_is_told_as_it_is() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(Script {
        matches: SUMMARY.into(),
        status: Some(401),
        body: Some(serde_json::json!({"error": {"message": "the key has expired"}})),
        ..Script::default()
    })?;
    world.compact(&session, Delivery::Steer).await?;
    world.admit(&session, Delivery::Queue, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let failed = ended(&world, &session).await?.pop().context("an end")?;
    assert_eq!(failed.outcome, SideOutcome::Failed);
    let error = failed.error.context("an error")?;
    assert_eq!(error.code, ErrorCode::ProviderAuthentication);
    assert!(error.message.contains("the key has expired"), "{error:?}");
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    world.check().await
}

#[tokio::test]
async fn an_answer_of_calls_or_of_reasoning_is_no_summary_and_runs_nothing() -> Result<()> {
    let reasoning = Script {
        reasoning: Some("## Objective\nwould it be".into()),
        ..says(SUMMARY, 0, "I thought about it")
    };
    for answer in [calls(SUMMARY, 0, vec![shell("echo 1 > ran")]), reasoning] {
        let (world, session) = begun().await?;
        world.script(Script { times: Some(1), ..answer })?;
        world.compact(&session, Delivery::Steer).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
        let kinds = world.kinds(&session).await?;
        assert_eq!(kinds.iter().filter(|kind| **kind == "compaction.reminded").count(), 1);
        assert!(!kinds.contains(&"tool.called"), "{kinds:?}");
        assert_eq!(session.content("ran"), "");
        world.check().await?;
    }
    Ok(())
}

#[tokio::test]
async fn one_whose_worker_died_is_settled_before_the_next_one_begins() -> Result<()> {
    let (world, session) = begun().await?;
    world.script(Script {
        matches: SUMMARY.into(),
        hang: true,
        times: Some(1),
        ..Script::default()
    })?;
    world.compact(&session, Delivery::Steer).await?;
    let (_handle, control) = drain_control(CancellationToken::new());
    tokio::select! {
        arrived = world.until_requests(2) => arrived?,
        (exit, _) = session.run(&world.worker, control, History::new()) => panic!("{exit:?}"),
    }
    world.compact(&session, Delivery::Steer).await?;
    world.take_over(&session).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Lost, SideOutcome::Completed]);
    let kinds = world.kinds(&session).await?;
    let at = |kind| kinds.iter().position(|other| *other == kind);
    let second = kinds.iter().rposition(|kind| *kind == "compaction.started");
    assert!(at("compaction.ended") < second, "{kinds:?}");
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(last_gist(&world)?.len(), 2, "the checkpoint, and the prompt");
    world.check().await
}

#[tokio::test]
async fn a_model_whose_answers_may_fill_its_context_is_not_compacted_before_each_turn() -> Result<()>
{
    let mut world = World::new().await?;
    world.model_is(ModelFacts {
        context_limit: Some(16_000),
        output_limit: Some(16_000),
        ..ModelFacts::default()
    });
    let session = world.session().await?;
    for prompt in ["say 2 words", "say 3 words", "say 4 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    assert!(started(&world, &session).await?.is_empty());
    world.check().await
}
