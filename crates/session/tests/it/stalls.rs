//! A Postgres that does not answer for a while: what runs goes on, and nothing is written twice.

use std::time::Duration;

use anyhow::{Context, Result};
use domain::DrainOutcome::Completed;
use domain::Seq;
use session::DrainExit;
use simulated_model::Script;
use store::{Store, StoreOptions};
use testkit::Proxy;
use tokio::time::sleep;

use crate::tools::{calls, says, shell};
use crate::world::{ORG, SOON, Session, World};

/// Longer than a statement of a drain may take.
const STALL: Duration = Duration::from_secs(7);

/// A world whose worker reaches Postgres by a network with faults, and a store that reaches it without.
async fn behind_a_proxy() -> Result<(World, Proxy, Store)> {
    let database = testkit::database().await?;
    let url = database.store_url();
    let direct = Store::connect(&StoreOptions::new(&url))?;
    let (_, rest) = url.rsplit_once('@').context("a credential")?;
    let proxy = Proxy::to(rest.split_once('/').context("a database")?.0).await?;
    let url = proxy.url(&url);
    let world = World::on(url, Some(database), |settings| settings.result_delay = SOON).await?;
    Ok((world, proxy, direct))
}

async fn count(store: &Store, session: &Session, kind: &str) -> Result<usize> {
    let events = store.events(ORG, session.at.session.clone(), Seq(0), 1_000).await?.items;
    Ok(events.iter().filter(|event| event.event.kind() == kind).count())
}

/// Finding store 7: a stall of over five seconds dropped the bodies of running turns, and what they had done.
#[tokio::test]
async fn a_stall_of_postgres_ends_no_turn_and_stops_no_tool() -> Result<()> {
    let (world, proxy, direct) = behind_a_proxy().await?;
    let session = world.session().await?;
    // The second writes more than a pipe holds: it ends only while somebody reads.
    let long = "until [ -e go ]; do sleep 0.02; done; head -c 300000 /dev/zero | tr '\\0' x; echo 1 >> late";
    let first = "echo 1 > begun; until [ -e one ]; do sleep 0.02; done; echo 1 >> early";
    world.script(calls("work", 0, vec![shell(first), shell(long)]))?;
    world.script(says("work", 1, "done"))?;
    world.prompt(&session, "work").await?;
    let stall = async {
        session.until_file("begun").await?;
        while count(&direct, &session, "turn.replied").await? == 0 {
            sleep(SOON).await;
        }
        proxy.still(true);
        std::fs::write(session.root.join("one"), "")?;
        session.until_file("early").await?;
        // The first one's result is on its way, and is not answered.
        sleep(SOON * 10).await;
        std::fs::write(session.root.join("go"), "")?;
        session.until_file("late").await?;
        // Statements are given up meanwhile, and made again.
        sleep(STALL).await;
        proxy.still(false);
        Ok::<_, anyhow::Error>(())
    };
    let (settled, stalled) = tokio::join!(world.settle(&session), stall);
    stalled?;
    assert_eq!(settled?, [Completed]);
    assert_eq!((session.content("early"), session.content("late")), ("1\n".into(), "1\n".into()));
    assert_eq!(world.answer(&session).await?, "done");
    assert_eq!(count(&direct, &session, "notice.recorded").await?, 0, "nothing was recovered");
    world.check().await
}

/// Finding store 7: a write that was made and not answered is found in the log, and is not made again.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_made_once() -> Result<()> {
    let (world, proxy, direct) = behind_a_proxy().await?;
    let session = world.session().await?;
    let gate = Some("said".into());
    world.script(Script { gate, ..says("story", 0, "once upon a time") })?;
    world.prompt(&session, "story").await?;
    let lost = async {
        world.until_requests(1).await?;
        proxy.mute(true);
        world.model().open_gate("said")?;
        while count(&direct, &session, "turn.replied").await? == 0 {
            sleep(SOON).await;
        }
        proxy.cut_flows();
        proxy.mute(false);
        Ok::<_, anyhow::Error>(())
    };
    let (exit, lost) = tokio::join!(world.drain(&session), lost);
    lost?;
    // The write ends the drain and its claim: the sweep may see that before the drain has found it in the log.
    let exit = exit?;
    assert!(matches!(exit, DrainExit::Ended(Completed) | DrainExit::Fenced), "{exit:?}");
    // Idle connections were cut, too. Whoever is given one fails, and tries again as a worker does.
    let mut rest = world.settle(&session).await;
    for _ in 0..8 {
        if rest.is_err() {
            rest = world.settle(&session).await;
        }
    }
    assert_eq!(rest?, [], "nothing is left to do");
    for kind in ["turn.started", "turn.replied", "turn.settled", "drain.ended"] {
        assert_eq!(count(&direct, &session, kind).await?, 1, "{kind}");
    }
    assert_eq!(world.answer(&session).await?, "once upon a time");
    world.check().await
}

/// Finding store 7: a write that never came to Postgres is made when it answers again.
#[tokio::test]
async fn a_write_that_was_lost_on_its_way_is_made_again() -> Result<()> {
    let (world, proxy, direct) = behind_a_proxy().await?;
    let session = world.session().await?;
    let gate = Some("said".into());
    world.script(Script { gate, ..says("story", 0, "once upon a time") })?;
    world.prompt(&session, "story").await?;
    let lost = async {
        world.until_requests(1).await?;
        proxy.lose_flows();
        Ok::<_, anyhow::Error>(world.model().open_gate("said")?)
    };
    let (settled, lost) = tokio::join!(world.settle(&session), lost);
    lost?;
    assert_eq!(settled?, [Completed]);
    assert_eq!(count(&direct, &session, "turn.replied").await?, 1);
    assert_eq!(world.answer(&session).await?, "once upon a time");
    world.check().await
}
