//! Reverts: the conversation and the session's own files go back, and come back until something makes it final.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::Delivery::Steer;
use domain::DrainOutcome::Completed;
use domain::{Control, ErrorCode, LeftReason, MessageId, SessionEvent};
use history::History;
use serde_json::json;

use crate::files::contents;
use crate::recovery::life;
use crate::tools::{call, calls, says, shell};
use crate::world::{Session, World};

/// A session in a captured directory, after two prompts that changed files; the second one's message.
async fn worked(world: &World) -> Result<(Session, MessageId)> {
    let session = world.session().await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    session.file("mine.txt", "mine\n")?;
    let write = call("write", json!({"path": "a.txt", "content": "one\n"}));
    world.script(calls("first", 0, vec![write]))?;
    world.script(says("first", 1, "made it"))?;
    world.script(calls(
        "second",
        0,
        vec![shell("echo two > a.txt; mkdir -p d; echo b > d/b.txt")],
    ))?;
    world.script(calls("second", 1, vec![shell("rm mine.txt")]))?;
    world.script(says("second", 2, "changed it"))?;
    world.prompt(&session, "first").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let message = world.prompt(&session, "second").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    Ok((session, message))
}

fn files(of: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    of.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn files_go_back_and_come_back_and_nobody_elses_are_touched() -> Result<()> {
    let world = World::new().await?;
    let (session, message) = worked(&world).await?;
    // Somebody has written a file of their own meanwhile.
    session.file("theirs.txt", "theirs\n")?;
    let now = contents(&session.root)?;
    assert_eq!(now, files(&[("a.txt", "two\n"), ("d/b.txt", "b\n"), ("theirs.txt", "theirs\n")]));
    world
        .control(&session, Steer, Control::Revert { message: message.clone(), files: true })
        .await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let before = files(&[("a.txt", "one\n"), ("mine.txt", "mine\n"), ("theirs.txt", "theirs\n")]);
    let reverted = contents(&session.root)?;
    assert_eq!(reverted, before);
    let staged = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::RevertStaged(staged) => Some(staged),
        _ => None,
    });
    let staged = staged.context("it is staged")?;
    let paths: Vec<_> = staged.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a.txt", "d/b.txt", "mine.txt"]);
    world.control(&session, Steer, Control::Unrevert).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(contents(&session.root)?, now);
    // Once more, and a prompt makes it final: the model is not told of what is gone.
    world.control(&session, Steer, Control::Revert { message, files: true }).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(contents(&session.root)?, before);
    let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
    ensure!(last.contains("made it") && !last.contains("second"), "{last}");
    ensure!(!last.contains("changed it"), "{last}");
    world.check().await
}

#[tokio::test]
async fn killed_at_any_commit_a_revert_is_done_once_the_next_worker_comes() -> Result<()> {
    let world = World::new().await?;
    let mut died = 0;
    for commit in 1..=3 {
        for after in [0, 5] {
            let (session, message) = worked(&world).await?;
            let control = Control::Revert { message, files: true };
            world.control(&session, Steer, control).await?;
            if life(&world, &session, commit, Duration::from_millis(after)).await?.is_none() {
                died += 1;
            }
            world.take_over(&session).await?;
            let (workspace, _) = world.hold(&session, &session.root);
            session.is_held(&workspace);
            world.settle(&session).await?;
            let found = contents(&session.root)?;
            assert_eq!(found, files(&[("a.txt", "one\n"), ("mine.txt", "mine\n")]), "{commit}");
            let kinds = world.kinds(&session).await?;
            let staged = kinds.iter().filter(|kind| **kind == "revert.staged").count();
            assert_eq!(staged, 1, "{commit} {after}: {kinds:?}");
            world.control(&session, Steer, Control::Unrevert).await?;
            assert_eq!(world.settle(&session).await?, [Completed]);
            let back = contents(&session.root)?;
            assert_eq!(back, files(&[("a.txt", "two\n"), ("d/b.txt", "b\n")]), "{commit} {after}");
        }
    }
    ensure!(died >= 4, "{died} died");
    world.check().await
}

#[tokio::test]
async fn what_cannot_be_put_back_whole_leaves_the_files_as_they_were() -> Result<()> {
    let world = World::new().await?;
    let (session, message) = worked(&world).await?;
    let now = contents(&session.root)?;
    let base = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::WorkspaceSnapshotted(captured) => captured.pack,
        _ => None,
    });
    // With what was there at first, among it a file that is to come back.
    let packs = format!("blobs/o/{}/snapshot", session.at.org);
    std::fs::remove_file(world.folder(&packs)?.join(base.context("a pack")?))?;
    world.control(&session, Steer, Control::Revert { message, files: true }).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let ended = world.events(&session).await?.into_iter().find_map(|event| match event.event {
        SessionEvent::RevertCleared(cleared) => cleared.error,
        _ => None,
    });
    assert_eq!(ended.context("it says why")?.code, ErrorCode::WorkspaceSnapshotFailed);
    assert_eq!(contents(&session.root)?, now);
    world.check().await
}

#[tokio::test]
async fn behind_a_compaction_the_conversation_is_as_it_was_before_it() -> Result<()> {
    let world = World::new().await?;
    let (session, message) = worked(&world).await?;
    world.compact(&session, Steer).await?;
    world.settle(&session).await?;
    let told = serde_json::to_string(&world.told(&session).await?)?;
    ensure!(told.contains("conversation-checkpoint"), "{told}");
    world.control(&session, Steer, Control::Revert { message, files: true }).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
    ensure!(last.contains("made it") && !last.contains("conversation-checkpoint"), "{last}");
    assert_eq!(session.content("a.txt"), "one\n");
    world.check().await
}

// Finding core-3 M1: a worker that keeps a session's fold gives up what a Compaction has hidden.
#[tokio::test]
async fn a_worker_that_gave_texts_up_reads_them_again_for_a_revert() -> Result<()> {
    let world = World::new().await?;
    let (session, message) = worked(&world).await?;
    world.compact(&session, Steer).await?;
    let (_, known) = world.drain_from(&session, History::new()).await?;
    let known = known.context("a fold")?;
    ensure!(known.view().from() > 0 && !known.lacks_texts(), "it has what a request shows");
    world.control(&session, Steer, Control::Revert { message, files: false }).await?;
    let (_, known) = world.drain_from(&session, known).await?;
    let history = known.context("a fold")?;
    world.prompt(&session, "say 3 words").await?;
    world.drain_from(&session, history).await?;
    let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
    ensure!(last.contains("made it") && !last.contains("conversation-checkpoint"), "{last}");
    world.check().await
}

#[tokio::test]
async fn the_conversation_alone_goes_back_when_files_are_to_stay() -> Result<()> {
    let world = World::new().await?;
    let (session, message) = worked(&world).await?;
    let now = contents(&session.root)?;
    world.control(&session, Steer, Control::Revert { message, files: false }).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(contents(&session.root)?, now);
    world.control(&session, Steer, Control::Unrevert).await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let last = serde_json::to_string(&world.requests()?.pop().context("a request")?)?;
    ensure!(last.contains("changed it"), "{last}");
    world.check().await
}

// Findings scenarios F5 and F15, store 18: other names of a file and empty directories stayed, files over the limit too,
// and nothing said so.
#[tokio::test]
async fn a_revert_undoes_links_and_directories_and_names_the_rest() -> Result<()> {
    let world = World::new().await?;
    let session = world.session().await?;
    let (workspace, _) = world.hold(&session, &session.root);
    session.is_held(&workspace);
    session.file("h1", "h\n")?;
    std::fs::hard_link(session.root.join("h1"), session.root.join("h2"))?;
    std::fs::create_dir_all(session.root.join("old/inner"))?;
    let command = "echo more >> h1; truncate -s 17M big; rmdir -p old/inner; mkdir -p new/inner";
    world.script(calls("job", 0, vec![shell(command)]))?;
    world.script(says("job", 1, "done"))?;
    let message = world.prompt(&session, "job").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    let is_there = |path: &str| session.root.join(path).is_dir();
    for _ in 0..2 {
        let revert = Control::Revert { message: message.clone(), files: true };
        world.control(&session, Steer, revert).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let events = world.events(&session).await?;
        let staged = events.into_iter().rev().find_map(|event| match event.event {
            SessionEvent::RevertStaged(staged) => Some(staged),
            _ => None,
        });
        let left = staged.context("it is staged")?.left;
        let left: Vec<_> = left.iter().map(|left| (left.path.as_str(), left.why)).collect();
        assert_eq!(left, [("big", LeftReason::TooLarge)]);
        assert_eq!((session.content("h1"), session.content("h2")), ("h\n".into(), "h\n".into()));
        assert!(is_there("old/inner") && !is_there("new"));
        world.control(&session, Steer, Control::Unrevert).await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        assert_eq!(
            (session.content("h1"), session.content("h2")),
            ("h\nmore\n".into(), "h\nmore\n".into())
        );
        assert!(is_there("new/inner") && !is_there("old"));
    }
    world.check().await
}
