//! Archived sessions, and metadata of sessions, in both dialects.

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{SseReader, World, call, ok, request, send};

async fn new(world: &World, gateway: &Router, id: &str) {
    let path = format!("/session?directory={}", world.path());
    ok(gateway, "POST", &path, &world.key, Some(json!({ "id": id }))).await;
}

/// The ids in a list.
async fn ids(world: &World, gateway: &Router, path: &str) -> Vec<String> {
    let answer = ok(gateway, "GET", path, &world.key, None).await;
    let list = answer.get("data").unwrap_or(&answer).as_array().expect("a list").clone();
    let mut ids: Vec<String> =
        list.iter().map(|session| session["id"].as_str().expect("an id").to_owned()).collect();
    ids.sort();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archived_session_is_in_released_lists_and_in_no_other() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    new(&world, &gateway, "ses_a").await;
    new(&world, &gateway, "ses_b").await;
    let change = |path: &'static str, body: Value| {
        let (gateway, key) = (gateway.clone(), world.key.clone());
        async move { ok(&gateway, "PATCH", path, &key, Some(body)).await }
    };
    let stock =
        change("/session/ses_a", json!({ "time": { "archived": 1_700_000_000_000_i64 } })).await;
    assert_eq!(stock["time"]["archived"], 1_700_000_000_000_i64);
    let project = stock["projectID"].as_str().unwrap_or_default().to_owned();
    let (all, live) = (vec!["ses_a".to_owned(), "ses_b".to_owned()], vec!["ses_b".to_owned()]);
    for (path, expected) in [
        ("/session", &all),
        ("/api/session", &all),
        ("/experimental/session", &live),
        ("/experimental/session?archived=false", &live),
        ("/experimental/session?archived=true", &all),
        ("/platform/session", &live),
        ("/platform/session?archived=true", &all),
        (&format!("/project/{project}/session"), &live),
        (&format!("/project/{project}/session?archived=true"), &all),
    ] {
        assert_eq!(ids(&world, &gateway, path).await, *expected, "{path}");
    }
    let second = ok(&gateway, "GET", "/api/session/ses_a", &world.key, None).await;
    assert_eq!(second["data"]["time"]["archived"], 1_700_000_000_000_i64);
    // A prompt does not bring it back: whoever archived it does.
    let prompt = Some(json!({ "parts": [{ "type": "text", "text": "hello" }] }));
    let (status, answer) =
        call(&gateway, "POST", "/session/ses_a/prompt_async", &world.key, prompt).await;
    assert_eq!(status, StatusCode::NO_CONTENT, "{answer}");
    assert_eq!(ids(&world, &gateway, "/platform/session").await, live);
    let back = change("/platform/session/ses_a", json!({ "archived": false })).await;
    assert!(back["time"].get("archived").is_none(), "{back}");
    assert_eq!(ids(&world, &gateway, "/platform/session").await, all);
    // A session that is archived twice keeps its first time, and a change to the same is no event.
    let once = change("/platform/session/ses_a", json!({ "archived": true })).await;
    assert!(once["time"]["archived"].as_i64() >= once["time"]["created"].as_i64());
    let twice = change("/platform/session/ses_a", json!({ "archived": true })).await;
    assert_eq!(once, twice);
    let released = change("/session/ses_a", json!({ "time": { "archived": 0 } })).await;
    assert!(released["time"].get("archived").is_none(), "{released}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_is_kept_word_for_word_and_replaced_whole() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let text = r#"{ "b": 1.0, "a": [ "\u0000", {"n": null} ], "big": 12345678901234567890123 }"#;
    let path = format!("/session?directory={}", world.path());
    let body = format!(r#"{{"id":"ses_a","metadata":{text}}}"#);
    let mut create = request("POST", &path, &world.key, None);
    *create.body_mut() = Body::from(body);
    let answer = send(&gateway, create).await;
    assert_eq!(answer.status(), StatusCode::OK);
    for path in ["/session/ses_a", "/session", "/experimental/session", "/platform/session/ses_a"] {
        let answer = send(&gateway, request("GET", path, &world.key, None)).await;
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await?;
        let shown = String::from_utf8(bytes.to_vec())?;
        assert!(shown.contains(&format!(r#""metadata":{text}"#)), "{path}: {shown}");
    }
    // A fork keeps the metadata, and is not archived.
    let archived = Some(json!({ "archived": true, "title": "Mine" }));
    let changed = ok(&gateway, "PATCH", "/platform/session/ses_a", &world.key, archived).await;
    assert_eq!(changed["title"], "Mine");
    let fork = ok(&gateway, "POST", "/session/ses_a/fork", &world.key, Some(json!({}))).await;
    assert!(fork["time"].get("archived").is_none() && fork["metadata"]["b"] == 1.0, "{fork}");
    // Replaced as a whole; all of a change or nothing of it.
    let replaced = Some(json!({ "metadata": { "c": 2 } }));
    let changed = ok(&gateway, "PATCH", "/session/ses_a", &world.key, replaced).await;
    assert_eq!(changed["metadata"], json!({ "c": 2 }));
    let long = "x".repeat(16 * 1024);
    let bad = json!({ "title": "Other", "metadata": { "a": long } });
    let (status, answer) = call(&gateway, "PATCH", "/session/ses_a", &world.key, Some(bad)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let now = ok(&gateway, "GET", "/session/ses_a", &world.key, None).await;
    assert_eq!((&now["title"], &now["metadata"]), (&json!("Mine"), &json!({ "c": 2 })));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_learn_of_both() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    new(&world, &gateway, "ses_a").await;
    let request = request("GET", "/global/event", &world.key, None);
    let mut events = SseReader::new(send(&gateway, request).await);
    let change = Some(json!({ "archived": true, "metadata": { "n": 1 } }));
    ok(&gateway, "PATCH", "/platform/session/ses_a", &world.key, change).await;
    let told = |info: &Value| info["metadata"]["n"] == 1 && info["time"]["archived"].is_i64();
    let frames = events
        .until(|sse| {
            let event = sse.data.get("payload").unwrap_or(&sse.data);
            event["type"] == "session.updated" && told(&event["properties"]["info"])
        })
        .await;
    assert!(!frames.is_empty());
    let log = ok(&gateway, "GET", "/platform/session/ses_a/log", &world.key, None).await;
    let kinds: Vec<&str> =
        log.as_array().into_iter().flatten().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["session.created", "session.archived", "session.described"]);
    Ok(())
}
