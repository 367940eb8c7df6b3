//! Streams of clients that read slowly, and streams at a gateway that does none of the work.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::{Value, json};

use crate::drain::{at, begin};
use crate::native::session;
use crate::stock::listen;
use crate::world::{Sse, World, call, ok};

async fn prompt(world: &World, gateway: &axum::Router, session: &str, text: &str) -> Result<()> {
    let path = format!("/platform/session/{session}/message");
    ok(gateway, "POST", &path, &world.key, Some(json!({ "text": text, "resume": false }))).await;
    Ok(())
}

async fn new_session(world: &World, gateway: &axum::Router) -> Result<String> {
    let made = ok(gateway, "POST", "/session", &world.key, Some(json!({}))).await;
    Ok(made["id"].as_str().expect("an id").to_owned())
}

/// Returns the text of a prompt in a frame of any stream.
fn text_of(sse: &Sse) -> Option<&str> {
    let event = sse.data.get("payload").unwrap_or(&sse.data);
    let stock = &event["properties"]["part"]["text"];
    let own = &event["data"]["parts"][0]["text"];
    stock.as_str().or_else(|| own.as_str())
}

// Finding core-3 H2: the texts of everybody waited for one silent reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_text_is_read_again_for_a_slow_listener() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let mut streams = Vec::new();
    for path in ["/event", "/global/event", &format!("/platform/session/{id}/log?follow=true")] {
        streams.push(listen(&world, &gateway, path).await);
    }
    let texts: Vec<String> = ["a", "b", "c"].map(|text| text.repeat(400_000)).into();
    for text in &texts {
        prompt(&world, &gateway, &id, text).await?;
    }
    for stream in &mut streams {
        for text in &texts {
            let told = stream.until(|sse| text_of(sse).is_some()).await;
            assert!(told.last().and_then(text_of) == Some(text), "another text, or a part of it");
        }
    }
    Ok(())
}

// Finding core-3 H2: a reader was cut off by a number of frames, and only if it read again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_megabytes_behind_is_ended() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, id) = session(&world, &gateway).await;
    let log = format!("/platform/session/{id}/log?follow=true");
    let (mut stock, mut own) =
        (listen(&world, &gateway, "/event").await, listen(&world, &gateway, &log).await);
    let mut quick = listen(&world, &gateway, "/event").await;
    let text = "x".repeat(60_000);
    for _ in 0..90 {
        prompt(&world, &gateway, &id, &text).await?;
        quick.until(|sse| text_of(sse).is_some()).await;
    }
    let mut frames = 0;
    while stock.next().await.is_some() {
        frames += 1;
    }
    assert!(frames < 90, "{frames} frames waited");
    let told = own.until(|sse| sse.event == "resync").await;
    assert!(told.len() < 90, "{} frames waited", told.len());
    assert!(own.next().await.is_none());
    Ok(())
}

// Finding core-3 M3: a gateway looked at the newest sessions, and at those that were busy when it looked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_turn_at_an_old_session_is_told_elsewhere() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let old = new_session(&world, &here).await?;
    for _ in 0..205 {
        new_session(&world, &here).await?;
    }
    let mut events = listen(&world, &there, "/event").await;
    events.until(|sse| sse.data["type"] == "server.connected").await;
    let body = Some(json!({ "parts": [{ "type": "text", "text": "hi" }] }));
    call(&here, "POST", &format!("/session/{old}/prompt_async"), &world.key, body).await;
    begin(&world, &at(&world, &old).await?).await?.finish(&world, "hello", None).await?;
    let told = events.until(|sse| sse.data["type"] == "session.idle").await;
    assert_eq!(told.last().expect("a frame").data["properties"]["sessionID"], old);
    let has = |kind: &str| told.iter().any(|sse| sse.data["type"] == kind);
    assert!(has("message.part.updated") && has("message.updated"));
    Ok(())
}

// Finding core-3 M3: nobody was told of the deletion of a session that no feed followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_told_at_every_gateway() -> Result<()> {
    let world = World::new().await?;
    let (here, there) = (world.gateway(), world.gateway());
    let mut ids = BTreeSet::new();
    let query = format!("?directory={}", world.path());
    for _ in 0..3 {
        let path = format!("/session{query}");
        let made = ok(&here, "POST", &path, &world.key, Some(json!({}))).await;
        ids.insert(made["id"].as_str().expect("an id").to_owned());
    }
    let local = format!("/event{query}");
    let mut listeners = Vec::new();
    for (gateway, path) in [(&here, local.as_str()), (&there, &local), (&there, "/global/event")] {
        listeners.push(listen(&world, gateway, path).await);
    }
    let mut elsewhere = listen(&world, &there, "/event?directory=/workspace").await;
    for id in &ids {
        ok(&here, "DELETE", &format!("/session/{id}"), &world.key, None).await;
    }
    for listener in &mut listeners {
        let mut told = BTreeSet::new();
        while told.len() < ids.len() {
            let is_deletion = |sse: &Sse| {
                let event = sse.data.get("payload").unwrap_or(&sse.data);
                event["type"] == "session.deleted"
            };
            let frame = listener.until(is_deletion).await.pop().expect("a frame").data;
            let event = frame.get("payload").unwrap_or(&frame);
            let info: &Value = &event["properties"]["info"];
            assert_eq!(info["directory"], world.path());
            let id = info["id"].as_str().expect("an id").to_owned();
            assert!(told.insert(id), "told twice: {info}");
        }
        assert_eq!(told, ids);
    }
    let new = new_session(&world, &there).await?;
    let told = elsewhere.until(|sse| sse.data["type"] == "session.created").await;
    assert_eq!(told.last().expect("a frame").data["properties"]["sessionID"], new);
    assert!(told.iter().all(|sse| sse.data["type"] != "session.deleted"), "{told:?}");
    Ok(())
}
