//! Sessions that give up their slots because others wait for one, or their memory because there is no room for it.

use anyhow::Result;
use domain::Delivery::{Queue, Steer};
use domain::DrainOutcome::{Completed, Interrupted};
use history::History;
use session::{Crowd, DrainExit, FoldBudget, drain_control};
use simulated_model::Script;
use tokio_util::sync::CancellationToken;

use crate::world::{Session, World};

/// A drain that meets a crowd at each boundary: how it ended, and after how many turns.
async fn crowded(world: &World, session: &Session) -> Result<(DrainExit, u32)> {
    let crowd = Crowd::default();
    crowd.set(true);
    let (handle, control) = drain_control(CancellationToken::new());
    let control = control.within(&crowd);
    let driven = world.drive(&world.worker, session, &handle, control, History::new()).await?;
    Ok((driven.0, handle.turns()))
}

#[tokio::test]
async fn queued_prompts_give_others_a_chance_between_them() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_recoveries = 0).await?;
    let session = world.session().await?;
    for words in 1..=3 {
        world.admit(&session, Queue, &format!("say {words} words")).await?;
    }
    for _ in 0..2 {
        assert!(matches!(crowded(&world, &session).await?, (DrainExit::Yielded, 1)));
        let row = world.store().session(crate::world::ORG, session.at.session.clone()).await?;
        assert!(row.busy, "whoever waits for the session goes on waiting");
    }
    assert!(matches!(crowded(&world, &session).await?, (DrainExit::Ended(Completed), 1)));
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    let kinds = world.kinds(&session).await?;
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count("turn.started"), count("drain.ended"), count("notice.recorded")), (3, 1, 0));
    world.check().await
}

#[tokio::test]
async fn work_that_continues_keeps_its_slot() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    world.admit(&session, Steer, "read a.txt then read a.txt then say 2 words").await?;
    world.admit(&session, Queue, "say 1 words").await?;
    assert!(matches!(crowded(&world, &session).await?, (DrainExit::Yielded, 3)));
    assert!(matches!(crowded(&world, &session).await?, (DrainExit::Ended(Completed), 1)));
    world.check().await
}

#[tokio::test]
async fn an_interrupt_of_a_session_that_waits_for_its_slot_leaves_the_rest_queued() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.admit(&session, Queue, "say 1 words").await?;
    world.admit(&session, Queue, "say 2 words").await?;
    assert!(matches!(crowded(&world, &session).await?.0, DrainExit::Yielded));
    assert!(matches!(world.interrupt(&session).await?, store::Interrupted::Applied { .. }));
    assert!(matches!(crowded(&world, &session).await?, (DrainExit::Ended(Interrupted), 0)));
    assert_eq!(world.settle(&session).await?, [], "its wake is parked");
    world.admit(&session, Steer, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(world.answer(&session).await?, "w0 w1", "the queued prompt came last");
    world.check().await
}

/// A drain within a worker's budget of folds.
async fn within(
    world: &World,
    session: &Session,
    folds: &FoldBudget,
) -> Result<(DrainExit, Option<History>)> {
    let (handle, control) = drain_control(CancellationToken::new());
    world.drive(&world.worker, session, &handle, control.with_folds(folds), History::new()).await
}

// Finding look 4 (C2): the budget of folds was asked when a drain started, and not when its inbox grew.
#[tokio::test]
async fn an_inbox_that_grows_without_room_waits_for_it() -> Result<()> {
    let world = World::new().await?;
    let (large, grows) = (world.session().await?, world.session().await?);
    let folds = FoldBudget::new(700_000);
    for gate in ["large", "grows"] {
        let (matches, gate) = (format!("{gate} begins"), Some(gate.into()));
        world.script(Script { matches, gate, ..Script::default() })?;
    }
    // No Compaction hides them before the request, so they stay in memory.
    let shown = "x".repeat(150_000);
    world.prompt(&large, &shown).await?;
    world.prompt(&large, &shown).await?;
    world.prompt(&large, "large begins").await?;
    world.prompt(&grows, "grows begins").await?;
    let promoted = async || -> Result<usize> {
        let kinds = world.kinds(&grows).await?;
        Ok(kinds.into_iter().filter(|kind| *kind == "prompt.promoted").count())
    };
    let beside = async {
        world.until_requests(1).await?;
        let meanwhile = async {
            world.until_requests(2).await?;
            let text = "x".repeat(250_000);
            world.prompt(&grows, &text).await?;
            world.prompt(&grows, &text).await?;
            Ok::<_, anyhow::Error>(world.model().open_gate("grows")?)
        };
        let (ended, admitted) = tokio::join!(within(&world, &grows, &folds), meanwhile);
        admitted?;
        for (exit, history) in [ended?, within(&world, &grows, &folds).await?] {
            assert!(matches!(exit, DrainExit::NoRoom(500_000..600_000)), "{exit:?}");
            assert!(history.is_none(), "it gives its memory up");
            assert_eq!(promoted().await?, 1, "both that came wait");
            let row = world.store().session(crate::world::ORG, grows.at.session.clone()).await?;
            assert!(row.busy, "whoever waits for the session goes on waiting");
        }
        Ok::<_, anyhow::Error>(world.model().open_gate("large")?)
    };
    let (ended, beside) = tokio::join!(within(&world, &large, &folds), beside);
    beside?;
    assert!(matches!(ended?.0, DrainExit::Ended(Completed)));
    assert!(matches!(within(&world, &grows, &folds).await?.0, DrainExit::Ended(Completed)));
    assert_eq!(promoted().await?, 3, "nothing is lost");
    let kinds = world.kinds(&grows).await?;
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count("turn.started"), count("notice.recorded")), (2, 0));
    world.check().await
}
