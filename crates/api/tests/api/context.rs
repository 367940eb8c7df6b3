//! The context of a session's model besides the conversation: entries, and the organisation's instructions.

use anyhow::Result;
use axum::body::Body;
use http::{Request, StatusCode};
use serde_json::json;

use crate::native::session;
use crate::world::{World, call, ok, request, send};

/// Sends the bytes unchanged.
async fn put(world: &World, gateway: &axum::Router, path: &str, body: &str) -> StatusCode {
    let request = Request::put(path)
        .header("authorization", format!("Bearer {}", world.key))
        .body(Body::from(body.to_owned()))
        .expect("a request");
    send(gateway, request).await.status()
}

/// Returns the bytes of the answer.
async fn text(world: &World, gateway: &axum::Router, path: &str) -> Result<String> {
    let response = send(gateway, request("GET", path, &world.key, None)).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await?;
    Ok(String::from_utf8(bytes.to_vec())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_are_json_values_whose_bytes_are_kept() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let below = format!("/project/{project}/session/{session}/context");
    let own = format!("/platform/session/{session}/context");
    assert_eq!(text(&world, &gateway, &own).await?, "{}");
    for (key, value) in [("plan.v1", "{\"z\": 1.0, \"a\":[]}"), ("gone", "1"), ("none", "null")] {
        let status = put(&world, &gateway, &format!("{below}/{key}"), value).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
    assert_eq!(text(&world, &gateway, &format!("{own}/plan.v1")).await?, "{\"z\": 1.0, \"a\":[]}");
    for _ in 0..2 {
        let gone = format!("{own}/gone");
        let (status, _) = call(&gateway, "DELETE", &gone, &world.key, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
    let all = "{\"none\":null,\"plan.v1\":{\"z\": 1.0, \"a\":[]}}";
    assert_eq!(text(&world, &gateway, &below).await?, all);
    let gone = format!("{own}/gone");
    assert_eq!(call(&gateway, "GET", &gone, &world.key, None).await.0, StatusCode::NOT_FOUND);
    assert_eq!(
        ok(&gateway, "GET", &format!("/platform/session/{session}"), &world.key, None).await["busy"],
        false
    );

    let large = format!("\"{}\"", "x".repeat(8 * 1024));
    for (key, value, status) in [
        ("plan", "not JSON", StatusCode::BAD_REQUEST),
        ("plan", "", StatusCode::BAD_REQUEST),
        ("a%20b", "1", StatusCode::BAD_REQUEST),
        ("plan", large.as_str(), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(put(&world, &gateway, &format!("{own}/{key}"), value).await, status, "{key}");
    }
    for n in 0..62 {
        put(&world, &gateway, &format!("{own}/k{n}"), "1").await;
    }
    assert_eq!(put(&world, &gateway, &format!("{own}/more"), "1").await, StatusCode::CONFLICT);
    assert_eq!(put(&world, &gateway, &format!("{own}/none"), "2").await, StatusCode::NO_CONTENT);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instructions_are_the_organisations_and_its_administrators_set_them() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let path = "/platform/instructions";
    assert_eq!(ok(&gateway, "GET", path, &world.key, None).await, json!({ "text": "" }));
    let set = ok(&gateway, "PUT", path, &world.key, Some(json!({ "text": "Be brief.\n" }))).await;
    assert_eq!(set["text"], "Be brief.\n");
    assert!(set["updated"].is_i64());
    assert_eq!(ok(&gateway, "GET", path, &world.key, None).await, set);
    assert_eq!(ok(&gateway, "GET", path, &world.stranger, None).await, json!({ "text": "" }));
    let (key, mut row) = auth::generate_key("prompter");
    row.scopes = vec!["read".into(), "prompt".into()];
    world.store.create_key(world.org, row, 0).await?;
    for (method, body) in [("GET", None), ("PUT", Some(json!({ "text": "Be mine." })))] {
        assert_eq!(call(&gateway, method, path, &key, body).await.0, StatusCode::FORBIDDEN);
    }
    let large = Some(json!({ "text": "x".repeat(64 * 1024 + 1) }));
    let (status, _) = call(&gateway, "PUT", path, &world.key, large).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let gone = ok(&gateway, "PUT", path, &world.key, Some(json!({ "text": " " }))).await;
    assert_eq!(gone, json!({ "text": "" }));
    Ok(())
}
