//! An interrupt applies to the work that is there, whatever it is doing, and to nothing later.

use std::time::Duration;

use anyhow::{Context, Result};
use domain::DrainOutcome::{Completed, Interrupted};
use domain::{Clock as _, Delivery, SessionEvent, ToolOutcomeKind};
use simulated_model::Script;
use tokio::time::sleep;

use crate::tools::{calls, says, shell};
use crate::world::{ORG, SOON, World};

#[tokio::test]
async fn while_it_streams_the_text_so_far_is_kept_and_the_next_prompt_sees_it() -> Result<()> {
    let world = World::with(|settings| settings.checkpoint_every = SOON).await?;
    let session = world.session().await?;
    world.script(Script {
        hang_after_chunks: Some(4),
        ..says("story", 0, "once upon a time there was")
    })?;
    world.prompt(&session, "story").await?;
    let meanwhile = async {
        world.until_kind(&session, "text.checkpointed").await?;
        world.interrupt(&session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
    assert!(matches!(asked?, store::Interrupted::Applied { .. }));
    assert_eq!(outcomes?, [Interrupted]);
    let text = world.answer(&session).await?;
    assert!(text.starts_with("once"), "{text}");
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = world.requests()?.pop().context("a request")?;
    assert_eq!(last[2]["content"], text);
    world.check().await
}

#[tokio::test]
async fn while_a_tool_runs_its_process_dies_and_the_call_is_settled() -> Result<()> {
    let world = World::with(|settings| settings.result_delay = SOON).await?;
    let session = world.session().await?;
    world.script(calls(
        "work",
        0,
        vec![shell("echo quick"), shell("echo $$ > pid; sleep 60; echo late > late")],
    ))?;
    world.prompt(&session, "work").await?;
    let meanwhile = async {
        session.until_file("pid").await?;
        world.until_kind(&session, "tool.settled").await?;
        world.interrupt(&session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(outcomes?, [Interrupted]);
    session.until_dead("pid").await?;
    assert_eq!(session.content("late"), "");
    let outcomes: Vec<_> = world
        .events(&session)
        .await?
        .into_iter()
        .filter_map(|event| match event.event {
            SessionEvent::ToolSettled(settled) => Some(settled.outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [ToolOutcomeKind::Completed, ToolOutcomeKind::Interrupted]);
    // Each call has its result in what the next prompt's request carries.
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = world.requests()?.pop().context("a request")?;
    assert_eq!(last.iter().filter(|message| message["role"] == "tool").count(), 2);
    world.check().await
}

// Finding scenarios F7: aborted, and woken while the tool stopped, a prompt was never taken up.
#[tokio::test]
async fn a_prompt_that_is_resumed_while_it_stops_goes_on() -> Result<()> {
    let world = World::with(|settings| settings.result_delay = SOON).await?;
    let session = world.session().await?;
    world.script(calls("work", 0, vec![shell("echo $$ > pid; sleep 60")]))?;
    world.prompt(&session, "work").await?;
    let meanwhile = async {
        session.until_file("pid").await?;
        world.interrupt(&session).await?;
        let (id, now) = (session.at.session.clone(), world.clock.now_ms());
        Ok::<_, anyhow::Error>(world.store().wake_session(ORG, id, now).await?)
    };
    let (outcomes, woken) = tokio::join!(world.settle(&session), meanwhile);
    assert!(matches!(woken?, store::InboxChange::Done { .. }));
    assert_eq!(outcomes?, [Interrupted, Completed]);
    assert_eq!(world.model().counts().requests, 2);
    world.check().await
}

#[tokio::test]
async fn in_back_off_no_further_request_is_sent() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        matches: "busy".into(),
        status: Some(429),
        retry_after_ms: Some(60_000),
        ..Script::default()
    })?;
    world.prompt(&session, "busy").await?;
    let meanwhile = async {
        world.until_kind(&session, "retry.scheduled").await?;
        world.interrupt(&session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(outcomes?, [Interrupted]);
    assert_eq!(world.model().counts().requests, 1);
    world.check().await
}

#[tokio::test]
async fn before_a_drain_took_it_up_a_prompt_is_parked_until_the_next() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    world.interrupt(&session).await?;
    assert_eq!(world.settle(&session).await?, []);
    assert_eq!(world.interrupt(&session).await?, store::Interrupted::Idle);
    assert_eq!(world.model().counts().requests, 0);
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let roles: Vec<_> = world.told(&session).await?.into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "user", "assistant"]);
    world.check().await
}

#[tokio::test]
async fn what_waited_behind_interrupted_work_stays_put_until_a_new_wake() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script { matches: "hang".into(), hang: true, ..Script::default() })?;
    world.prompt(&session, "hang").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.admit(&session, Delivery::Queue, "say 2 words").await?;
        world.interrupt(&session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(outcomes?, [Interrupted]);
    assert_eq!(world.model().counts().requests, 1);
    world.admit(&session, Delivery::Queue, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 3);
    world.check().await
}

#[tokio::test]
async fn racing_the_end_it_applies_or_does_nothing_and_the_session_goes_on() -> Result<()> {
    let world = World::new().await?;
    session_races(&world, 12).await?;
    world.check().await
}

async fn session_races(world: &World, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let session = world.session().await?;
        session.file("a.txt", "one\n")?;
        world.prompt(&session, "read a.txt then say 2 words").await?;
        let meanwhile = async {
            sleep(Duration::from_millis(4 * round)).await;
            world.interrupt(&session).await
        };
        let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
        let (outcomes, asked) = (outcomes?, asked?);
        match asked {
            store::Interrupted::Idle => assert_eq!(outcomes, [Completed]),
            // Applied to the drain, or to a wake that it had not taken up.
            store::Interrupted::Applied { .. } => {
                assert!(outcomes == [Interrupted] || outcomes.is_empty(), "{outcomes:?}");
            }
        }
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        assert_eq!(world.answer(&session).await?, "w0 w1");
    }
    Ok(())
}
