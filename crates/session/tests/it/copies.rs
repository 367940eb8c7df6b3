//! Locations that began with each other's files, one after the other.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use domain::Delivery::Steer;
use domain::DrainOutcome::Completed;
use domain::{Clock as _, Control, IdMint, SessionCreated, SessionId, SessionRef, Stamp};
use history::History;
use serde_json::json;
use session::DrainExit;
use store::{NewSession, Seed};

use crate::files::contents;
use crate::tools::{call, calls, says};
use crate::world::{ORG, Session, World};

/// More than any chain that was ever walked.
const COPIES: usize = 40;
/// So many files are written, one after the other.
const FILES: usize = 4;

/// Lets a session write one file in a prompt of its own.
async fn writes(world: &World, session: &Session, n: usize) -> Result<()> {
    let (prompt, name) = (format!("job {n:03}"), format!("{}.txt", n % FILES));
    let write = call("write", json!({"path": name, "content": format!("file {n}\n")}));
    world.script(calls(&prompt, 0, vec![write]))?;
    world.script(says(&prompt, 1, "done"))?;
    world.prompt(session, &prompt).await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    Ok(())
}

/// Takes a session's Location as a worker with an empty directory, and returns how long its files took to come.
async fn opens(world: &World, session: &Session) -> Result<Duration> {
    let (workspace, files) = world.hold(session, &session.root);
    let began = Instant::now();
    let tree = files.restore_newest().await?;
    let took = began.elapsed();
    session.is_held(&workspace.restored(session.token(), tree));
    Ok(took)
}

/// A new session at a Location of its own, which begins with the files of `from`.
async fn copied(world: &World, from: &Session) -> Result<Session> {
    let (there, control) = world.elsewhere(from, true).await?;
    let Control::Move { project, location, directory, .. } = control else { bail!("a Move") };
    let newest = world.store().workspace_packs(from.at.location_ref()).await?.pop();
    let tree = newest.context("a snapshot")?.tree;
    let seed = Seed { location: from.at.location.clone(), tree };
    world.store().seed_location(there.at.location_ref(), seed).await?;
    let now = world.clock.now_ms();
    let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
    let created = SessionCreated {
        by: None,
        project,
        location: location.clone(),
        directory,
        title: "a copy".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: true,
        rules: Vec::new(),
        metadata: None,
    };
    world.store().create_session(ORG, NewSession { id: id.clone(), created, now }).await?;
    Ok(there.another(SessionRef { org: ORG, location, session: id }))
}

/// Asserts that the newest Location opens about as fast as the first ones did.
fn is_as_fast(times: &[Duration]) -> Result<()> {
    let best = |some: &[Duration]| some.iter().min().copied().unwrap_or_default();
    let (first, last) = (best(&times[FILES..2 * FILES]), best(&times[times.len() - 10..]));
    ensure!(last <= 2 * first + Duration::from_millis(20), "{first:?}, then {last:?}");
    Ok(())
}

// Finding core-3 H4: the 33rd Location in a chain could not be opened.
#[tokio::test]
async fn copies_of_copies_have_all_their_files() -> Result<()> {
    let world = World::new().await?;
    let mut session = world.session().await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    let mut times = Vec::new();
    for n in 0..COPIES {
        writes(&world, &session, n).await?;
        let copy = copied(&world, &session).await?;
        times.push(opens(&world, &copy).await?);
        assert_eq!(contents(&copy.root)?, contents(&session.root)?);
        session = copy;
    }
    assert_eq!(contents(&session.root)?.len(), FILES);
    is_as_fast(&times)?;
    world.check().await
}

// Finding core-3 H4: after the 33rd Move every prompt failed.
#[tokio::test]
async fn a_session_that_moves_often_has_all_its_files() -> Result<()> {
    let world = World::new().await?;
    let mut session = world.session().await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    let mut times = Vec::new();
    for n in 0..COPIES {
        writes(&world, &session, n).await?;
        let (there, control) = world.elsewhere(&session, true).await?;
        world.control(&session, Steer, control).await?;
        match world.drain_from(&session, History::new()).await?.0 {
            DrainExit::Moved(to) => assert_eq!(to, there.at),
            other => bail!("the session did not move: {other:?}"),
        }
        times.push(opens(&world, &there).await?);
        assert_eq!(contents(&there.root)?, contents(&session.root)?);
        session = there;
    }
    assert_eq!(contents(&session.root)?.len(), FILES);
    is_as_fast(&times)?;
    world.check().await
}
