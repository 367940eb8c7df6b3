//! The original's scenarios of Moves that `moves.rs` does not have.

use anyhow::{Context, Result, bail, ensure};
use domain::Control;
use domain::Delivery::{self, Queue, Steer};
use domain::DrainOutcome::Completed;
use history::History;
use serde_json::json;
use session::{DrainExit, drain, drain_control};
use tokio_util::sync::CancellationToken;

use crate::scenarios::{Tide, turns_started};
use crate::tools::{call, calls, says};
use crate::world::{Session, World};

async fn leaves(world: &World, here: &Session, there: &Session) -> Result<()> {
    match world.drain(here).await? {
        DrainExit::Moved(to) if to == there.at => Ok(()),
        other => bail!("the session did not move: {other:?}, {:?}", world.kinds(here).await?),
    }
}

#[tokio::test]
async fn a_queued_move_of_an_idle_session_is_one_write_and_no_request() -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    let (there, control) = world.elsewhere(&here, false).await?;
    world.control(&here, Queue, control).await?;
    leaves(&world, &here, &there).await?;
    assert_eq!(
        world.kinds(&there).await?[1..],
        ["control.admitted", "control.delivered", "session.moved", "drain.ended"]
    );
    let events = world.events(&there).await?;
    let claims: Vec<_> = events.iter().filter_map(|event| event.claim).collect();
    assert!(claims.len() == 3 && claims.windows(2).all(|pair| pair[0] == pair[1]), "{claims:?}");
    assert!(matches!(world.drain(&there).await?, DrainExit::Idle));
    assert_eq!(world.model().counts().requests, 0);
    world.check().await
}

#[tokio::test]
async fn a_move_does_not_wait_for_context_that_is_not_there() -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    let workspace = here.workspace(here.token());
    let tide = Tide::unavailable();
    let _kept = workspace.sources().register(Tide::key(), tide)?;
    let (there, control) = world.elsewhere(&here, false).await?;
    world.control(&here, Steer, control).await?;
    world.prompt(&here, "say 2 words").await?;
    let (_handle, control) = drain_control(CancellationToken::new());
    let (at, token) = (&here.at, here.token());
    let left = drain(&world.worker, at, token, &workspace, control, History::new());
    assert!(matches!(Box::pin(left).await.0, DrainExit::Moved(_)));
    // Where it is there, the prompt that waited is answered.
    assert_eq!(world.settle(&there).await?, [Completed]);
    assert_eq!(world.answer(&there).await?, "w0 w1");
    world.check().await
}

#[tokio::test]
async fn work_and_its_steps_go_on_through_one_move_after_the_other() -> Result<()> {
    let world = World::with(|settings| settings.rules.max_steps = 3).await?;
    let here = world.session().await?;
    let (there, away) = world.elsewhere(&here, false).await?;
    let (farther, on) = world.elsewhere(&here, false).await?;
    let look = || vec![call("glob", json!({"pattern": "*"}))];
    world.script(simulated_model::Script {
        gate: Some("door".into()),
        ..calls("look", 0, look())
    })?;
    world.script(calls("look", 1, look()))?;
    world.script(says("look", 2, "done"))?;
    world.prompt(&here, "look").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.admit(&here, Queue, "say 2 words").await?;
        world.control(&here, Steer, away).await?;
        world.control(&here, Steer, on).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (left, asked) = tokio::join!(leaves(&world, &here, &there), meanwhile);
    asked?;
    left?;
    leaves(&world, &there, &farther).await?;
    assert_eq!(world.model().counts().requests, 1, "nobody asks on the way");
    assert_eq!(world.settle(&farther).await?, [Completed]);
    let steps: Vec<_> =
        turns_started(&world, &farther).await?.iter().map(|turn| turn.step).collect();
    assert_eq!(steps, [1, 2, 3, 1], "then what was queued, with steps of its own");
    assert_eq!(world.answer(&farther).await?, "w0 w1");
    let epochs = turns_started(&world, &farther).await?;
    assert_eq!(epochs.iter().map(|turn| turn.epoch).collect::<Vec<_>>(), [1, 2, 2, 2]);
    ensure!(!world.kinds(&farther).await?.contains(&"workspace.restored"));
    world.check().await
}

#[tokio::test]
async fn what_is_queued_never_joins_work_that_continues_elsewhere() -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    let (there, away) = world.elsewhere(&here, false).await?;
    world.script(simulated_model::Script {
        gate: Some("door".into()),
        ..calls("look", 0, vec![call("glob", json!({"pattern": "*"}))])
    })?;
    world.script(says("look", 1, "done"))?;
    world.prompt(&here, "look").await?;
    let meanwhile = async {
        world.until_requests(1).await?;
        world.control(&here, Queue, Control::Compaction).await?;
        world.control(&here, Delivery::Steer, away).await?;
        anyhow::Ok(world.model().open_gate("door")?)
    };
    let (left, asked) = tokio::join!(leaves(&world, &here, &there), meanwhile);
    asked?;
    left?;
    assert_eq!(world.settle(&there).await?, [Completed]);
    let kinds = world.kinds(&there).await?;
    let last = |kind: &str| kinds.iter().rposition(|other| *other == kind);
    let (turn, compaction) = (last("turn.settled"), last("compaction.started"));
    ensure!(turn.context("a turn")? < compaction.context("a compaction")?, "{kinds:?}");
    world.check().await
}
