//! An answer names the parts of its request that nobody read.

use anyhow::Result;
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, request, send};

/// The status of a request, and what its answer names.
async fn told(
    world: &World,
    gateway: &Router,
    (method, path): (&str, &str),
    body: Option<Value>,
) -> (StatusCode, Option<String>) {
    let answer = send(gateway, request(method, path, &world.key, body.as_ref())).await;
    let named = answer.headers().get("x-opencode-cloud-ignored");
    (answer.status(), named.map(|named| named.to_str().expect("visible").to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_dialects_name_what_no_contract_has() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let directory = world.path();
    let create = format!("/session?directory={directory}&colour=red");
    let new = json!({ "id": "ses_a", "metadata": { "kept": 1 }, "shape": 1, "model":
        { "providerID": "simulated", "id": "echo" } });
    let prompt =
        json!({ "parts": [{ "type": "text", "text": "hello", "id": "prt_1" }], "x": null });
    // Finding trial 18: a misspelt field was ignored without a word, and work went to the managed workspace.
    let misspelt = json!({ "dirctory": "/tmp" });
    for (route, body, expected) in [
        (("POST", create.as_str()), Some(new), Some("shape, colour")),
        (("POST", "/project/init"), Some(misspelt), Some("dirctory")),
        (("PATCH", "/platform/session/ses_a?b=1"), Some(json!({ "titel": "A" })), Some("titel, b")),
        (
            ("PATCH", "/session/ses_a"),
            Some(json!({ "time": { "created": 1 } })),
            Some("time.created"),
        ),
        (("POST", "/session/ses_a/prompt_async"), Some(prompt), Some("x")),
        (("GET", "/platform/session?limit=1&serach=x&%C3%A9=1"), None, Some("serach, ?")),
        (("GET", "/platform/session/ses_a?directory=x"), None, Some("directory")),
        (("GET", "/session/ses_a?directory=x&workspace=y"), None, None),
        (("GET", "/session/ses_a?verbose"), None, Some("verbose")),
        // A constant reads nothing, so it cannot tell.
        (("GET", "/global/config?x=1"), None, None),
        (("GET", "/vcs?x=1"), None, Some("x")),
    ] {
        let (status, named) = told(&world, &gateway, route, body).await;
        assert!(status.is_success(), "{route:?}: {status}");
        let sorted = |text: &str| {
            let mut names: Vec<String> = text.split(", ").map(str::to_owned).collect();
            names.sort();
            names
        };
        assert_eq!(named.as_deref().map(sorted), expected.map(sorted), "{route:?}");
    }
    let many: Value =
        (0..500).map(|n| (format!("m{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
    let (_, named) = told(&world, &gateway, ("PATCH", "/session/ses_a"), Some(many)).await;
    let named = named.expect("names");
    assert!(named.split(", ").count() == 20 && named.len() <= 1024, "{named}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_released_contract_has_is_not_named() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let directory = world.path();
    let everywhere = format!("directory={directory}&workspace=wrk_1");
    let lists = [
        ("/session", "scope=project&path=&roots=true&start=1&search=a&limit=1"),
        ("/experimental/session", "roots=true&start=1&cursor=9&search=a&limit=1&archived=true"),
        ("/api/session", "limit=1&order=desc&search=a&project=prj_1&subpath=&cursor=1.ses_a"),
        ("/vcs/diff", "mode=git&context=3"),
        ("/api/model", "location%5Bdirectory%5D=/workspace&location%5Bworkspace%5D=wrk_1"),
    ];
    for (path, query) in lists {
        let path = format!("{path}?{everywhere}&{query}");
        let answer = told(&world, &gateway, ("GET", &path), None).await;
        assert_eq!(answer, (StatusCode::OK, None), "{path}");
    }
    let create = format!("/session?{everywhere}");
    let new = json!({ "title": "t", "agent": "build", "metadata": {}, "permission": [],
        "model": { "providerID": "simulated", "id": "echo", "variant": null } });
    assert_eq!(told(&world, &gateway, ("POST", &create), Some(new)).await, (StatusCode::OK, None));
    // Lost if it was taken, so it is refused by its name.
    let answer =
        told(&world, &gateway, ("POST", &create), Some(json!({ "workspaceID": "wrk_1" }))).await;
    assert_eq!(answer, (StatusCode::BAD_REQUEST, None));
    Ok(())
}
