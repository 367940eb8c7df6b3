//! Repositories that people send from their own machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use access::OrgRole;
use anyhow::{Context, Result, ensure};
use api::{ApiParts, ApiSettings, ApiState, SpoolSettings, router};
use axum::Router;
use axum::body::Body;
use domain::{FencingToken, LocationRef};
use futures::StreamExt;
use http::StatusCode;
use serde_json::{Value, json};
use signals::{Hint, SessionHint, Signals, Topic};
use store::FillNote;

use crate::logins::person;
use crate::world::{SseReader, World, call, json as body_of, ok, request, send};

async fn uploads(gateway: &Router, key: &str, body: impl Into<Body>) -> (StatusCode, Value) {
    let mut sent = request("POST", "/platform/upload", key, None);
    *sent.body_mut() = body.into();
    let answer = send(gateway, sent).await;
    (answer.status(), body_of(answer).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_with_what_was_sent() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key) = (world.gateway(), &world.key);
    let commit = "c".repeat(40);
    let name = json!({ "name": "shop", "root": "a".repeat(40), "commits": [commit] });
    let here = ok(&gateway, "POST", "/platform/repository", key, Some(name.clone())).await;
    let again = ok(&gateway, "POST", "/platform/repository", key, Some(name)).await;
    ensure!(here == again && here["known"] == json!([]), "{here} {again}");
    let directory = format!("/here/shop-{}", "a".repeat(12));
    assert_eq!(here["directory"], directory.as_str());

    let (status, told) = uploads(&gateway, key, "PUCK").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
    let (status, told) = uploads(&gateway, key, "PA").await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{told}");
    let (status, upload) = uploads(&gateway, key, "PACK and more").await;
    assert_eq!((status, &upload["bytes"]), (StatusCode::OK, &json!(13)));

    let project = here["projectID"].as_str().context("a project")?;
    let path = format!("/project/{project}/session");
    let sent = json!({
        "repository": here["id"], "commit": commit, "branch": "refs/heads/main",
        "changes": { "upload": upload["id"], "staged": "d".repeat(40), "wip": "e".repeat(40) },
    });
    let with = |name: &str, value: Value| {
        let mut changed = sent.clone();
        changed[name] = value;
        json!({ "sent": changed })
    };
    for (wrong, status, says) in [
        (json!({ "sent": sent }), 400, "the commit is not here"),
        (with("commit", json!("main")), 400, "is no commit"),
        (with("branch", json!("main")), 400, "is no branch"),
        (with("commits", json!("upl_gone")), 404, "upload"),
        (json!({ "sent": sent, "directory": "/workspace" }), 400, "leave `directory` out"),
    ] {
        let (answer, told) = call(&gateway, "POST", &path, key, Some(wrong)).await;
        ensure!(answer == status && told.to_string().contains(says), "{says}: {told}");
    }
    let (status, told) =
        call(&gateway, "POST", &format!("/session?directory={directory}"), key, Some(json!({})))
            .await;
    ensure!(status == 400 && told.to_string().contains("run --here"), "{told}");

    let mut right = with("commits", upload["id"].clone());
    right["id"] = json!("ses_mine");
    let session = ok(&gateway, "POST", &path, key, Some(right.clone())).await;
    assert_eq!(session["directory"], directory.as_str());
    assert_eq!(ok(&gateway, "POST", &path, key, Some(right)).await["id"], session["id"], "a retry");
    let shown = ok(&gateway, "GET", "/platform/session/ses_mine/repository", key, None).await;
    ensure!(shown["sent"] == json!(true) && shown["state"] == "waiting", "{shown}");
    assert_eq!((&shown["commit"], &shown["url"]), (&json!(commit), &json!(directory)));
    let listed = ok(&gateway, "GET", &format!("/session?directory={directory}"), key, None).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    let vcs = ok(&gateway, "GET", &format!("/vcs?directory={directory}"), key, None).await;
    assert_eq!(vcs, json!({ "branch": "main" }));
    assert_eq!(ok(&gateway, "GET", "/vcs", key, None).await, json!({}));
    let projects = ok(&gateway, "GET", "/project", key, None).await;
    let ours = projects.as_array().into_iter().flatten().find(|one| one["id"] == project);
    let ours = ours.context("the project")?;
    assert_eq!((&ours["name"], &ours["vcs"]), (&json!("shop"), &json!("git")));
    Ok(())
}

// Finding security-3 M4: a member with many keys filled the gateway's temporary folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_organisation_sends_so_much_at_once() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    // The second key is of the same person, the others are of two others.
    let made = ok(&gateway, "POST", "/platform/key", &world.key, Some(json!({ "name": "one" })));
    let mut keys = vec![made.await["key"].as_str().context("a key")?.to_owned()];
    keys.insert(0, world.key.clone());
    for name in ["ada", "bob"] {
        keys.push(person(&world, name, OrgRole::Member).await?.key);
    }
    // Each upload sends its first byte, and its end when all have had their answer or their place.
    let (end, ended) = tokio::sync::watch::channel(false);
    let (began, mut begun) = tokio::sync::mpsc::channel(8);
    let slow = |key: &str| {
        let (mut ended, began) = (ended.clone(), began.clone());
        let body = futures::stream::once(async move {
            began.send(()).await.expect("somebody counts");
            ended.wait_for(|end| *end).await.expect("it ends");
            Ok::<_, std::io::Error>("PACK")
        });
        let (gateway, key) = (gateway.clone(), key.to_owned());
        crate::inbox::beside(async move { uploads(&gateway, &key, Body::from_stream(body)).await })
    };
    let mut running = Vec::new();
    for key in [0, 0, 1, 1, 2, 2, 2, 2] {
        running.push(slow(&keys[key]));
        begun.recv().await.context("it has a place")?;
    }
    for (key, whose) in [(0, "one person"), (1, "one person"), (3, "organisation")] {
        let key = &keys[key];
        let (status, told) = uploads(&gateway, key, "PACK").await;
        ensure!(status == 429 && told.to_string().contains(whose), "{status} {told}");
    }
    assert_eq!(uploads(&gateway, &world.stranger, "PACK").await.0, StatusCode::OK);
    end.send(true)?;
    for upload in running {
        assert_eq!(upload.await?.0, StatusCode::OK);
    }
    assert_eq!(uploads(&gateway, &keys[0], "PACK").await.0, StatusCode::OK);
    Ok(())
}

// Finding look 7 (M4): packs in storage had no sum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_packs_of_an_organisation_have_a_quota() -> Result<()> {
    let world = World::new().await?;
    let settings = ApiSettings { upload_quota: 160_000, ..World::settings() };
    let gateway = router(ApiState::start(ApiParts { settings, ..world.parts() }));
    let pack = |bytes: usize| [b"PACK".to_vec(), vec![0; bytes]].concat();
    let key = &world.key;
    // Both arrive while there is room for one.
    let (end, ended) = tokio::sync::watch::channel(false);
    let (began, mut begun) = tokio::sync::mpsc::channel(2);
    let mut both = Vec::new();
    for _ in 0..2 {
        let (mut ended, began, pack) = (ended.clone(), began.clone(), pack(90_000));
        let body = futures::stream::once(async move {
            began.send(()).await.expect("somebody counts");
            ended.wait_for(|end| *end).await.expect("it ends");
            Ok::<_, std::io::Error>(pack)
        });
        let (gateway, key) = (gateway.clone(), key.clone());
        both.push(crate::inbox::beside(async move {
            uploads(&gateway, &key, Body::from_stream(body)).await
        }));
        begun.recv().await.context("it is asked for")?;
    }
    end.send(true)?;
    let mut answers = Vec::new();
    for upload in both {
        answers.push(upload.await?);
    }
    answers.sort_by_key(|(status, _)| *status);
    let full = |(status, told): &(StatusCode, Value)| {
        *status == StatusCode::TOO_MANY_REQUESTS && told.to_string().contains("--upload-quota")
    };
    ensure!(answers[0].0 == StatusCode::OK && full(&answers[1]), "{answers:?}");
    // One that does not fit is refused while it comes, and what was refused left no blob.
    let answer = uploads(&gateway, key, pack(90_000)).await;
    ensure!(full(&answer), "{answer:?}");
    let blobs = world.blobs.list(&world.org.to_string(), "upload").count().await;
    assert_eq!(blobs, 1);
    assert_eq!(uploads(&gateway, key, "PACK").await.0, StatusCode::OK, "64 KiB fit");
    let answer = uploads(&gateway, key, "PACK").await;
    ensure!(full(&answer), "{answer:?}");
    assert_eq!(uploads(&gateway, &world.stranger, "PACK").await.0, StatusCode::OK);
    Ok(())
}

// Finding look 7 (M4): uploads and imports had no bound in bytes together, and took all of the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_and_imports_leave_the_disk_its_reserve() -> Result<()> {
    let world = World::new().await?;
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let left = room.clone();
    let spools = SpoolSettings {
        most_bytes: 8 << 20,
        room: Arc::new(move |_| Some(left.load(Ordering::Relaxed))),
        ..world.spools()
    };
    let gateway = router(ApiState::start(ApiParts { spools, ..world.parts() }));
    let key = &world.key;
    let made = ok(&gateway, "POST", "/session", key, Some(json!({ "id": "ses_out" }))).await;
    assert_eq!(made["id"], "ses_out");
    let export =
        send(&gateway, request("GET", "/platform/session/ses_out/export", key, None)).await;
    let export = axum::body::to_bytes(export.into_body(), usize::MAX).await?;
    ok(&gateway, "DELETE", "/session/ses_out", key, None).await;
    let imports = async || {
        let mut sent = request("POST", "/platform/session/import", key, None);
        *sent.body_mut() = Body::from(export.clone());
        let answer = send(&gateway, sent).await;
        (answer.status(), body_of(answer).await)
    };

    // Half of it is one organisation's.
    let large = [b"PACK".to_vec(), vec![0; 5 << 20]].concat();
    let (status, told) = uploads(&gateway, key, large).await;
    ensure!(status == StatusCode::TOO_MANY_REQUESTS && told.to_string().contains("disk"), "{told}");
    room.store(1 << 19, Ordering::Relaxed);
    for (status, told) in [uploads(&gateway, key, "PACK").await, imports().await] {
        ensure!(status == StatusCode::SERVICE_UNAVAILABLE, "{told}");
        ensure!(told.to_string().contains("--disk-reserve"), "{told}");
    }
    room.store(u64::MAX, Ordering::Relaxed);
    for (status, told) in [uploads(&gateway, key, "PACK").await, imports().await] {
        assert_eq!(status, StatusCode::OK, "{told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_tells_how_far_a_workspace_is() -> Result<()> {
    let world = World::new().await?;
    let (gateway, key, store, org) = (world.gateway(), &world.key, &world.store, world.org);
    let body = json!({ "id": "ses_repo", "directory": "/h.org/r@main" });
    let made = ok(&gateway, "POST", "/session", key, Some(body)).await;
    assert_eq!(made["directory"], "/h.org/r");
    let follows = request("GET", "/platform/session/ses_repo/log?follow=true", key, None);
    let mut stream = SseReader::new(send(&gateway, follows).await);
    stream.until(|frame| frame.event == "session.created").await;
    let row = store.session(org, "ses_repo".parse()?).await?;
    let at = LocationRef { org, location: row.at.location.clone() };
    store.raise_fence(at.clone(), FencingToken(1)).await?;
    let stage = FillNote::Stage("fetching".into(), 5);
    store.note_fill(at, FencingToken(1), stage).await?;
    let topic = Topic::Session(org, row.at.session.clone());
    world.signals.publish(&topic, Hint::Session(SessionHint::Workspace));
    let frames = stream.until(|frame| frame.event == "workspace").await;
    let told = &frames.last().context("a frame")?.data;
    let mut shown = ok(&gateway, "GET", "/platform/session/ses_repo/repository", key, None).await;
    assert_eq!((&shown["stage"], &shown["bytes"]), (&json!("fetching"), &json!(5)));
    shown["type"] = json!("workspace");
    assert_eq!(*told, shown);
    Ok(())
}
