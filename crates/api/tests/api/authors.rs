//! Who created a session, prompted it and interrupted it, as its log says.

use anyhow::{Context, Result};
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_says_whose_key_did_what() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (key, mut row) = auth::generate_key("a colleague's");
    row.scopes = vec!["prompt".into()];
    let colleague = row.id.clone();
    world.store.create_key(world.org, row, 0).await?;

    let path = format!("/session?directory={}", world.path());
    let body = Some(json!({ "id": "ses_a" }));
    ok(&gateway, "POST", &path, &world.key, body).await;
    let prompt = Some(json!({ "text": "hello" }));
    ok(&gateway, "POST", "/platform/session/ses_a/message", &key, prompt).await;
    let (status, answer) =
        call(&gateway, "POST", "/session/ses_a/abort", &world.key, Some(json!({}))).await;
    assert_eq!((status, answer), (StatusCode::OK, json!(true)));

    let log = ok(&gateway, "GET", "/platform/session/ses_a/log", &world.key, None).await;
    let list = log.as_array().or_else(|| log["events"].as_array()).context("a list")?.clone();
    let of = |kind: &str| -> Result<Value> {
        let event = list.iter().find(|event| event["type"] == kind);
        Ok(event.with_context(|| format!("no {kind} in {log}"))?["data"]["by"]["key"].clone())
    };
    let creator = of("session.created")?;
    let created = list.iter().find(|event| event["type"] == "session.created");
    assert_eq!(created.context("the first event")?["data"]["by"]["actor"], "svc_first");
    assert!(creator.as_str().is_some_and(|id| id.starts_with("key_")), "{creator}");
    assert_eq!(of("prompt.admitted")?, json!(colleague));
    assert_eq!(of("interrupt.requested")?, creator);
    Ok(())
}
