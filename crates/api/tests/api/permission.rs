//! A session's rules about tool calls, and what of the released contract is refused by its name.

use anyhow::{Result, ensure};
use http::StatusCode;
use serde_json::{Value, json};

use crate::world::{World, call, ok};

fn rules() -> Value {
    // Those that the released `run` sends.
    json!([
        { "permission": "question", "action": "deny", "pattern": "*" },
        { "permission": "plan_enter", "action": "deny", "pattern": "*" },
        { "permission": "bash", "action": "ask", "pattern": "rm *" },
    ])
}

/// The rules in the first event of a session's log.
async fn kept(gateway: &axum::Router, world: &World, session: &str) -> Value {
    let path = format!("/platform/session/{session}/log");
    let log = ok(gateway, "GET", &path, &world.key, None).await;
    log[0]["data"]["rules"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_are_kept_word_for_word_by_a_session_and_its_forks() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let directory = world.path();
    let path = format!("/session?directory={directory}");
    let new = json!({ "id": "ses_ruled", "permission": rules() });
    for _ in 0..2 {
        ok(&gateway, "POST", &path, &world.key, Some(new.clone())).await;
    }
    assert_eq!(kept(&gateway, &world, "ses_ruled").await, rules());
    let fork = ok(&gateway, "POST", "/session/ses_ruled/fork", &world.key, Some(json!({}))).await;
    let fork = fork["id"].as_str().unwrap_or_default();
    assert_eq!(kept(&gateway, &world, fork).await, rules(), "a fork is no way around them");
    // Finding heldout-3: they were obeyed and never shown, and a change that named them failed whole.
    let shown = ok(&gateway, "GET", "/session/ses_ruled", &world.key, None).await;
    assert_eq!(shown["permission"], rules());
    let change = |permission: Value| Some(json!({ "title": "Named", "permission": permission }));
    let (status, body) =
        call(&gateway, "PATCH", "/session/ses_ruled", &world.key, change(json!([]))).await;
    ensure!(status == StatusCode::BAD_REQUEST, "{body}");
    ensure!(body.to_string().contains("nothing was changed"), "{body}");
    let same = ok(&gateway, "PATCH", "/session/ses_ruled", &world.key, change(rules())).await;
    assert_eq!((&same["title"], &same["permission"]), (&json!("Named"), &rules()));
    // The same id without its rules would be a session that does not have them.
    let other = Some(json!({ "id": "ses_ruled" }));
    let (status, body) = call(&gateway, "POST", &path, &world.key, other).await;
    ensure!(status == StatusCode::CONFLICT && body.to_string().contains("permission"), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fields_that_are_not_offered_are_refused_by_name() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let create = format!("/session?directory={}", world.path());
    ok(&gateway, "POST", &create, &world.key, Some(json!({ "id": "ses_a" }))).await;
    let text = json!([{ "type": "text", "text": "hello" }]);
    let many: Vec<_> = (0..201).map(|_| rules()[0].clone()).collect();
    let prompt = "/session/ses_a/prompt_async";
    for (method, path, body, named) in [
        (
            "POST",
            create.as_str(),
            json!({ "permission": [{ "permission": "bash", "pattern": "*", "action": "maybe" }] }),
            "maybe",
        ),
        ("POST", &create, json!({ "permission": many }), "at most 200 rules"),
        ("POST", &create, json!({ "metadata": [1] }), "metadata"),
        ("PATCH", "/session/ses_a", json!({ "permission": rules() }), "permission"),
        ("PATCH", "/session/ses_a", json!({ "metadata": "a" }), "metadata"),
        ("PATCH", "/session/ses_a", json!({ "time": { "archived": -1 } }), "archived"),
        ("POST", prompt, json!({ "parts": text, "system": "Be brief." }), "system"),
        ("POST", prompt, json!({ "parts": text, "tools": { "bash": false } }), "tools"),
        (
            "POST",
            prompt,
            json!({ "parts": text, "format": { "type": "json_schema", "schema": {} } }),
            "format",
        ),
        (
            "POST",
            prompt,
            json!({ "parts": [{ "type": "text", "text": "a", "ignored": true }] }),
            "ignored",
        ),
        (
            "POST",
            prompt,
            json!({ "parts": [{ "type": "text", "text": "a", "synthetic": true }] }),
            "synthetic",
        ),
    ] {
        let (status, answer) = call(&gateway, method, path, &world.key, Some(body.clone())).await;
        ensure!(status == StatusCode::BAD_REQUEST, "{body}: {status} {answer}");
        ensure!(answer.to_string().contains(named), "{body}: {answer}");
    }
    let named =
        json!({ "parts": [{ "type": "text", "text": "a", "id": "prt_mine" }], "noReply": true });
    let answer = ok(&gateway, "POST", "/session/ses_a/message", &world.key, Some(named)).await;
    assert_eq!(answer["parts"][0]["id"], "prt_mine");
    // Fields that change nothing are taken.
    let plain = json!({ "parts": text, "system": "", "tools": { "bash": true }, "format": { "type": "text" } });
    let (status, answer) = call(&gateway, "POST", prompt, &world.key, Some(plain)).await;
    ensure!(status == StatusCode::NO_CONTENT, "{status} {answer}");
    Ok(())
}
