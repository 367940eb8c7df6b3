//! When files are lost, the model learns which effects of its calls are gone: those that no capture has, and no others.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::Completed;
use domain::{CallId, NoticeKind, RecordedEvent, SessionEvent, TurnId};
use serde_json::json;
use session::Files;
use simulated_model::Script;

use crate::recovery::dies_once;
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, SOON, Session, World, until};

/// A world whose captures are tried again at once.
async fn world() -> Result<World> {
    World::with(|settings| settings.snapshots.back_off = Duration::ZERO).await
}

/// Where object storage has the packs, and where they are while it takes none.
fn packs(world: &World) -> Result<[PathBuf; 2]> {
    let packs = world.folder(&format!("blobs/o/{ORG}"))?.join("snapshot");
    std::fs::create_dir_all(&packs)?;
    let aside = packs.with_extension("aside");
    Ok([packs, aside])
}

/// Object storage that takes no pack until the answer is called.
fn outage(world: &World) -> Result<impl FnOnce() -> Result<()>> {
    let [packs, aside] = packs(world)?;
    std::fs::rename(&packs, &aside)?;
    std::fs::write(&packs, "no folder")?;
    Ok(move || {
        std::fs::remove_file(&packs)?;
        Ok(std::fs::rename(&aside, &packs)?)
    })
}

/// The session where a worker captures its files.
fn hold(world: &World, session: &Session, folder: &str) -> Result<Files> {
    let (workspace, files) = world.hold(session, &world.folder(folder)?);
    session.is_held(&workspace);
    Ok(files)
}

/// Another worker takes over, with a disk of its own; the files that it finds there.
async fn on_another_disk(world: &World, session: &Session, folder: &str) -> Result<usize> {
    let token = world.take_over(session).await?;
    let there = world.folder(folder)?;
    let (workspace, files) = world.hold(session, &there);
    let tree = files.restore_newest().await?;
    session.is_held(&workspace.restored(token, tree));
    Ok(crate::files::contents(&there)?.len())
}

async fn says_again(world: &World, session: &Session, prompt: &str) -> Result<()> {
    world.script(says(prompt, 0, "well"))?;
    world.prompt(session, prompt).await?;
    assert_eq!(world.settle(session).await?, [Completed]);
    Ok(())
}

/// Calls that have results, and of those, which were lost at each takeover.
async fn lost(world: &World, session: &Session) -> Result<(Vec<CallId>, Vec<Vec<CallId>>)> {
    let (mut settled, mut lost) = (Vec::new(), Vec::new());
    for event in world.events(session).await? {
        match event.event {
            SessionEvent::ToolSettled(call) => settled.push(call.call),
            SessionEvent::WorkspaceRestored(restored) => lost.push(restored.lost),
            _ => {}
        }
    }
    Ok((settled, lost))
}

async fn notices(world: &World, session: &Session) -> Result<Vec<String>> {
    let told = |event| match event {
        SessionEvent::NoticeRecorded(notice) if notice.kind == NoticeKind::FilesLost => {
            Some(notice.text)
        }
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| told(event.event)).collect())
}

#[tokio::test]
async fn what_a_drains_last_capture_did_not_save_is_told_on_another_disk() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    let files = hold(&world, &session, "here")?;
    let write = call("write", json!({"path": "a.txt", "content": "one\n"}));
    world.script(calls("job", 0, vec![write]))?;
    world.script(says("job", 1, "done"))?;
    let comes_back = outage(&world)?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert!(files.counts().failed >= 1, "{:?}", files.counts());
    comes_back()?;
    assert_eq!(on_another_disk(&world, &session, "there").await?, 0, "no snapshot has any file");
    says_again(&world, &session, "one").await?;
    let (settled, gone) = lost(&world, &session).await?;
    assert_eq!((settled.len(), gone), (1, vec![settled]));
    let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
    ensure!(last.contains("effects on files are gone: write"), "{last}");
    // Once.
    says_again(&world, &session, "two").await?;
    assert_eq!(on_another_disk(&world, &session, "yonder").await?, 0);
    says_again(&world, &session, "three").await?;
    assert_eq!(lost(&world, &session).await?.1[1], []);
    assert_eq!(notices(&world, &session).await?.len(), 1);
    world.check().await
}

#[tokio::test]
async fn a_drain_that_ends_in_its_first_write_has_saved_nothing() -> Result<()> {
    let world = world().await?;
    let session = world.session_titled("x", false).await?;
    hold(&world, &session, "here")?;
    let title = Script { matches: "<title-request>".into(), hang: true, ..Script::default() };
    world.script(Script { times: Some(1), ..title })?;
    world.script(calls("job", 0, vec![shell("echo x > x.txt")]))?;
    world.script(says("job", 1, "done"))?;
    let comes_back = outage(&world)?;
    world.prompt(&session, "job").await?;
    // It dies when nothing but a title is waited for.
    let settled = |events: &[RecordedEvent]| {
        let turns = events.iter().filter(|event| event.event.kind() == "turn.settled");
        (turns.count() == 2).then_some(())
    };
    dies_once(&world, &session, async {
        world.until_requests(3).await?;
        world.until(&session, settled).await
    })
    .await?;
    comes_back()?;
    world.take_over(&session).await?;
    hold(&world, &session, "here")?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let kinds = world.kinds(&session).await?;
    ensure!(!kinds.contains(&"workspace.snapshotted"), "{kinds:?}");
    assert_eq!(on_another_disk(&world, &session, "there").await?, 0);
    says_again(&world, &session, "one").await?;
    let (settled, gone) = lost(&world, &session).await?;
    assert_eq!((settled.len(), gone), (1, vec![settled]));
    world.check().await
}

#[tokio::test]
async fn what_is_captured_before_a_call_is_of_the_turn_whose_calls_no_capture_has() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    let files = hold(&world, &session, "here")?;
    let write = |path: &str| call("write", json!({"path": path, "content": "one\n"}));
    world.script(calls("job", 0, vec![write("a.txt")]))?;
    world.script(Script { gate: Some("back".into()), ..calls("job", 1, vec![write("b.txt")]) })?;
    world.script(says("job", 2, "done"))?;
    let comes_back = outage(&world)?;
    world.prompt(&session, "job").await?;
    let (outcomes, ()) = futures::try_join!(world.settle(&session), async {
        // Nothing of the first turn could be captured, and the second one's call comes when it could be.
        world.until_requests(2).await?;
        until(|| files.counts().failed >= 1).await?;
        comes_back()?;
        anyhow::Ok(world.model().open_gate("back")?)
    })?;
    assert_eq!(outcomes, [Completed]);
    let (mut turns, mut captures) = (Vec::new(), Vec::new());
    for event in world.events(&session).await? {
        match event.event {
            SessionEvent::TurnStarted(started) => turns.push(started.turn),
            SessionEvent::WorkspaceSnapshotted(taken) => captures.push((taken.turn, taken.base)),
            _ => {}
        }
    }
    let [first, second, _] = &turns[..] else { anyhow::bail!("three turns, not {turns:?}") };
    let of = |turn: &TurnId| (Some(turn.clone()), false);
    assert_eq!(captures, [of(first), of(second)]);
    world.check().await
}

#[tokio::test]
async fn what_is_captured_while_a_call_is_at_it_is_of_its_turn() -> Result<()> {
    let mut world = world().await?;
    Arc::make_mut(&mut world.worker.settings).intent_delay = SOON;
    let session = world.session().await?;
    hold(&world, &session, "here")?;
    world.script(calls("before", 0, vec![shell("echo x > there.txt")]))?;
    world.script(says("before", 1, "done"))?;
    world.prompt(&session, "before").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    // The next who looks can capture nothing before the first call; before the second one, while the first is still at
    // it, it can.
    hold(&world, &session, "here")?;
    let since = world.events(&session).await?.len();
    let [packs, aside] = packs(&world)?.map(|path| path.display().to_string());
    drop(outage(&world)?);
    let slow = shell(&format!("echo x > a.txt; rm {packs}; mv {aside} {packs}; sleep 2"));
    let write = call("write", json!({"path": "b.txt", "content": "one\n"}));
    world.script(Script { chunk_delay_ms: 300, ..calls("job", 0, vec![slow, write]) })?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let (mut turns, mut captures, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for event in world.events(&session).await?.split_off(since) {
        match event.event {
            SessionEvent::TurnStarted(started) => turns.push(started.turn),
            SessionEvent::WorkspaceSnapshotted(taken) => {
                captures.push((taken.turn, taken.base));
                files.extend(taken.files.into_iter().map(|file| file.path));
            }
            _ => {}
        }
    }
    let first = turns.first().context("a turn")?;
    ensure!(
        captures.iter().all(|capture| *capture == (Some(first.clone()), false)),
        "{captures:?}"
    );
    ensure!(files.contains(&"a.txt".into()) && files.contains(&"b.txt".into()), "{files:?}");
    world.check().await
}

#[tokio::test]
async fn where_the_disk_is_the_same_the_next_drain_saves_what_the_last_did_not() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    hold(&world, &session, "here")?;
    world.script(calls("job", 0, vec![shell("echo x > x.txt")]))?;
    world.script(says("job", 1, "done"))?;
    let comes_back = outage(&world)?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    comes_back()?;
    says_again(&world, &session, "one").await?;
    assert_eq!(on_another_disk(&world, &session, "there").await?, 1);
    says_again(&world, &session, "two").await?;
    assert_eq!(lost(&world, &session).await?.1, [[]]);
    assert_eq!(notices(&world, &session).await?, Vec::<String>::new());
    world.check().await
}

#[tokio::test]
async fn calls_that_changed_nothing_are_not_told_as_lost() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    hold(&world, &session, "here")?;
    world.script(calls("job", 0, vec![shell("echo x > x.txt")]))?;
    world.script(calls("job", 1, vec![shell("true")]))?;
    // Refused, and of a file that is not there: nothing is looked at.
    let edit = call("edit", json!({"path": "none.txt", "old": "a", "new": "b"}));
    world.script(calls("job", 2, vec![edit]))?;
    world.script(says("job", 3, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(on_another_disk(&world, &session, "there").await?, 1);
    says_again(&world, &session, "one").await?;
    let (settled, gone) = lost(&world, &session).await?;
    assert_eq!((settled.len(), gone), (3, vec![vec![]]));
    assert_eq!(notices(&world, &session).await?, Vec::<String>::new());
    world.check().await
}
