//! The changes of files that sessions make.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{ApiParts, ApiState, router};
use domain::{
    FencingToken, FileChange, FileStatus, SnapshotTree, SystemClock, WorkspaceSnapshotted,
};
use http::StatusCode;
use serde_json::{Value, json};
use snapshots::{Captured, ChangeStatus, Shadow, ShadowOptions, SnapshotLimits, Touched};

use crate::drain::{at, begin};
use crate::native::session;
use crate::reverts::{held, stages};
use crate::world::{SseReader, World, call, ok, request, send};

/// A workspace and its snapshots, as a worker keeps them.
pub(crate) struct Files {
    root: tempfile::TempDir,
    _cache: tempfile::TempDir,
    shadow: Shadow,
}

impl Files {
    pub(crate) async fn new(world: &World, session: &str) -> Result<Self> {
        let (root, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let location = at(world, session).await?.location;
        let seed = world.store.location(world.org, location).await?.seed;
        let from = seed.map(|seed| seed.location).into_iter().collect();
        let options = ShadowOptions {
            root: root.path().to_owned(),
            cache: cache.path().to_owned(),
            blobs: world.blobs.clone(),
            at: at(world, session).await?.location_ref(),
            token: FencingToken(1),
            lock: None,
            packs: Vec::new(),
            seed: world.store.pack_names(world.org, from).await?,
            git: false,
            hidden: snapshots::HiddenPaths::default(),
            limits: SnapshotLimits::default(),
            clock: Arc::new(SystemClock::new()),
        };
        Ok(Self { root, _cache: cache, shadow: Shadow::open(options).await? })
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.root.path().join(name), text)?)
    }

    /// Captures all files, as an event.
    async fn capture(&self, turn: Option<domain::TurnId>) -> Result<WorkspaceSnapshotted> {
        let captured = self.shadow.capture(&Touched::Anything).await?.context("it has changed")?;
        self.shadow.committed(&captured).await;
        Ok(event(captured, turn))
    }
}

fn event(captured: Captured, turn: Option<domain::TurnId>) -> WorkspaceSnapshotted {
    let tree = |id: snapshots::TreeId| SnapshotTree::try_from(id.to_string()).expect("a tree");
    let status = |status| match status {
        ChangeStatus::Added => FileStatus::Added,
        ChangeStatus::Modified => FileStatus::Modified,
        ChangeStatus::Deleted => FileStatus::Deleted,
    };
    let files = captured.changes.files.into_iter().map(|file| FileChange {
        path: file.path,
        status: status(file.status),
        additions: i64::try_from(file.additions).expect("few"),
        deletions: i64::try_from(file.deletions).expect("few"),
        patch: file.patch,
    });
    WorkspaceSnapshotted {
        token: captured.token,
        ordinal: captured.ordinal,
        tree: tree(captured.tree),
        parent: captured.parent.map(tree),
        pack: captured.pack,
        bytes: i64::try_from(captured.bytes).expect("few"),
        base: turn.is_none(),
        turn,
        files: files.collect(),
        more: 0,
        directories: Vec::new(),
        skipped: Vec::new(),
    }
}

/// Admits a prompt, and runs a turn that leaves these files in the workspace.
pub(crate) async fn work(
    world: &World,
    gateway: &axum::Router,
    files: &Files,
    session: &str,
    message: &str,
    writes: &[(&str, &str)],
) -> Result<()> {
    let body = Some(json!({ "id": message, "text": "go" }));
    ok(gateway, "POST", &format!("/platform/session/{session}/message"), &world.key, body).await;
    let turn = begin(world, &at(world, session).await?).await?;
    if files.shadow.tree().await.is_none() {
        turn.write(world, files.capture(None).await?).await?;
    }
    for (name, text) in writes {
        files.write(name, text)?;
    }
    turn.write(world, files.capture(Some(turn.turn.clone())).await?).await?;
    turn.finish(world, "done", None).await
}

/// Returns name, status, counted lines and `partial` of each file.
fn told(files: &Value) -> Vec<(String, String, i64, i64, bool)> {
    let one = |file: &Value| {
        (
            file["file"].as_str().expect("a name").to_owned(),
            file["status"].as_str().expect("a status").to_owned(),
            file["additions"].as_i64().expect("a number"),
            file["deletions"].as_i64().expect("a number"),
            file["partial"] == true,
        )
    };
    files.as_array().expect("a list").iter().map(one).collect()
}

// Finding heldout-3: no "Changed file +1 −0" below a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_names_the_files_that_it_changed() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let files = Files::new(&world, &session).await?;
    let mut events = crate::stock::listen(&world, &gateway, "/event").await;
    let one = [("a.txt", "one\n"), ("b.txt", "b\n")];
    work(&world, &gateway, &files, &session, "msg_one", &one).await?;
    let has_diffs = |frame: &crate::world::Sse| {
        !frame.data["properties"]["info"]["summary"]["diffs"].is_null()
            && frame.data["type"] == "message.updated"
    };
    let frames = events.until(has_diffs).await;
    let prompt = &frames.last().context("a frame")?.data["properties"]["info"];
    assert_eq!((&prompt["id"], &prompt["role"]), (&json!("msg_one"), &json!("user")));
    let patch = frames.iter().find(|frame| frame.data["properties"]["part"]["type"] == "patch");
    let patch = patch.context("a patch part")?.data["properties"]["part"].clone();
    events.until(|frame| frame.data["type"] == "session.idle").await;
    work(&world, &gateway, &files, &session, "msg_two", &[("a.txt", "one\ntwo\n")]).await?;
    let path = format!("/session/{session}/message");
    let list = ok(&gateway, "GET", &path, &world.key, None).await;
    let diffs = |at: usize| told(&list[at]["info"]["summary"]["diffs"]);
    let added = |name: &str| (name.to_owned(), "added".to_owned(), 1, 0, false);
    assert_eq!(diffs(0), [added("a.txt"), added("b.txt")]);
    assert_eq!(diffs(2), [("a.txt".to_owned(), "modified".to_owned(), 1, 0, false)]);
    assert_eq!(list[0]["info"], *prompt);
    let last = |at: usize| list[at]["parts"].as_array().and_then(|parts| parts.last()).cloned();
    assert_eq!(last(1), Some(patch.clone()));
    let directory = patch["files"][0].as_str().and_then(|file| file.strip_suffix("/a.txt"));
    assert_eq!(
        patch["files"],
        json!([
            format!("{}/a.txt", directory.context("a path")?),
            format!("{}/b.txt", directory.context("a path")?)
        ])
    );
    let second = last(3).context("a part")?;
    assert_eq!(
        (&second["type"], second["files"].as_array().map(Vec::len)),
        (&json!("patch"), Some(1))
    );
    assert!(second["id"].as_str() > list[3]["parts"][1]["id"].as_str(), "{list}");
    // A page that begins between a prompt and its answer.
    let page = ok(&gateway, "GET", &format!("{path}?limit=1"), &world.key, None).await;
    assert_eq!(page[0], list[3]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diff_is_of_one_message_or_of_all_and_exact_where_the_blobs_are_seen() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let blind = router(ApiState::start(ApiParts { blobs: None, ..world.parts() }));
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let diff = format!("{own}/diff");
    let nothing = ok(&gateway, "GET", &diff, &world.key, None).await;
    assert_eq!(nothing, json!({ "files": [], "more": 0 }));
    let files = Files::new(&world, &session).await?;
    files.write("a.txt", "one\ntwo\n")?;
    files.write("kept.txt", "kept\n")?;
    work(&world, &gateway, &files, &session, "msg_one", &[("a.txt", "one\n2\n"), ("b.txt", "b\n")])
        .await?;
    work(&world, &gateway, &files, &session, "msg_two", &[("a.txt", "one\nII\n")]).await?;

    let line = |name: &str, status: &str, plus, minus, partial| {
        (name.to_owned(), status.to_owned(), plus, minus, partial)
    };
    for router in [&gateway, &blind] {
        let first = format!("{diff}?messageID=msg_one");
        let first = ok(router, "GET", &first, &world.key, None).await;
        let expected =
            [line("a.txt", "modified", 1, 1, false), line("b.txt", "added", 1, 0, false)];
        assert_eq!(told(&first["files"]), expected);
        let patch = first["files"][0]["patch"].as_str().expect("a patch");
        assert!(patch.contains("-two\n+2\n"), "{patch}");
    }
    let whole = ok(&gateway, "GET", &diff, &world.key, None).await;
    let expected = [line("a.txt", "modified", 1, 1, false), line("b.txt", "added", 1, 0, false)];
    assert_eq!(told(&whole["files"]), expected);
    let patch = whole["files"][0]["patch"].as_str().expect("a patch");
    assert!(patch.contains("-two\n+II\n"), "{patch}");
    let steps = ok(&blind, "GET", &diff, &world.key, None).await;
    let expected = [line("a.txt", "modified", 2, 2, true), line("b.txt", "added", 1, 0, false)];
    assert_eq!(told(&steps["files"]), expected);
    assert_eq!(steps["files"][0]["patch"], Value::Null);

    // Stock clients only get the list.
    let stock = ok(&gateway, "GET", &format!("/session/{session}/diff"), &world.key, None).await;
    assert_eq!(stock, whole["files"]);
    for path in [own.as_str(), &format!("/session/{session}")] {
        let shown = ok(&gateway, "GET", path, &world.key, None).await;
        assert_eq!(shown["summary"], json!({ "additions": 3, "deletions": 2, "files": 2 }));
    }
    let (status, _) =
        call(&gateway, "GET", &format!("{diff}?messageID=ses_a"), &world.key, None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);

    // A reverted change is not the session's, even before the Revert is final.
    let body = json!({ "messageID": "msg_two" });
    let (revert, commit) = (format!("{own}/revert"), format!("{own}/revert/commit"));
    held(&world, &gateway, &revert, body, &session, stages).await?;
    let first = |answer: Value| told(&answer["files"]);
    let expected = [line("a.txt", "modified", 1, 1, false), line("b.txt", "added", 1, 0, false)];
    let staged = first(ok(&gateway, "GET", &diff, &world.key, None).await);
    ok(&gateway, "POST", &commit, &world.key, None).await;
    let gone = ok(&blind, "GET", &diff, &world.key, None).await;
    let patch = gone["files"][0]["patch"].as_str().expect("a patch");
    assert!(patch.contains("-two\n+2\n"), "{patch}");
    assert_eq!((staged, first(gone)), (expected.to_vec(), expected.to_vec()));
    Ok(())
}

/// Asserts that the session looks the same in every list as alone, in the same dialect.
async fn is_listed_as_it_is_alone(
    world: &World,
    gateway: &axum::Router,
    lists: &[String],
    session: &str,
) -> Value {
    let mut summaries = Vec::new();
    for list in lists {
        let stock = list.starts_with("/session");
        let alone = if stock { "/session/" } else { "/platform/session/" };
        let alone = ok(gateway, "GET", &format!("{alone}{session}"), &world.key, None).await;
        let listed = ok(gateway, "GET", list, &world.key, None).await;
        let all = listed.as_array().expect("a list");
        let row = all.iter().find(|row| row["id"] == session);
        assert_eq!(row, Some(&alone), "{list}");
        assert!(all.iter().all(|row| row["id"] == session || row["summary"].is_null()), "{list}");
        summaries.push(alone["summary"].clone());
    }
    let first = summaries[0].clone();
    assert!(summaries.iter().all(|summary| *summary == first), "{summaries:?}");
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_say_how_much_each_session_changed_as_single_ones_do() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, root) = session(&world, &gateway).await;
    let sessions = format!("/project/{project}/session");
    let body = json!({ "id": "ses_child", "parentID": root, "directory": world.path() });
    ok(&gateway, "POST", &sessions, &world.key, Some(body)).await;
    let lists = [
        "/platform/session".to_owned(),
        "/session".to_owned(),
        format!("/platform/session/{root}/children"),
        format!("/session/{root}/children"),
        sessions,
    ];
    let listed = async || is_listed_as_it_is_alone(&world, &gateway, &lists, "ses_child").await;
    assert_eq!(listed().await, Value::Null);
    let files = Files::new(&world, "ses_child").await?;
    files.write("a.txt", "one\ntwo\n")?;
    for (message, writes) in [
        ("msg_one", vec![("a.txt", "one\n2\n"), ("b.txt", "b\n")]),
        ("msg_two", vec![("a.txt", "one\nII\n")]),
    ] {
        work(&world, &gateway, &files, "ses_child", message, &writes).await?;
    }
    assert_eq!(listed().await, json!({ "additions": 3, "deletions": 2, "files": 2 }));
    let revert = "/session/ses_child/revert";
    let body = json!({ "messageID": "msg_two" });
    let (status, staged) = held(&world, &gateway, revert, body, "ses_child", stages).await?;
    let left = json!({ "additions": 2, "deletions": 1, "files": 2 });
    assert_eq!((status, &staged["summary"]), (StatusCode::OK, &left));
    assert_eq!(listed().await, left);
    let commit = "/platform/session/ses_child/revert/commit";
    assert_eq!(ok(&gateway, "POST", commit, &world.key, None).await["summary"], left);
    assert_eq!(listed().await, left);
    // Finding ops-3 S3: each list added up all steps of all its sessions. A log that is the same is not added up again.
    world.database.tamper("DELETE FROM workspace_change".to_owned()).await?;
    assert_eq!(listed().await, left);
    let title = Some(json!({ "title": "Another" }));
    ok(&gateway, "PATCH", "/session/ses_child", &world.key, title).await;
    assert_eq!(listed().await, Value::Null);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_listen_are_told_what_a_session_has_changed() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let files = Files::new(&world, &session).await?;
    files.write("a.txt", "one\n")?;
    let mut events =
        SseReader::new(send(&gateway, request("GET", "/event", &world.key, None)).await);
    work(&world, &gateway, &files, &session, "msg_one", &[("a.txt", "two\n")]).await?;
    let frames = events.until(|sse| sse.data["type"] == "session.diff").await;
    let diff = &frames.last().expect("it").data["properties"]["diff"];
    assert_eq!(told(diff), [("a.txt".to_owned(), "modified".to_owned(), 1, 1, false)]);
    let frames = events.until(|sse| sse.data["type"] == "session.updated").await;
    let info = &frames.last().expect("it").data["properties"]["info"];
    assert_eq!(info["summary"], json!({ "additions": 1, "deletions": 1, "files": 1 }));
    Ok(())
}
