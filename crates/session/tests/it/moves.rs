//! Moves: at their place in the inbox, with what waits, the work that continues, and the files if they are carried.

use anyhow::{Result, bail, ensure};
use domain::Delivery::{Queue, Steer};
use domain::DrainOutcome::Completed;
use domain::{DrainOutcome, ErrorCode, SessionEvent};
use history::History;
use serde_json::json;
use session::{DrainExit, Files};

use crate::files::contents;
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, Session, World};

/// One drain, which must end with the session elsewhere.
async fn leaves(world: &World, here: &Session, there: &Session) -> Result<History> {
    match world.drain_from(here, History::new()).await? {
        (DrainExit::Moved(to), Some(history)) => {
            assert_eq!(to, there.at);
            Ok(history)
        }
        (other, _) => bail!("the session did not move: {other:?}, {:?}", world.kinds(here).await?),
    }
}

/// A session in a directory that is captured.
async fn captured(world: &World) -> Result<(Session, Files)> {
    let session = world.session().await?;
    let (workspace, files) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    Ok((session, files))
}

#[tokio::test]
async fn an_idle_session_goes_on_elsewhere_with_an_epoch_of_its_own() -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    world.prompt(&here, "say 3 words").await?;
    assert_eq!(world.settle(&here).await?, [Completed]);
    let (there, control) = world.elsewhere(&here, false).await?;
    world.control(&here, Steer, control).await?;
    let waits = world.admit(&here, Queue, "say 4 words").await?;
    leaves(&world, &here, &there).await?;
    // A hint that was late finds nothing at the old place.
    assert!(matches!(world.drain(&here).await?, DrainExit::Idle));
    assert_eq!(world.settle(&there).await?, [Completed]);
    assert_eq!(world.answer(&there).await?, "w0 w1 w2 w3");
    let events = world.events(&there).await?;
    let at = |kind: &str| events.iter().rposition(|event| event.event.kind() == kind);
    ensure!(at("session.moved") < at("epoch.started"), "{:?}", world.kinds(&there).await?);
    ensure!(at("epoch.started") < at("prompt.promoted"), "{:?}", world.kinds(&there).await?);
    let promoted = |event: &SessionEvent| matches!(event, SessionEvent::PromptPromoted(promoted) if promoted.message == waits);
    ensure!(events.iter().any(|event| promoted(&event.event)), "what waited waits there");
    // The model is told of the new place, and not of the old one.
    let last = world.requests()?.pop().unwrap_or_default();
    let system = serde_json::to_string(&last)?;
    ensure!(system.contains(there.root.to_str().unwrap_or_default()), "{system}");
    ensure!(!system.contains(here.root.to_str().unwrap_or_default()), "{system}");
    world.check().await
}

#[tokio::test]
async fn in_the_middle_of_its_work_the_session_goes_on_with_it_elsewhere() -> Result<()> {
    let world = World::new().await?;
    let here = world.session().await?;
    let (there, control) = world.elsewhere(&here, false).await?;
    world.script(calls(
        "job",
        0,
        vec![shell("echo x > here; until [ -e go ]; do sleep 0.01; done")],
    ))?;
    world.script(calls("job", 1, vec![shell("echo y > there")]))?;
    world.script(says("job", 2, "done"))?;
    world.prompt(&here, "job").await?;
    let asks = async {
        here.until_file("here").await?;
        world.control(&here, Steer, control).await?;
        here.file("go", "")
    };
    let (moved, asked) = tokio::join!(leaves(&world, &here, &there), asks);
    asked?;
    // With the fold that it left with, as its worker would.
    let (exit, _) = world.drain_from(&there, moved?).await?;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    assert_eq!(world.answer(&there).await?, "done");
    assert_eq!((there.content("there").as_str(), here.content("there").as_str()), ("y\n", ""));
    let events = world.events(&there).await?;
    let started = events.iter().filter_map(|event| match &event.event {
        SessionEvent::TurnStarted(started) => Some(started.step),
        _ => None,
    });
    assert_eq!(started.collect::<Vec<_>>(), [1, 2, 3], "its steps go along");
    let recovered = world.kinds(&there).await?.contains(&"notice.recorded");
    ensure!(!recovered, "a Move is no recovery");
    world.check().await
}

#[tokio::test]
async fn what_is_carried_is_there() -> Result<()> {
    let world = World::new().await?;
    let (here, _) = captured(&world).await?;
    here.file("before.txt", "before\n")?;
    world.script(calls(
        "job",
        0,
        vec![call("write", json!({"path": "d/a.txt", "content": "a\n"}))],
    ))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&here, "job").await?;
    assert_eq!(world.settle(&here).await?, [Completed]);
    here.file("after.txt", "after\n")?;
    let (there, control) = world.elsewhere(&here, true).await?;
    world.control(&here, Steer, control).await?;
    leaves(&world, &here, &there).await?;
    let seed = world.store().location(ORG, there.at.location.clone()).await?.seed;
    let (workspace, files) = world.hold(&there, &there.root);
    let tree = files.restore_newest().await?;
    assert_eq!(tree, seed.map(|seed| seed.tree));
    assert_eq!(contents(&there.root)?, contents(&here.root)?);
    assert_eq!(contents(&there.root)?.len(), 3);
    there.is_held(&workspace.restored(there.token(), tree));
    // It goes on from there: its first capture has what it changes, and its packs the rest.
    world.script(calls("more", 0, vec![shell("rm before.txt; echo b > b.txt")]))?;
    world.script(says("more", 1, "done"))?;
    world.prompt(&there, "more").await?;
    assert_eq!(world.settle(&there).await?, [Completed]);
    let again = world.folder("again")?;
    world.take_over(&there).await?;
    let (_, files) = world.hold(&there, &again);
    files.restore_newest().await?;
    assert_eq!(contents(&again)?, contents(&there.root)?);
    assert_eq!(contents(&again)?.len(), 3);
    world.check().await
}

#[tokio::test]
async fn a_move_that_cannot_carry_says_so_and_the_session_stays() -> Result<()> {
    let world = World::new().await?;
    // Its files are captured by nobody.
    let here = world.session().await?;
    let (_there, control) = world.elsewhere(&here, true).await?;
    world.control(&here, Steer, control).await?;
    assert_eq!(world.settle(&here).await?, [DrainOutcome::Completed]);
    let refused = world.events(&here).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::ControlDelivered(delivered) => delivered.error,
        _ => None,
    });
    assert_eq!(refused.map(|error| error.code), Some(ErrorCode::WorkspaceSnapshotFailed.into()));
    world.prompt(&here, "say 3 words").await?;
    assert_eq!(world.settle(&here).await?, [Completed]);
    world.check().await
}
