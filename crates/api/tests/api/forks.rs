//! Sessions that begin with a copy of another's conversation.

use anyhow::Result;
use axum::Router;
use domain::{
    DrainOutcome, ErrorCode, FencingToken, FileChange, FileStatus, LocationId, SessionError,
    SnapshotTree, WorkspaceSnapshotted,
};
use http::StatusCode;
use serde_json::{Value, json};
use store::DrainEnd;

use crate::drain::{at, begin, deliver};
use crate::moves::moves;
use crate::native::session;
use crate::world::{Sse, SseReader, World, call, ok, request, send};

/// Returns the texts of a list of messages.
fn texts(messages: &Value) -> Vec<String> {
    let parts = messages.as_array().expect("a list").iter().flat_map(|message| {
        message["parts"].as_array().expect("parts").iter().filter_map(|part| part["text"].as_str())
    });
    parts.map(str::to_owned).collect()
}

/// Makes a session of two exchanges, of which the first has a tool call.
async fn two_exchanges(world: &World, gateway: &Router) -> Result<String> {
    let (_, session) = session(world, gateway).await;
    let post = format!("/platform/session/{session}/message");
    for (id, text) in [("msg_one", "one?"), ("msg_two", "two?")] {
        let body = Some(json!({ "id": id, "text": text }));
        ok(gateway, "POST", &post, &world.key, body).await;
        let turn = begin(world, &at(world, &session).await?).await?;
        let called = if id == "msg_one" { Some(turn.tool(world).await?) } else { None };
        turn.finish(world, &text.replace('?', "!"), called).await?;
    }
    Ok(session)
}

// Finding heldout-3: an old error popped up again as a toast, as if it were the fork's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_does_not_announce_what_its_parent_met() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let body = Some(json!({ "id": "msg_bad", "text": "bad?" }));
    let post = |session: &str| format!("/platform/session/{session}/message");
    ok(&gateway, "POST", &post(&session), &world.key, body).await;
    let turn = begin(&world, &at(&world, &session).await?).await?;
    let error = SessionError {
        code: ErrorCode::ProviderQuota.into(),
        message: "no credit is left".to_owned(),
    };
    turn.stop(&world, DrainOutcome::Failed, Some(error), DrainEnd::Close).await?;
    let mut events = crate::stock::listen(&world, &gateway, "/event").await;
    events.until(|sse| sse.data["type"] == "server.connected").await;
    let path = format!("/session/{session}/fork");
    let fork = ok(&gateway, "POST", &path, &world.key, Some(json!({}))).await;
    let fork = fork["id"].as_str().expect("an id").to_owned();
    let body = Some(json!({ "id": "msg_new", "text": "new?" }));
    ok(&gateway, "POST", &post(&fork), &world.key, body).await;
    begin(&world, &at(&world, &fork).await?).await?.finish(&world, "new!", None).await?;
    let is_its = |sse: &Sse| sse.data["properties"]["sessionID"] == fork.as_str();
    let frames = events.until(|sse| is_its(sse) && sse.data["type"] == "session.idle").await;
    let kinds: Vec<&str> = frames
        .iter()
        .filter(|sse| is_its(sse))
        .filter_map(|sse| sse.data["type"].as_str())
        .collect();
    let count = |kind: &str| kinds.iter().filter(|its| **its == kind).count();
    assert_eq!((count("session.error"), count("session.idle")), (0, 1), "{kinds:?}");
    let told = frames.iter().filter(|sse| sse.data["type"] == "tui.toast.show").count();
    assert_eq!(told, 0, "{kinds:?}");
    // The conversation is there, the failed answer with its error too.
    assert!(count("message.updated") >= 8, "{kinds:?}");
    let failed = frames.iter().any(|sse| {
        is_its(sse)
            && sse.data["properties"]["info"]["error"]["data"]["message"] == "no credit is left"
    });
    assert!(failed, "{frames:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_has_the_conversation_up_to_the_cut_and_nothing_of_what_it_cost() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let own = format!("/platform/session/{session}");
    let title = Some(json!({ "title": "Numbers" }));
    ok(&gateway, "PATCH", &own, &world.key, title).await;
    let entry = format!("{own}/context/ticket");
    ok(&gateway, "PUT", &entry, &world.key, Some(json!({ "n": 1 }))).await;
    let path = format!("{own}/fork");
    let body = || Some(json!({ "id": "ses_fork", "messageID": "msg_two" }));
    let fork = ok(&gateway, "POST", &path, &world.key, body()).await;
    assert_eq!(
        (&fork["id"], &fork["title"], &fork["forkOf"], &fork["parentID"]),
        (&json!("ses_fork"), &json!("Numbers (fork #1)"), &json!(session), &Value::Null)
    );
    assert_eq!((&fork["tokens"]["total"], &fork["busy"]), (&json!(0), &json!(false)));
    let shown = ok(&gateway, "GET", &own, &world.key, None).await;
    assert_eq!(fork["location"], shown["location"]);
    assert!(fork["time"]["updated"].as_i64() >= fork["time"]["created"].as_i64(), "{fork}");

    let list = |session: &str| format!("/platform/session/{session}/message");
    let theirs = ok(&gateway, "GET", &list(&session), &world.key, None).await;
    let ours = ok(&gateway, "GET", &list("ses_fork"), &world.key, None).await;
    assert_eq!(texts(&theirs), ["one?", "one!", "two?", "two!"]);
    assert_eq!(texts(&ours), ["one?", "one!"]);
    assert_ne!(ours[0]["info"]["id"], theirs[0]["info"]["id"]);
    assert_eq!(ours[1]["info"]["parentID"], ours[0]["info"]["id"]);
    let state = |messages: &Value| messages[1]["parts"][1]["state"].clone();
    assert_eq!(state(&ours)["output"], "hello", "{ours}");
    assert_eq!(state(&ours)["output"], state(&theirs)["output"]);

    // An exact retry returns the same session; a different request with its id is refused.
    assert_eq!(ok(&gateway, "POST", &path, &world.key, body()).await, fork);
    for other in [
        json!({ "id": "ses_fork", "messageID": "msg_one" }),
        json!({ "id": "ses_fork" }),
        json!({ "id": session, "messageID": "msg_two" }),
    ] {
        let (status, answer) = call(&gateway, "POST", &path, &world.key, Some(other)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    }
    for missing in ["msg_none", ours[0]["info"]["id"].as_str().expect("an id")] {
        let body = Some(json!({ "messageID": missing }));
        let (status, answer) = call(&gateway, "POST", &path, &world.key, body).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{answer}");
    }

    // The fork no longer needs its parent, and can be forked itself.
    assert_eq!(ok(&gateway, "DELETE", &own, &world.key, None).await, json!(true));
    let stock = ok(&gateway, "POST", "/session/ses_fork/fork", &world.key, None).await;
    assert_eq!((&stock["title"], &stock["forkOf"]), (&json!("Numbers (fork #2)"), &Value::Null));
    let again = stock["id"].as_str().expect("an id");
    assert_eq!(texts(&ok(&gateway, "GET", &list(again), &world.key, None).await), ["one?", "one!"]);
    for session in ["ses_fork", again] {
        let check = format!("/platform/session/{session}/rebuild?check=true");
        assert_eq!(ok(&gateway, "POST", &check, &world.key, None).await["exact"], true);
    }
    assert_eq!(
        ok(&gateway, "GET", "/platform/check?settled=true", &world.key, None).await,
        json!([])
    );
    let prompt = Some(json!({ "text": "three?" }));
    ok(&gateway, "POST", &list("ses_fork"), &world.key, prompt).await;
    begin(&world, &at(&world, "ses_fork").await?).await?.finish(&world, "three!", None).await?;
    let ours = ok(&gateway, "GET", &list("ses_fork"), &world.key, None).await;
    assert_eq!(texts(&ours), ["one?", "one!", "three?", "three!"]);
    assert_eq!(
        ok(&gateway, "GET", "/platform/check?settled=true", &world.key, None).await,
        json!([])
    );
    Ok(())
}

fn tree(digit: &str) -> SnapshotTree {
    SnapshotTree::try_from(digit.repeat(64)).expect("a tree")
}

/// Admits the prompt `id`, whose turn changes a file from snapshot `parent` to snapshot `digit`.
async fn changes(
    world: &World,
    gateway: &Router,
    session: &str,
    id: &str,
    (parent, digit): (Option<&str>, &str),
) -> Result<()> {
    let body = Some(json!({ "id": id, "text": "go" }));
    ok(gateway, "POST", &format!("/platform/session/{session}/message"), &world.key, body).await;
    let turn = begin(world, &at(world, session).await?).await?;
    let taken = WorkspaceSnapshotted {
        token: FencingToken(1),
        ordinal: i64::from(u8::from_str_radix(digit, 16)?),
        tree: tree(digit),
        parent: parent.map(tree),
        pack: None,
        bytes: 0,
        turn: Some(turn.turn.clone()),
        base: false,
        files: vec![FileChange {
            path: "a.txt".into(),
            status: FileStatus::Modified,
            additions: 1,
            deletions: 1,
            patch: None,
        }],
        more: 0,
        directories: Vec::new(),
        skipped: Vec::new(),
    };
    turn.write(world, taken).await?;
    turn.finish(world, "gone", None).await
}

/// Returns the files that a session's Location begins with.
async fn seed(world: &World, session: &str) -> Result<Option<store::Seed>> {
    let location = at(world, session).await?.location;
    Ok(world.store.location(world.org, location).await?.seed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_with_files_of_its_own_begins_with_those_at_the_cut() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let path = format!("/platform/session/{session}/fork");
    let copy = || Some(json!({ "id": "ses_copy", "files": "copy" }));
    let before = |fork: &str, message: &str| {
        Some(json!({ "id": fork, "files": "copy", "messageID": message }))
    };
    let refused = async |body| {
        let (status, refused) = call(&gateway, "POST", &path, &world.key, body).await;
        assert_eq!(
            (status, &refused["error"]["reason"]),
            (StatusCode::CONFLICT, &json!("workspace.not_captured")),
            "{refused}"
        );
    };
    refused(copy()).await;
    changes(&world, &gateway, &session, "msg_more_1", (None, "a")).await?;
    changes(&world, &gateway, &session, "msg_more_2", (Some("a"), "b")).await?;
    let here = at(&world, &session).await?.location;
    let fork = ok(&gateway, "POST", &path, &world.key, copy()).await;
    assert_eq!(fork["directory"], "/workspace/ses_copy");
    assert_eq!(fork, ok(&gateway, "POST", &path, &world.key, copy()).await);
    let shared = Some(json!({ "id": "ses_copy" }));
    assert_eq!(call(&gateway, "POST", &path, &world.key, shared).await.0, StatusCode::CONFLICT);
    let of = |location: &LocationId, digit: &str| {
        Some(store::Seed { location: location.clone(), tree: tree(digit) })
    };
    assert_eq!(seed(&world, "ses_copy").await?, of(&here, "b"));
    ok(&gateway, "POST", &path, &world.key, before("ses_then", "msg_more_2")).await;
    assert_eq!(seed(&world, "ses_then").await?, of(&here, "a"));
    // Nobody knows the files before the first snapshot.
    refused(before("ses_first", "msg_more_1")).await;
    // The session continues elsewhere, and its changes here stay here.
    let elsewhere = tempfile::tempdir()?;
    let body = Some(json!({ "directory": elsewhere.path().canonicalize()? }));
    ok(&gateway, "POST", &format!("/platform/session/{session}/move"), &world.key, body).await;
    deliver(&world, &at(&world, &session).await?, moves(here.clone())).await?;
    changes(&world, &gateway, &session, "msg_there", (Some("c"), "d")).await?;
    let there = at(&world, &session).await?.location;
    for (fork, message, expected) in [
        ("ses_left_then", "msg_more_2", of(&here, "a")),
        ("ses_there", "msg_there", of(&there, "c")),
    ] {
        ok(&gateway, "POST", &path, &world.key, before(fork, message)).await;
        assert_eq!(seed(&world, fork).await?, expected, "{message}");
    }
    refused(before("ses_first", "msg_more_1")).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_is_told_as_a_new_session_that_is_idle() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let mut events =
        SseReader::new(send(&gateway, request("GET", "/event", &world.key, None)).await);
    events.until(|sse| sse.data["type"] == "server.connected").await;
    let body = Some(json!({ "id": "ses_fork", "messageID": "msg_two" }));
    ok(&gateway, "POST", &format!("/session/{session}/fork"), &world.key, body).await;
    let last = |sse: &crate::world::Sse| {
        let properties = &sse.data["properties"];
        sse.data["type"] == "message.updated"
            && properties["sessionID"] == "ses_fork"
            && properties["info"]["role"] == "assistant"
            && properties["info"]["time"]["completed"].is_number()
    };
    let told = events.until(last).await;
    let ours = told.iter().filter(|sse| sse.data["properties"]["sessionID"] == "ses_fork");
    let kinds: Vec<&str> = ours.filter_map(|sse| sse.data["type"].as_str()).collect();
    assert_eq!(kinds.first(), Some(&"session.created"));
    assert!(!kinds.contains(&"session.status"), "nothing runs in a copy: {kinds:?}");
    Ok(())
}
