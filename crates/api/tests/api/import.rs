//! Sessions that go to another service, and come whole or not at all.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use domain::{
    CallId, FencingToken, IdMint, PartId, Stamp, SystemClock, ToolCalled, ToolClass, ToolIntent,
    ToolOutcomeKind, ToolSettled, ToolState,
};
use futures::StreamExt;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use snapshots::{PackRef, Shadow, ShadowOptions, SnapshotLimits, Unsaved};

use crate::drain::{at, begin};
use crate::files::{Files, work};
use crate::native::session;
use crate::reverts::{held, stages};
use crate::world::{World, call, json as body_of, ok, request, send};

const IMPORT: &str = "/platform/session/import";

/// Exports a session, and returns the bytes.
pub(crate) async fn exported(gateway: &Router, key: &str, session: &str) -> Result<Bytes> {
    let path = format!("/platform/session/{session}/export");
    let response = send(gateway, request("GET", &path, key, None)).await;
    ensure!(response.status() == StatusCode::OK, "{}", response.status());
    ensure!(response.headers()["content-type"] == "application/x-ndjson");
    Ok(axum::body::to_bytes(response.into_body(), 64 << 20).await?)
}

/// Sends bytes to be imported.
pub(crate) async fn imports(
    gateway: &Router,
    key: &str,
    query: &str,
    bytes: impl Into<Body>,
) -> (StatusCode, Value) {
    let request = Request::builder()
        .method("POST")
        .uri(format!("{IMPORT}{query}"))
        .header("authorization", format!("Bearer {key}"))
        .body(bytes.into())
        .expect("a request");
    let response = send(gateway, request).await;
    (response.status(), body_of(response).await)
}

/// Asserts that an import is refused with these words, and that nothing of it can be seen.
async fn refused(
    world: &World,
    gateway: &Router,
    bytes: impl Into<Body>,
    expected: StatusCode,
    words: &str,
) {
    let (status, answer) = imports(gateway, &world.key, "", bytes).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(status, expected, "`{words}`: {answer}");
    assert!(message.contains(words), "`{words}` is not in: {message}");
    let sessions = ok(gateway, "GET", "/platform/session", &world.key, None).await;
    assert_eq!(sessions, json!([]), "{message}");
}

fn lines_of(export: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(export).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Writes lines as an export that somebody made on purpose: its digest is right.
fn forged(lines: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let without_end = lines.iter().filter(|line| line["type"] != "end");
    let mut count = 0;
    for line in without_end {
        bytes.extend_from_slice(format!("{line}\n").as_bytes());
        count += 1;
    }
    let sha256 = hex::encode(Sha256::digest(&bytes));
    let end = json!({ "type": "end", "lines": count, "sha256": sha256 });
    bytes.extend_from_slice(format!("{end}\n").as_bytes());
    bytes
}

/// Makes a session with two prompts that changed files, a tool with a complete output, and a title of its own.
pub(crate) async fn travelled(world: &World, gateway: &Router) -> Result<String> {
    let (_, session) = session(world, gateway).await;
    let files = Files::new(world, &session).await?;
    files.write("a.txt", "one\ntwo\n")?;
    files.write("kept.txt", "kept\n")?;
    let writes = [("a.txt", "one\n2\n"), ("b.txt", "b\n")];
    work(world, gateway, &files, &session, "msg_one", &writes).await?;
    work(world, gateway, &files, &session, "msg_two", &[("a.txt", "one\nII\n")]).await?;
    let post = format!("/platform/session/{session}/message");
    let prompt = Some(json!({ "id": "msg_three", "text": "long?" }));
    ok(gateway, "POST", &post, &world.key, prompt).await;
    let turn = begin(world, &at(world, &session).await?).await?;
    let call = long_output(world, &turn).await?;
    turn.finish(world, "long!", Some(call)).await?;
    let own = format!("/platform/session/{session}");
    ok(gateway, "PATCH", &own, &world.key, Some(json!({ "title": "Far" }))).await;
    let entry = format!("{own}/context/ticket");
    ok(gateway, "PUT", &entry, &world.key, Some(json!({ "n": 1 }))).await;
    let waits = Some(json!({ "id": "msg_waits", "text": "later", "resume": false }));
    ok(gateway, "POST", &post, &world.key, waits).await;
    Ok(session)
}

pub(crate) const OUTPUT: &str = "tool_long";

/// Settles a call whose complete output is a blob.
async fn long_output(world: &World, turn: &crate::drain::Turn) -> Result<CallId> {
    let key = blobs::BlobKey::new(&world.org.to_string(), "tool-output", OUTPUT)?;
    world.blobs.put(&key, Bytes::from_static(b"all of it")).await?;
    let now = domain::Clock::now_ms(&SystemClock::new());
    let mut mint = IdMint::after(Stamp::default(), now);
    let call = CallId::mint(&mut mint);
    let intent = ToolIntent {
        call: call.clone(),
        part: PartId::mint(&mut mint),
        provider_call: "call_0".into(),
        tool: "grep".into(),
        arguments: "{}".into(),
        metadata: None,
    };
    let (class, state) = (ToolClass::Pure, ToolState::Started);
    let (of, message) = (turn.turn.clone(), turn.message.clone());
    turn.write(world, ToolCalled { turn: of, message, intent, class, state }).await?;
    let settled = ToolSettled {
        turn: turn.turn.clone(),
        call: call.clone(),
        outcome: ToolOutcomeKind::Completed,
        output: format!("all … the complete output is in /tool-output/{OUTPUT}"),
        title: "x".into(),
        structured: None,
        managed_path: Some(format!("/tool-output/{OUTPUT}")),
        truncated: true,
        started: now,
        ended: now,
    };
    turn.write(world, settled).await?;
    Ok(call)
}

/// Returns messages without the directory of their answers.
fn pathless(mut messages: Value) -> Value {
    for message in messages.as_array_mut().into_iter().flatten() {
        message["info"].as_object_mut().map(|info| info.remove("path"));
    }
    messages
}

/// Returns a log without the facts of its place.
fn placeless(mut log: Value) -> Value {
    for event in log.as_array_mut().into_iter().flatten() {
        let Some(data) = event["data"].as_object_mut() else { continue };
        for name in ["project", "location", "directory", "token", "ordinal", "pack", "bytes", "by"]
        {
            data.remove(name);
        }
    }
    log
}

async fn get(world: &World, gateway: &Router, path: &str) -> Value {
    ok(gateway, "GET", path, &world.key, None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_comes_with_log_files_and_requests() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let session = travelled(&here, &from).await?;
    let export = exported(&from, &here.key, &session).await?;
    let (status, answer) = imports(&to, &there.key, "", export.clone()).await;
    ensure!(status == StatusCode::OK, "{answer}");
    let own = format!("/platform/session/{session}");
    assert_eq!(
        (&answer["session"]["id"], &answer["files"], &answer["leftOut"]),
        (&json!(session), &json!("restored"), &json!([]))
    );
    assert_eq!(answer["session"]["directory"], format!("/workspace/{session}"));
    assert_eq!(
        (&answer["session"]["busy"], &answer["session"]["title"]),
        (&json!(false), &json!("Far"))
    );

    // All that can be asked is answered as before.
    let log = get(&here, &from, &format!("{own}/log")).await;
    assert_eq!(answer["events"], json!(log.as_array().map(Vec::len)));
    assert_eq!(placeless(get(&there, &to, &format!("{own}/log")).await), placeless(log.clone()));
    for below in ["message", "diff", "diff?messageID=msg_one", "inbox", "context", "usage"] {
        let path = format!("{own}/{below}");
        let (before, after) = (get(&here, &from, &path).await, get(&there, &to, &path).await);
        assert_eq!(pathless(after), pathless(before), "{below}");
    }
    let attempts = log.as_array().context("a log")?.iter();
    let attempts: Vec<&Value> =
        attempts.filter(|event| event["type"] == "attempt.started").collect();
    ensure!(attempts.len() == 3);
    for attempt in attempts {
        let id = attempt["data"]["attempt"].as_str().context("an id")?;
        let path = format!("/platform/explain/{id}");
        let explained = get(&there, &to, &path).await;
        assert_eq!(explained["match"], true, "{explained}");
        assert_eq!(explained, get(&here, &from, &path).await);
    }
    let key = blobs::BlobKey::new(&there.org.to_string(), "tool-output", OUTPUT)?;
    assert_eq!(there.blobs.get(&key).await?, "all of it");
    assert_eq!(
        restored(&there, &session).await?,
        [("a.txt", "one\nII\n"), ("b.txt", "b\n"), ("kept.txt", "kept\n")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
    );

    // It is a session like any other.
    let check = ok(&to, "POST", &format!("{own}/rebuild?check=true"), &there.key, None).await;
    assert_eq!(check["exact"], true, "{check}");
    let sound = "/platform/check?settled=true&blobs=true";
    assert_eq!(get(&there, &to, sound).await, json!([]));
    let body = json!({ "messageID": "msg_two" });
    let revert = format!("{own}/revert");
    ok(&to, "DELETE", &format!("{own}/inbox/msg_waits"), &there.key, None).await;
    held(&there, &to, &revert, body, &session, stages).await?;
    let prompt = Some(json!({ "id": "msg_next", "text": "next?" }));
    ok(&to, "POST", &format!("{own}/message"), &there.key, prompt).await;
    begin(&there, &at(&there, &session).await?).await?.finish(&there, "next!", None).await?;
    let messages = get(&there, &to, &format!("{own}/message")).await;
    let ids: Vec<_> = messages
        .as_array()
        .context("a list")?
        .iter()
        .filter_map(|message| message["info"]["id"].as_str())
        .collect();
    ensure!(ids.len() == 4 && ids[0] == "msg_one" && ids[2] == "msg_next", "{ids:?}");
    assert_eq!(get(&there, &to, sound).await, json!([]));

    // The copy is exported and imported in its turn.
    let again = exported(&to, &there.key, &session).await?;
    let third = World::new().await?;
    let (status, answer) = imports(&third.gateway(), &third.key, "", again).await;
    ensure!(status == StatusCode::OK, "{answer}");
    Ok(())
}

// Finding core-3 H4: from the 16th fork on the stream of an export broke at its first byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_of_many_forks_is_exported_whole() -> Result<()> {
    const FORKS: usize = 40;
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let (_, mut last) = session(&here, &from).await;
    let mut expected: Vec<(String, String)> = Vec::new();
    for n in 0..FORKS {
        let files = Files::new(&here, &last).await?;
        for (name, text) in &expected {
            files.write(name, text)?;
        }
        let (name, text) = (format!("{n:02}"), format!("file {n}\n"));
        let message = format!("msg_{n}");
        work(&here, &from, &files, &last, &message, &[(&name, &text)]).await?;
        expected.push((name, text));
        let fork = format!("ses_fork{n}");
        let body = Some(json!({ "id": fork, "files": "copy" }));
        ok(&from, "POST", &format!("/platform/session/{last}/fork"), &here.key, body).await;
        last = fork;
    }
    let export = exported(&from, &here.key, &last).await?;
    let (status, answer) = imports(&to, &there.key, "", export).await;
    ensure!(status == StatusCode::OK, "{answer}");
    assert_eq!(restored(&there, &last).await?, expected);
    assert_eq!(get(&there, &to, "/platform/check?settled=true&blobs=true").await, json!([]));
    Ok(())
}

/// Returns the files with which a worker fills the session's workspace.
async fn restored(world: &World, session: &str) -> Result<Vec<(String, String)>> {
    let at = at(world, session).await?.location_ref();
    let rows = world.store.workspace_packs(at.clone()).await?;
    let seed =
        world.store.location(world.org, at.location.clone()).await?.seed.context("a seed")?;
    ensure!(rows.last().map(|row| &row.tree) == Some(&seed.tree), "the newest is the seed");
    let packs: Result<Vec<PackRef>> = rows
        .into_iter()
        .map(|row| {
            let (token, ordinal, pack) = (row.token, row.ordinal, row.pack);
            Ok(PackRef { token, ordinal, tree: row.tree.as_str().parse()?, pack })
        })
        .collect();
    let (root, cache) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let options = ShadowOptions {
        root: root.path().to_owned(),
        cache: cache.path().to_owned(),
        blobs: world.blobs.clone(),
        at,
        token: FencingToken(1),
        lock: None,
        packs: packs?,
        seed: Vec::new(),
        git: true,
        hidden: snapshots::HiddenPaths::default(),
        limits: SnapshotLimits::default(),
        clock: Arc::new(SystemClock::new()),
    };
    let shadow = Shadow::open(options).await?;
    shadow.restore(&seed.tree.as_str().parse()?, None, Unsaved::Overwrite).await?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(root.path())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push((name, std::fs::read_to_string(entry.path())?));
    }
    files.sort();
    Ok(files)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_export_leaves_nothing() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let session = travelled(&here, &from).await?;
    let export = exported(&from, &here.key, &session).await?;
    let invalid = StatusCode::BAD_REQUEST;
    // Cut after each line, and within some.
    let feeds = export.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    for end in feeds.filter(|end| *end < export.len()).step_by(3) {
        refused(&there, &to, export.slice(..end), invalid, "is cut").await;
        refused(&there, &to, export.slice(..end + 9), invalid, "").await;
    }
    refused(&there, &to, export.slice(..export.len() - 1), invalid, "is cut").await;
    // A changed byte anywhere.
    for at in (0..export.len() - 1).step_by(export.len() / 40) {
        let mut changed = export.to_vec();
        changed[at] ^= 1;
        refused(&there, &to, changed, invalid, "").await;
    }
    let longer = [&export[..], b"{}\n"].concat();
    refused(&there, &to, longer, invalid, "after its last").await;
    refused(&there, &to, "", invalid, "empty").await;
    refused(&there, &to, "hello", invalid, "no export").await;
    refused(&there, &to, "{}", invalid, "neither").await;
    // A body that breaks off.
    let half = export.slice(..export.len() / 2);
    let breaks = futures::stream::iter([Ok(half), Err(std::io::Error::other("gone"))]);
    refused(&there, &to, Body::from_stream(breaks), invalid, "did not arrive whole").await;
    // A whole export is welcome afterwards.
    let (status, answer) = imports(&to, &there.key, "", export).await;
    ensure!(status == StatusCode::OK, "{answer}");
    Ok(())
}

/// Numbers the events of an export anew, after one was added or removed.
fn renumbered(mut lines: Vec<Value>) -> Vec<u8> {
    let mut seq = 0;
    for line in lines.iter_mut().filter(|line| line["type"] == "event") {
        seq += 1;
        line["seq"] = json!(seq);
    }
    lines[0]["events"] = json!(seq);
    forged(&lines)
}

// Finding core-3 M6: times, steps and epochs were taken as they came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_has_only_facts_that_a_service_writes() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let session = travelled(&here, &from).await?;
    let lines = lines_of(&exported(&from, &here.key, &session).await?);
    let invalid = StatusCode::BAD_REQUEST;
    let index = |event: &str| {
        let found = lines.iter().position(|line| line["event"] == event);
        found.unwrap_or_else(|| panic!("no {event}"))
    };
    let with = |event: &str, field: &str, value: i64| {
        let mut lines = lines.clone();
        let place = if field == "time" { "/time".into() } else { format!("/data/{field}") };
        *lines[index(event)].pointer_mut(&place).expect("a number to change") = json!(value);
        forged(&lines)
    };
    let now = domain::Clock::now_ms(&SystemClock::new());
    let before_2000 = 946_684_799_999;
    for time in [-1, before_2000, now + 25 * 3_600_000, 1 << 62, -(1 << 62)] {
        for event in ["session.created", "turn.settled"] {
            refused(&there, &to, with(event, "time", time), invalid, "24 hours").await;
        }
        // The released client exports the times of tools by any clock.
        if time != before_2000 {
            refused(&there, &to, with("tool.settled", "ended", time), invalid, "`ended` is").await;
        }
    }
    for (event, field, values) in [
        ("turn.started", "step", [0, i64::from(i32::MIN), i64::from(i32::MAX)]),
        ("turn.started", "epoch", [-5, i64::from(i32::MIN), i64::from(i32::MAX)]),
        ("epoch.started", "epoch", [0, -1, i64::from(i32::MAX)]),
        ("attempt.started", "ordinal", [0, -1, i64::from(i32::MAX)]),
        ("attempt.started", "epoch", [-1, i64::from(i32::MIN), i64::from(i32::MAX)]),
        ("turn.settled", "usage/output", [-1, 1 << 53, i64::MAX]),
        ("attempt.ended", "usage/input", [-1, 1 << 53, i64::MAX]),
    ] {
        for value in values {
            let words = format!("`{}` is {value}", field.trim_start_matches("usage/"));
            refused(&there, &to, with(event, field, value), invalid, &words).await;
        }
    }
    refused(&there, &to, with("epoch.started", "epoch", 7), invalid, "epoch 7 began").await;
    refused(&there, &to, with("turn.started", "epoch", 2), invalid, "had not begun").await;
    let mut none = lines.clone();
    none.retain(|line| line["event"] != "epoch.started");
    refused(&there, &to, renumbered(none), invalid, "had not begun").await;
    let (status, answer) = imports(&to, &there.key, "", forged(&lines)).await;
    ensure!(status == StatusCode::OK, "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_export_is_refused_with_its_reason() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let session = travelled(&here, &from).await?;
    let lines = lines_of(&exported(&from, &here.key, &session).await?);
    let invalid = StatusCode::BAD_REQUEST;
    let index = |kind: &str, event: &str| {
        let is_it =
            |line: &Value| line["type"] == kind && (event.is_empty() || line["event"] == event);
        lines.iter().position(is_it).unwrap_or_else(|| panic!("no {kind} {event}"))
    };
    let changed = |at: usize, change: &dyn Fn(&mut Value)| {
        let mut lines = lines.clone();
        change(&mut lines[at]);
        forged(&lines)
    };
    let without = |at: usize| {
        let mut lines = lines.clone();
        lines.remove(at);
        forged(&lines)
    };
    let version = changed(0, &|line| line["version"] = json!(2));
    refused(&there, &to, version, invalid, "version 2").await;
    let format = changed(0, &|line| line["format"] = json!("other"));
    refused(&there, &to, format, invalid, "no form").await;
    let newer =
        changed(index("event", "turn.started"), &|line| line["event"] = json!("turn.dreamt"));
    refused(&there, &to, newer, invalid, "newer than this build").await;
    let field =
        changed(index("event", "turn.started"), &|line| line["data"]["mood"] = json!("good"));
    refused(&there, &to, field, invalid, "does not know").await;
    refused(&there, &to, without(index("object", "")), invalid, "missing").await;
    refused(&there, &to, without(index("component", "")), invalid, "missing").await;
    refused(&there, &to, without(index("event", "prompt.promoted")), invalid, "comes after").await;
    let created = index("event", "session.created");
    refused(&there, &to, without(created), invalid, "comes after").await;
    let large = changed(index("object", ""), &|line| line["size"] = json!(1_u64 << 40));
    refused(&there, &to, large, StatusCode::PAYLOAD_TOO_LARGE, "more than").await;
    let swapped = changed(index("object", ""), &|line| line["data"] = json!("YQ=="));
    refused(&there, &to, swapped, invalid, "").await;
    let long = vec![b'x'; 33 << 20];
    let long = [&forged(&lines[..1])[..20], &long].concat();
    refused(&there, &to, long, StatusCode::PAYLOAD_TOO_LARGE, "longer than").await;
    // A log that no session has: its first turn is settled twice.
    let settled = index("event", "turn.settled");
    let mut twice = lines.clone();
    let copy = twice[settled].clone();
    twice.insert(settled + 1, copy);
    let mut seq = 0;
    for line in twice.iter_mut().filter(|line| line["type"] == "event") {
        seq += 1;
        line["seq"] = json!(seq);
    }
    twice[0]["events"] = json!(seq);
    refused(&there, &to, forged(&twice), invalid, "is broken").await;
    let nul = changed(created, &|line| line["data"]["title"] = json!("a\0b"));
    refused(&there, &to, nul, invalid, "not the log").await;

    // An output that did not come is not named any more: a name alone reads nobody's blob.
    let (status, answer) = imports(&to, &there.key, "", without(index("output", ""))).await;
    ensure!(status == StatusCode::OK && answer["leftOut"][0].as_str().is_some(), "{answer}");
    let log = get(&there, &to, &format!("/platform/session/{session}/log")).await;
    ensure!(!log.to_string().contains("managed_path"), "{log}");
    assert_eq!(get(&there, &to, "/platform/check?blobs=true").await, json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_contents_are_an_organisations_own() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = travelled(&world, &gateway).await?;
    let export = exported(&gateway, &world.key, &session).await?;
    let own = format!("/platform/session/{session}");
    let before = get(&world, &gateway, &format!("{own}/log")).await;
    let (status, answer) = imports(&gateway, &world.key, "", export.clone()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    // Under another session's id, its messages are still there.
    let mut lines = lines_of(&export);
    lines[0]["session"] = json!("ses_other");
    let (status, answer) = imports(&gateway, &world.key, "", forged(&lines)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    assert_eq!(get(&world, &gateway, &format!("{own}/log")).await, before);
    // An output with a name that is taken brings no other content.
    for line in lines.iter_mut().filter(|line| line["type"] == "output") {
        line["data"] = json!("b3RoZXIgdGV4");
    }
    let (status, answer) = imports(&gateway, &world.key, "", forged(&lines)).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    let key = blobs::BlobKey::new(&world.org.to_string(), "tool-output", OUTPUT)?;
    assert_eq!(world.blobs.get(&key).await?, "all of it");

    // Another organisation of the same service has all ids free, and blobs of its own.
    let (status, answer) = imports(&gateway, &world.stranger, "", export.clone()).await;
    ensure!(status == StatusCode::OK, "{answer}");
    let theirs = ok(&gateway, "GET", &own, &world.stranger, None).await;
    ensure!(
        theirs["id"] == session.as_str() && theirs["location"] != before[0]["data"]["location"]
    );
    for (key, count) in [(&world.key, 1), (&world.stranger, 1)] {
        let sessions = ok(&gateway, "GET", "/platform/session", key, None).await;
        assert_eq!(sessions.as_array().map(Vec::len), Some(count));
        let check = "/platform/check?settled=true&blobs=true";
        assert_eq!(ok(&gateway, "GET", check, key, None).await, json!([]));
    }

    // A session that was deleted comes back, in a workspace that nobody has used.
    for _ in 0..2 {
        ok(&gateway, "DELETE", &own, &world.stranger, None).await;
        let (status, answer) = imports(&gateway, &world.stranger, "", export.clone()).await;
        ensure!(status == StatusCode::OK && answer["files"] == "restored", "{answer}");
    }
    // In a directory of the machine it leaves the files alone.
    ok(&gateway, "DELETE", &own, &world.stranger, None).await;
    let query = format!("?directory={}", world.path());
    let (status, answer) = imports(&gateway, &world.stranger, &query, export.clone()).await;
    ensure!(status == StatusCode::OK && answer["files"] == "left", "{answer}");
    assert_eq!(answer["session"]["directory"], world.path());
    // A workspace that another session uses is refused.
    ok(&gateway, "DELETE", &own, &world.stranger, None).await;
    let project = ok(&gateway, "POST", "/project/init", &world.stranger, None).await;
    let project = project["id"].as_str().context("an id")?;
    ok(&gateway, "POST", &format!("/project/{project}/session"), &world.stranger, None).await;
    let (status, answer) =
        imports(&gateway, &world.stranger, "?directory=/workspace", export).await;
    assert_eq!(status, StatusCode::CONFLICT, "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_that_is_cancelled_leaves_nothing_to_see() -> Result<()> {
    let (here, there) = (World::new().await?, World::new().await?);
    let (from, to) = (here.gateway(), there.gateway());
    let session = travelled(&here, &from).await?;
    let export = exported(&from, &here.key, &session).await?;
    for share in 1..6 {
        let begin = export.slice(..export.len() * share / 6);
        let (told, taken) = tokio::sync::oneshot::channel();
        let pieces = futures::stream::iter([Ok::<_, std::io::Error>(begin)]).chain(
            futures::stream::once(async move {
                let _all_before_was_taken = told.send(());
                std::future::pending::<std::io::Result<Bytes>>().await
            }),
        );
        let import = imports(&to, &there.key, "", Body::from_stream(pieces));
        tokio::select! {
            ended = import => panic!("{ended:?}"),
            taken = taken => taken?,
        }
        assert_eq!(get(&there, &to, "/platform/session").await, json!([]));
        assert_eq!(get(&there, &to, "/platform/check?blobs=true").await, json!([]));
    }
    let (status, answer) = imports(&to, &there.key, "", export).await;
    ensure!(status == StatusCode::OK, "{answer}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_works_is_not_exported() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let prompt = Some(json!({ "text": "hello" }));
    let own = format!("/platform/session/{session}");
    ok(&gateway, "POST", &format!("{own}/message"), &world.key, prompt).await;
    let path = format!("{own}/export");
    let (status, busy) = call(&gateway, "GET", &path, &world.key, None).await;
    assert_eq!((status, &busy["error"]["reason"]), (StatusCode::CONFLICT, &json!("session.busy")));
    begin(&world, &at(&world, &session).await?).await?.finish(&world, "hi", None).await?;
    let export = exported(&gateway, &world.key, &session).await?;
    let kinds: BTreeSet<String> = lines_of(&export)
        .iter()
        .filter_map(|line| line["type"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(kinds, ["component", "end", "event", "header"].map(str::to_owned).into());
    let (status, _) = call(&gateway, "GET", &path, &world.stranger, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    Ok(())
}
