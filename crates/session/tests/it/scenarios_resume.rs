//! The original's scenarios of an interrupt that lets the session go on: with what steers it, and with a control that is
//! next; other queued input stays where it is.

use anyhow::Result;
use domain::Delivery::{Queue, Steer};
use domain::DrainOutcome::{Completed, Interrupted};
use domain::{Clock as _, DrainOutcome, Seq, SideOutcome};
use simulated_model::Script;
use store::Resumed;

use crate::compaction::outcomes;
use crate::world::{ORG, Session, World};

async fn resume(world: &World, session: &Session) -> Result<Resumed> {
    let (id, now) = (session.at.session.clone(), world.clock.now_ms());
    Ok(world.store().interrupt_and_resume(ORG, id, None, now).await?)
}

async fn waiting(world: &World, session: &Session) -> Result<usize> {
    Ok(world.store().inbox(ORG, session.at.session.clone(), Seq(0), 1_000).await?.items.len())
}

/// A session whose turn hangs; it is interrupted, to go on, once `arrive` has been admitted. How its drains ended.
async fn interrupted(
    world: &World,
    session: &Session,
    arrive: impl AsyncFnOnce() -> Result<()>,
) -> Result<Vec<DrainOutcome>> {
    world.script(Script { matches: "hang".into(), hang: true, ..Script::default() })?;
    let before = world.model().counts().requests;
    world.prompt(session, "hang").await?;
    let meanwhile = async {
        world.until_requests(before + 1).await?;
        arrive().await?;
        resume(world, session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(session), meanwhile);
    asked?;
    outcomes
}

#[tokio::test]
async fn what_steers_goes_on_and_what_is_queued_stays_parked() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let ended = interrupted(&world, &session, async || {
        world.admit(&session, Queue, "say 2 words").await?;
        world.admit(&session, Steer, "say 3 words").await?;
        Ok(())
    });
    assert_eq!(ended.await?, [Interrupted, Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    assert_eq!(waiting(&world, &session).await?, 1);
    assert_eq!(world.model().counts().requests, 2);
    // A wake of its own takes it up.
    world.admit(&session, Queue, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.model().counts().requests, 4);
    world.check().await
}

#[tokio::test]
async fn with_nothing_but_queued_prompts_it_is_an_interrupt() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let ended = interrupted(&world, &session, async || {
        world.admit(&session, Queue, "say 2 words").await?;
        world.compact(&session, Queue).await?;
        Ok(())
    });
    assert_eq!(ended.await?, [Interrupted]);
    assert_eq!((waiting(&world, &session).await?, world.model().counts().requests), (2, 1));
    world.check().await
}

#[tokio::test]
async fn an_idle_session_takes_up_what_steers_it() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    world.admit(&session, Queue, "say 3 words").await?;
    world.interrupt(&session).await?;
    assert_eq!(world.settle(&session).await?, []);
    let resumed = resume(&world, &session).await?;
    assert!(resumed.interrupt.is_none() && resumed.wake.is_some(), "{resumed:?}");
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!((waiting(&world, &session).await?, world.model().counts().requests), (1, 1));
    world.check().await
}

#[tokio::test]
async fn a_queued_compaction_that_is_next_goes_on() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let ended = interrupted(&world, &session, async || {
        world.compact(&session, Queue).await?;
        world.admit(&session, Queue, "say 3 words").await?;
        Ok(())
    });
    assert_eq!(ended.await?, [Interrupted, Completed]);
    assert_eq!(outcomes(&world, &session).await?, [SideOutcome::Completed]);
    assert_eq!(waiting(&world, &session).await?, 1, "the prompt behind it stays");
    world.check().await
}
