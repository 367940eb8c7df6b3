//! Workspace Snapshots: beside the next call, in its write, and never for what changes nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::DrainOutcome::Completed;
use domain::{
    CallId, FileStatus, LeftReason, NoticeKind, RecordedEvent, SessionEvent, ToolClass,
    WorkspaceSnapshotted,
};
use serde_json::json;
use signals::{Hint, Received, SessionHint, Topic};
use simulated_model::Script;

use crate::recovery::{dies_once, life};
use crate::tools::{call, calls, says, shell};
use crate::world::{ORG, Session, World, until};

/// Returns the captures in the log.
async fn captures(world: &World, session: &Session) -> Result<Vec<WorkspaceSnapshotted>> {
    let taken = |event: SessionEvent| match event {
        SessionEvent::WorkspaceSnapshotted(taken) => Some(taken),
        _ => None,
    };
    Ok(world.events(session).await?.into_iter().filter_map(|event| taken(event.event)).collect())
}

/// Each captured change as `A a.txt` (added), `M`, `D`; a base is `base`.
async fn told(world: &World, session: &Session) -> Result<Vec<String>> {
    let mut told = Vec::new();
    for capture in captures(world, session).await? {
        let change = |file: &domain::FileChange| {
            let status = match file.status {
                FileStatus::Added => 'A',
                FileStatus::Modified => 'M',
                FileStatus::Deleted => 'D',
            };
            format!("{status} {}", file.path)
        };
        let changes: Vec<_> = capture.files.iter().map(change).collect();
        assert_eq!(capture.base, capture.turn.is_none());
        told.push(if capture.base { "base".to_owned() } else { changes.join(", ") });
    }
    Ok(told)
}

/// All files below a directory.
pub(crate) fn contents(root: &Path) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name in UTF-8")?;
        if entry.file_type()?.is_dir() {
            let below = contents(&entry.path())?;
            found.extend(below.into_iter().map(|(path, text)| (format!("{name}/{path}"), text)));
        } else {
            found.insert(name, std::fs::read_to_string(entry.path())?);
        }
    }
    Ok(found)
}

/// A world whose captures are tried again at once.
async fn world() -> Result<World> {
    World::with(|settings| settings.snapshots.back_off = Duration::ZERO).await
}

/// A session in a directory that is captured.
async fn session(world: &World) -> Result<(Session, session::Files)> {
    let session = world.session().await?;
    let (workspace, files) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    Ok((session, files))
}

/// How many writes the drains of `session` make until it settles.
async fn writes(world: &World, session: &Session) -> Result<usize> {
    let topic = Topic::Session(ORG, session.at.session.clone());
    let mut hints = world.worker.signals.subscribe(topic).await;
    assert_eq!(world.settle(session).await?, [Completed]);
    let mut writes = 0;
    // The last drain found nothing to do, so all has been told by now.
    while let Ok(Some(hint)) = tokio::time::timeout(Duration::from_millis(20), hints.next()).await {
        if matches!(hint, Received::Hint(Hint::Session(SessionHint::Committed { .. }))) {
            writes += 1;
        }
    }
    Ok(writes)
}

#[tokio::test]
async fn a_batch_is_captured_beside_the_next_call_and_no_commit_is_added() -> Result<()> {
    let world = world().await?;
    world.script(calls(
        "job",
        0,
        vec![call("write", json!({"path": "a.txt", "content": "one\n"}))],
    ))?;
    world.script(calls("job", 1, vec![call("read", json!({"path": "a.txt"}))]))?;
    world.script(calls(
        "job",
        2,
        vec![
            call("edit", json!({"path": "a.txt", "old": "one", "new": "two"})),
            shell("mkdir d && echo b > d/b.txt && rm c.txt"),
        ],
    ))?;
    world.script(says("job", 3, "done"))?;
    let (captured, files) = session(&world).await?;
    let plain = world.session().await?;
    for session in [&captured, &plain] {
        session.file("c.txt", "there\n")?;
        world.prompt(session, "job").await?;
    }
    // Four turns are eight writes of the drain: 2T + 1 with the admission.
    assert_eq!(writes(&world, &plain).await?, 8);
    assert_eq!(writes(&world, &captured).await?, 8, "{:?}", world.kinds(&captured).await?);
    assert_eq!(told(&world, &captured).await?, ["base", "A a.txt", "M a.txt, D c.txt, A d/b.txt"]);
    let taken = captures(&world, &captured).await?;
    assert_eq!(taken[1].parent.as_ref(), Some(&taken[0].tree));
    assert_eq!(taken[2].parent.as_ref(), Some(&taken[1].tree));
    let patch = taken[2].files[0].patch.as_deref().context("a patch")?;
    assert!(patch.contains("-one") && patch.contains("+two"), "{patch}");
    assert_eq!(files.counts().failed, 0);
    assert!(captures(&world, &plain).await?.is_empty());
    world.check().await
}

#[tokio::test]
async fn who_changes_nothing_has_no_file_looked_at() -> Result<()> {
    let world = world().await?;
    let (session, files) = session(&world).await?;
    session.file("a.txt", "one\n")?;
    world.script(calls(
        "look",
        0,
        vec![
            call("read", json!({"path": "a.txt"})),
            call("glob", json!({"pattern": "*"})),
            call("grep", json!({"pattern": "one"})),
        ],
    ))?;
    world.script(says("look", 1, "looked"))?;
    for prompt in ["say 3 words", "look"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    assert_eq!(files.counts(), session::FilesCounts::default());
    assert!(captures(&world, &session).await?.is_empty());
    // A command that changes nothing has the files looked at, and that is all that is said of it.
    world.script(calls("run", 0, vec![shell("true")]))?;
    world.script(calls("run", 1, vec![shell("true")]))?;
    world.script(says("run", 2, "ran"))?;
    world.prompt(&session, "run").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(told(&world, &session).await?, ["base", "", ""]);
    let taken = captures(&world, &session).await?;
    for again in &taken[1..] {
        let place = (again.token, again.ordinal, &again.tree, &again.pack);
        assert_eq!(place, (taken[0].token, taken[0].ordinal, &taken[0].tree, &None));
    }
    assert_eq!(files.counts().looks, 3);
    world.check().await
}

#[tokio::test]
async fn what_people_change_between_two_prompts_is_no_turns_doing() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    let (workspace, files) = world.hold_as(&session, &session.root, false);
    session.is_held(&workspace);
    for name in ["one", "two"] {
        world.script(calls(name, 0, vec![shell(&format!("echo x > {name}.txt"))]))?;
        world.script(calls(name, 1, vec![shell("true")]))?;
        world.script(says(name, 2, "done"))?;
        session.file(&format!("mine-before-{name}.txt"), "mine\n")?;
        world.prompt(&session, name).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    let expected = ["base", "A one.txt", "", "base", "A two.txt", ""];
    assert_eq!(told(&world, &session).await?, expected);
    // Once a drain, and after each batch.
    assert_eq!(files.counts().looks, 6);
    world.check().await
}

#[tokio::test]
async fn the_end_of_a_drain_carries_its_last_capture() -> Result<()> {
    let world = world().await?;
    // Cut off by the step limit, by an interrupt and by a provider that fails.
    let (session, _files) = session(&world).await?;
    world.script(calls("stop", 0, vec![shell("echo 1 > one; sleep 30")]))?;
    world.prompt(&session, "stop").await?;
    let interrupt = async {
        session.until_file("one").await?;
        world.interrupt(&session).await
    };
    let (ended, interrupted) = tokio::join!(world.settle(&session), interrupt);
    interrupted?;
    assert_eq!(ended?, [domain::DrainOutcome::Interrupted]);
    assert_eq!(told(&world, &session).await?, ["base", "A one"]);
    world.script(calls("fail", 0, vec![shell("echo 2 > two")]))?;
    world.script(Script { status: Some(400), ..says("fail", 1, "") })?;
    world.prompt(&session, "fail").await?;
    assert_eq!(world.settle(&session).await?, [domain::DrainOutcome::Failed]);
    assert_eq!(told(&world, &session).await?, ["base", "A one", "A two"]);
    world.check().await
}

#[tokio::test]
async fn two_sessions_of_one_location_share_its_snapshots() -> Result<()> {
    let world = world().await?;
    let (one, files) = session(&world).await?;
    let two = world.beside(&one).await?;
    for (name, session) in [("first", &one), ("second", &two)] {
        world.script(calls(name, 0, vec![shell(&format!("echo x > {name}.txt; sleep 0.05"))]))?;
        let path = format!("{name}.more.txt");
        let write = call("write", json!({"path": path, "content": "y\n"}));
        world.script(calls(name, 1, vec![write]))?;
        world.script(says(name, 2, "done"))?;
        world.prompt(session, name).await?;
    }
    let (first, second) = tokio::join!(world.settle(&one), world.settle(&two));
    assert_eq!((first?, second?), (vec![Completed], vec![Completed]));
    let mut all = captures(&world, &one).await?;
    all.extend(captures(&world, &two).await?);
    all.retain(|capture| capture.parent.as_ref() != Some(&capture.tree));
    all.sort_by_key(|capture| capture.ordinal);
    let ordinals: Vec<_> = all.iter().map(|capture| capture.ordinal).collect();
    ensure!(ordinals.windows(2).all(|pair| pair[0] < pair[1]), "{ordinals:?}");
    // The newest has all of it, wherever it is restored.
    let there = world.folder("elsewhere")?;
    let token = world.take_over(&one).await?;
    let (_, others) = world.hold(&one, &there);
    let newest = others.restore_newest().await?.context("a snapshot")?;
    assert_eq!(newest, all.last().context("a capture")?.tree, "under {token}");
    assert_eq!(contents(&there)?, contents(&one.root)?);
    assert_eq!(contents(&there)?.len(), 4);
    assert_eq!(files.counts().failed, 0);
    world.check().await
}

#[tokio::test]
async fn without_object_storage_work_goes_on_and_the_next_capture_has_it_all() -> Result<()> {
    let world = world().await?;
    let (session, files) = session(&world).await?;
    let blobs = world.folder("blobs")?.display().to_string();
    // The calls themselves take it away and bring it back: what the first and the second have done has nowhere to go.
    let gone = format!("echo x > 0.txt; mv {blobs} {blobs}.aside; echo no folder > {blobs}");
    let back = format!("echo x > 2.txt; rm {blobs}; mv {blobs}.aside {blobs}");
    world.script(calls("job", 0, vec![shell(&gone)]))?;
    world.script(calls(
        "job",
        1,
        vec![call("write", json!({"path": "1.txt", "content": "x\n"}))],
    ))?;
    world.script(calls("job", 2, vec![shell(&back)]))?;
    world.script(says("job", 3, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let counts = files.counts();
    assert!(counts.failed >= 2, "{counts:?}");
    let told = told(&world, &session).await?;
    let listed = told.join(", ");
    for round in 0..3 {
        assert_eq!(listed.matches(&format!("A {round}.txt")).count(), 1, "{told:?}");
    }
    world.check().await
}

#[tokio::test]
async fn calls_go_on_without_a_capture_that_takes_too_long() -> Result<()> {
    let world = World::with(|settings| settings.snapshots.wait = Duration::ZERO).await?;
    let (session, files) = session(&world).await?;
    world.script(calls("job", 0, vec![shell("echo x > x.txt")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(session.content("x.txt"), "x\n");
    let counts = files.counts();
    assert!(counts.overdue >= 1 && counts.failed == 0, "{counts:?}");
    // The drain's end waits for the rest of it, since nobody captures afterwards.
    let there = world.folder("elsewhere")?;
    world.take_over(&session).await?;
    let (_, other) = world.hold(&session, &there);
    other.restore_newest().await?.context("a snapshot")?;
    assert_eq!(contents(&there)?, contents(&session.root)?);
    world.check().await
}

#[tokio::test]
async fn a_capture_that_never_ends_ends_no_drain_late() -> Result<()> {
    let world = World::with(|settings| {
        settings.snapshots.wait = Duration::ZERO;
        settings.snapshots.last_wait = Duration::ZERO;
        settings.snapshots.back_off = Duration::ZERO;
    })
    .await?;
    let (session, files) = session(&world).await?;
    for job in 0..8 {
        let name = format!("job{job}");
        world.script(calls(&name, 0, vec![shell(&format!("echo x > {job}.txt"))]))?;
        world.script(says(&name, 1, "done"))?;
        world.prompt(&session, &name).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
    }
    // A quick disk has some captures before anybody looks.
    assert!(files.counts().overdue >= 4, "{:?}", files.counts());
    world.check().await
}

/// Calls of the session that have changed files since the newest committed capture.
fn uncaptured(events: &[RecordedEvent]) -> Vec<CallId> {
    let mut calls = Vec::new();
    let mut pure = Vec::new();
    for event in events {
        match &event.event {
            SessionEvent::ToolCalled(called) if called.class == ToolClass::Pure => {
                pure.push(called.intent.call.clone());
            }
            SessionEvent::ToolSettled(settled) if !pure.contains(&settled.call) => {
                calls.push(settled.call.clone());
            }
            SessionEvent::WorkspaceSnapshotted(_) => calls.clear(),
            _ => {}
        }
    }
    calls
}

#[tokio::test]
async fn a_worker_with_another_disk_has_what_was_committed_and_says_what_is_gone() -> Result<()> {
    let world = world().await?;
    world.script(calls(
        "job",
        0,
        vec![call("write", json!({"path": "a.txt", "content": "one\n"}))],
    ))?;
    world.script(calls(
        "job",
        1,
        vec![
            call("edit", json!({"path": "a.txt", "old": "one", "new": "two"})),
            shell("sleep 0.02; echo x > b.txt"),
        ],
    ))?;
    world.script(calls("job", 2, vec![call("read", json!({"path": "a.txt"}))]))?;
    world.script(says("job", 3, "done"))?;
    let stages = [vec![], vec![("a.txt", "one\n")], vec![("a.txt", "two\n"), ("b.txt", "x\n")]];
    let (mut died, mut told) = (0, 0);
    for commit in 1..=7 {
        for after in [0, 10] {
            let session = world.session().await?;
            let here = world.folder(&format!("{commit}-{after}-here"))?;
            let (workspace, _) = world.hold(&session, &here);
            session.is_held(&workspace);
            world.prompt(&session, "job").await?;
            if life(&world, &session, commit, Duration::from_millis(after)).await?.is_none() {
                died += 1;
            }
            let token = world.take_over(&session).await?;
            // From here on nothing of the first worker's is committed any more.
            let before = world.events(&session).await?;
            let gone = uncaptured(&before);
            let there = world.folder(&format!("{commit}-{after}-there"))?;
            let (workspace, files) = world.hold(&session, &there);
            let tree = files.restore_newest().await?;
            let taken = captures(&world, &session).await?;
            assert_eq!(tree, taken.last().map(|capture| capture.tree.clone()), "{commit} {after}");
            let stage = &stages[taken.iter().filter(|capture| !capture.base).count()];
            let expected = stage.iter().map(|(path, text)| ((*path).into(), (*text).into()));
            assert_eq!(contents(&there)?, expected.collect::<BTreeMap<String, String>>());
            session.is_held(&workspace.restored(token, tree));
            let outcomes = world.settle(&session).await?;
            if outcomes.is_empty() {
                continue; // It had come to its end.
            }
            assert_eq!(world.answer(&session).await?, "done", "{commit} {after}");
            let events = world.events(&session).await?;
            let restored: Vec<_> = events
                .iter()
                .filter_map(|event| match &event.event {
                    SessionEvent::WorkspaceRestored(restored) => Some(restored),
                    _ => None,
                })
                .collect();
            assert_eq!(restored.len(), 1, "{commit} {after}");
            ensure!(
                gone.iter().all(|call| restored[0].lost.contains(call)),
                "{gone:?} {restored:?}"
            );
            let notices: Vec<_> = events
                .iter()
                .filter_map(|event| match &event.event {
                    SessionEvent::NoticeRecorded(notice)
                        if notice.kind == NoticeKind::FilesLost =>
                    {
                        Some(&notice.text)
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(
                notices.len(),
                usize::from(!restored[0].lost.is_empty()),
                "{commit} {after}"
            );
            if let Some(notice) = notices.first() {
                told += 1;
                ensure!(notice.contains("effects on files are gone"), "{notice}");
                let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
                ensure!(last.contains("effects on files are gone"), "{last}");
            }
        }
    }
    ensure!(died >= 8 && told >= 2, "{died} died, {told} were told");
    world.check().await
}

#[tokio::test]
async fn on_a_shared_disk_what_was_not_captured_is_the_next_workers() -> Result<()> {
    let world = world().await?;
    let (session, files) = session(&world).await?;
    world.script(calls(
        "job",
        0,
        vec![call("write", json!({"path": "a.txt", "content": "one\n"}))],
    ))?;
    world.script(Script { times: Some(1), hang: true, ..says("job", 1, "never") })?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    // The batch is settled, and the request behind it never answered: no write could carry its capture.
    dies_once(&world, &session, async {
        world.until_requests(2).await?;
        until(|| files.counts().looks >= 2).await
    })
    .await?;
    assert_eq!(told(&world, &session).await?, ["base"]);
    world.take_over(&session).await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(told(&world, &session).await?, ["base", "A a.txt"]);
    let kinds = world.kinds(&session).await?;
    ensure!(!kinds.contains(&"workspace.restored"), "{kinds:?}");
    world.check().await
}

// Finding store 18: with a disk for each worker a file over the limit vanished, and the model was not told.
#[tokio::test]
async fn files_in_no_snapshot_are_told_as_gone_on_another_disk() -> Result<()> {
    let world = world().await?;
    let session = world.session().await?;
    let (workspace, _) = world.hold(&session, &world.folder("here")?);
    session.is_held(&workspace);
    world.script(calls("job", 0, vec![shell("truncate -s 17M big.bin; echo a > a.txt")]))?;
    world.script(says("job", 1, "done"))?;
    world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let taken = captures(&world, &session).await?;
    let skipped = taken.last().map(|capture| capture.skipped.clone()).unwrap_or_default();
    assert_eq!(skipped.len(), 1);
    assert_eq!((skipped[0].path.as_str(), skipped[0].why), ("big.bin", LeftReason::TooLarge));
    let token = world.take_over(&session).await?;
    let (workspace, files) = world.hold(&session, &world.folder("there")?);
    let tree = files.restore_newest().await?;
    session.is_held(&workspace.restored(token, tree));
    for prompt in ["say 3 words", "say 2 words"] {
        world.prompt(&session, prompt).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let last = serde_json::to_string(&world.requests()?.pop().unwrap())?;
        assert_eq!(last.matches("gone: big.bin. Check").count(), 1, "told once: {last}");
    }
    world.check().await
}
