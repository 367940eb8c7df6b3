//! Sessions that begin with the conversation of another, and need the other one no more.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::Delivery::Steer;
use domain::DrainOutcome::Completed;
use domain::{
    Clock as _, IdMint, MessageId, Seq, SessionCreated, SessionForked, SessionId, SessionRef, Stamp,
};
use history::History;
use serde_json::Value;
use session::{DrainExit, drain_control};
use store::{Creation, NewFork};
use tokio_util::sync::CancellationToken;

use crate::compaction::{SUMMARY, last_gist};
use crate::world::{ORG, Session, World};

/// The number of a fork's first copied event.
const FIRST: Seq = Seq(3);

/// A fork of the conversation before a message, or of all of it, at the same Location and under the same token.
pub(crate) async fn fork(
    world: &World,
    of: &Session,
    before: Option<&MessageId>,
) -> Result<Session> {
    let (store, now) = (world.store(), world.clock.now_ms());
    let id = SessionId::mint(&mut IdMint::after(Stamp::default(), now));
    let row = store.session(ORG, of.at.session.clone()).await?;
    let mut mint = IdMint::after(Stamp::default(), now);
    let log = world.events(of).await?;
    let copy =
        session_rules::fork(&log, before, FIRST, &mut mint).context("the message is there")?;
    let new = NewFork {
        id: id.clone(),
        created: SessionCreated {
            by: None,
            project: row.project,
            location: of.at.location.clone(),
            directory: row.directory,
            title: row.title,
            agent: row.agent,
            model: row.model,
            parent: None,
            named: true,
            rules: Vec::new(),
            metadata: None,
        },
        forked: SessionForked {
            parent: of.at.session.clone(),
            through: copy.through,
            before: before.cloned(),
            copied: i64::try_from(copy.events.len())?,
            files: None,
        },
        events: copy.events,
        last_id: mint.last(),
        now,
    };
    ensure!(store.fork(ORG, new).await? == Creation::Created);
    Ok(of.another(SessionRef { session: id, ..of.at.clone() }))
}

async fn answered(world: &World, session: &Session, text: &str) -> Result<Vec<Value>> {
    world.prompt(session, text).await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    world.requests()?.pop().context("a request")
}

#[tokio::test]
async fn a_fork_goes_on_from_its_parents_bytes_and_is_told_what_changed_since() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    answered(&world, &session, "read a.txt then say 2 words").await?;
    let last = answered(&world, &session, "say 3 words").await?;
    world.clock.advance(Duration::from_secs(24 * 3_600));
    let fork = fork(&world, &session, None).await?;
    assert!(matches!(world.drain(&fork).await?, DrainExit::Idle), "it has nothing to do");
    let first = answered(&world, &fork, "say 4 words").await?;
    assert_eq!(first[..last.len()], last, "a provider's cache serves it");
    let roles: Vec<_> = first[last.len()..].iter().map(|message| message["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "user", "system"], "the date is told after the prompt");
    assert_eq!(world.answer(&fork).await?, "w0 w1 w2 w3");
    // It has cost what it has asked itself, and its parent has not changed.
    let (ours, theirs) = (
        world.store().session(ORG, fork.at.session.clone()).await?,
        world.store().session(ORG, session.at.session.clone()).await?,
    );
    assert!(ours.usage.input > 0 && ours.usage.input < theirs.usage.input, "{ours:?} {theirs:?}");
    assert_eq!(world.answer(&session).await?, "w0 w1 w2");
    world.check().await
}

#[tokio::test]
async fn forks_of_forks_need_nobody() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    session.file("a.txt", "one\n")?;
    answered(&world, &session, "read a.txt then say 2 words").await?;
    let child = fork(&world, &session, None).await?;
    answered(&world, &child, "say 3 words").await?;
    let cut = world.prompt(&child, "say 4 words").await?;
    assert_eq!(world.settle(&child).await?, [Completed]);
    // Messages have ids of their own: the cut is a message of the fork that is forked.
    let grandchild = fork(&world, &child, Some(&cut)).await?;
    for gone in [&session, &child] {
        world.store().delete_session(ORG, gone.at.session.clone()).await?;
    }
    let other = world.another_worker()?;
    world.prompt(&grandchild, "say 5 words").await?;
    let (_handle, control) = drain_control(CancellationToken::new());
    let (exit, _) = grandchild.run(&other, control, History::new()).await;
    assert!(matches!(exit, DrainExit::Ended(Completed)), "{exit:?}");
    assert_eq!(
        last_gist(&world)?,
        [
            "user: read a.txt then say 2 wo",
            "assistant: ",
            "tool: 1: one",
            "assistant: w0 w1",
            "user: say 3 words",
            "assistant: w0 w1 w2",
            "user: say 5 words"
        ]
    );
    let told = world.told(&grandchild).await?;
    assert_eq!(told.len(), 7, "{told:?}");
    ensure!(world.store().violations(ORG, true).await?.is_empty());
    let report = world.store().rebuild(ORG, grandchild.at.session.clone(), true).await?;
    ensure!(report.is_exact(), "{report:#?}");
    Ok(())
}

#[tokio::test]
async fn a_checkpoint_is_the_forks_too_and_before_it_the_fork_has_what_it_stands_for() -> Result<()>
{
    let world = World::with(|settings| settings.rules.compaction.keep = 1).await?;
    let session = world.session().await?;
    answered(&world, &session, "say 2 words").await?;
    let second = world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.compact(&session, Steer).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert!(last_gist(&world)?.pop().is_some_and(|last| last.contains(SUMMARY)));
    let after = fork(&world, &session, None).await?;
    answered(&world, &after, "say 4 words").await?;
    let gist = last_gist(&world)?;
    assert_eq!(
        gist.first().map(String::as_str),
        Some("user: <conversation-checkpoint"),
        "{gist:?}"
    );
    let before = fork(&world, &session, Some(&second)).await?;
    answered(&world, &before, "say 5 words").await?;
    assert_eq!(last_gist(&world)?, ["user: say 2 words", "assistant: w0 w1", "user: say 5 words"]);
    world.check().await
}
