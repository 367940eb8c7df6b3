//! A drain whose claim has passed on writes nothing, and its tools die with it.

use anyhow::Result;
use domain::DrainOutcome::Completed;
use domain::FencingToken;
use history::History;
use session::{DrainExit, drain, drain_control};
use simulated_model::Script;
use tokio_util::sync::CancellationToken;

use crate::tools::{calls, says, shell};
use crate::world::World;

#[tokio::test]
async fn a_drain_that_slept_through_a_takeover_is_fenced_at_its_next_write() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(Script {
        times: Some(1),
        gate: Some("asleep".into()),
        ..says("story", 0, "the stale one")
    })?;
    world.script(says("story", 0, "the new one"))?;
    world.prompt(&session, "story").await?;
    let (_nobody_tells, control) = drain_control(CancellationToken::new());
    let stale = session.run(&world.worker, control, History::new());
    let takeover = async {
        world.until_requests(1).await?;
        world.take_over(&session).await?;
        let other = world.another_worker()?;
        let (handle, control) = drain_control(CancellationToken::new());
        let (exit, _) = world.drive(&other, &session, &handle, control, History::new()).await?;
        assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
        let log = world.events(&session).await?;
        world.model().open_gate("asleep")?;
        Ok::<_, anyhow::Error>(log)
    };
    let ((exit, history), log) = tokio::join!(stale, takeover);
    assert!(matches!(exit, DrainExit::Fenced), "{exit:?}");
    assert!(history.is_none());
    assert_eq!(world.events(&session).await?, log?);
    assert_eq!(world.answer(&session).await?, "the new one");
    world.check().await
}

#[tokio::test]
async fn a_fenced_drains_tools_die() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.script(calls("tidy up", 0, vec![shell("echo $$ > pid; sleep 60; echo late > late")]))?;
    world.script(says("tidy up", 1, "what now?"))?;
    world.prompt(&session, "tidy up").await?;
    let takeover = async {
        session.until_file("pid").await?;
        world.until_kind(&session, "turn.replied").await?;
        world.take_over(&session).await
    };
    let (exit, token) = tokio::join!(world.drain(&session), takeover);
    token?;
    assert!(matches!(exit?, DrainExit::Fenced));
    session.until_dead("pid").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("late"), "");
    world.check().await
}

#[tokio::test]
async fn an_older_token_starts_nothing() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    world.take_over(&session).await?;
    let workspace = session.workspace(FencingToken(1));
    let (_handle, control) = drain_control(CancellationToken::new());
    let (worker, at, old) = (&world.worker, &session.at, FencingToken(1));
    let exit = Box::pin(drain(worker, at, old, &workspace, control, History::new())).await.0;
    assert!(matches!(exit, DrainExit::Superseded), "{exit:?}");
    assert_eq!(world.kinds(&session).await?, ["session.created", "prompt.admitted"]);
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.check().await
}

#[tokio::test]
async fn a_known_history_of_a_deleted_session_is_not_taken_for_the_new_ones() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    world.prompt(&session, "create a.txt containing one then read a.txt").await?;
    let (_, known) = world.drain_from(&session, History::new()).await?;
    world.recreate(&session).await?;
    world.model().clear_requests();
    world.prompt(&session, "say 2 words").await?;
    let (exit, _) = world.drain_from(&session, known.expect("it ended well")).await?;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    assert_eq!(world.requests()?.pop().map(|messages| messages.len()), Some(2));
    world.check().await
}
