//! Calls that wait for somebody's answer, in both dialects.

use anyhow::{Context, Result, ensure};
use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::Turn;
use crate::world::{World, call, ok};

/// A session with a call that waits. Returns its id and the ask's.
async fn asking(world: &World, gateway: &Router, command: &str) -> Result<(String, String, Turn)> {
    let session = ok(gateway, "POST", "/session", &world.key, None).await;
    let id = session["id"].as_str().context("an id")?.to_owned();
    let prompt = json!({ "parts": [{ "type": "text", "text": "hello" }] });
    let path = format!("/session/{id}/prompt_async");
    let (status, body) = call(gateway, "POST", &path, &world.key, Some(prompt)).await;
    ensure!(status == StatusCode::NO_CONTENT, "{status} {body}");
    let turn = crate::drain::begin(world, &crate::drain::at(world, &id).await?).await?;
    let ask = turn.ask(world, command).await?;
    Ok((id, ask.to_string(), turn))
}

async fn post(world: &World, gateway: &Router, path: &str, body: Value) -> (StatusCode, Value) {
    call(gateway, "POST", path, &world.key, Some(body)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_dialects_show_and_answer_an_ask() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let get = async |path: &str| ok(&gateway, "GET", path, &world.key, None).await;
    let (session, ask, turn) = asking(&world, &gateway, "git push").await?;
    let own = get("/platform/ask").await;
    assert_eq!(own[0]["id"], json!(ask), "{own}");
    assert_eq!(own[0]["type"], "permission");
    assert_eq!((&own[0]["action"], &own[0]["save"]), (&json!("shell"), &json!(["git push *"])));
    assert_eq!(get(&format!("/platform/session/{session}/ask")).await, own);
    let stock = get("/permission").await;
    assert_eq!(stock[0]["permission"], "bash", "under the name that clients know: {stock}");
    assert_eq!(stock[0]["tool"]["messageID"], json!(turn.message));
    let second = get(&format!("/api/session/{session}/permission/{ask}")).await;
    assert_eq!(second["data"]["resources"], json!(["git push"]), "{second}");
    assert_eq!(get("/question").await, json!([]));
    let message = get(&format!("/session/{session}/message/{}", turn.message)).await;
    let part =
        message["parts"].as_array().and_then(|parts| parts.iter().find(|p| p["type"] == "tool"));
    assert_eq!(part.context("a tool")?["state"]["status"], "running");
    assert_eq!(get("/session/status").await[&session]["type"], "busy");

    let reply = format!("/permission/{ask}/reply");
    assert_eq!(post(&world, &gateway, &reply, json!({ "reply": "once" })).await.0, StatusCode::OK);
    let own = format!("/platform/ask/{ask}");
    let again = post(&world, &gateway, &own, json!({ "reply": "once" }));
    assert_eq!(again.await.0, StatusCode::NO_CONTENT, "the same answer is no error");
    let (status, body) = post(&world, &gateway, &reply, json!({ "reply": "reject" })).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    let told = body["data"]["message"].as_str().unwrap_or_default();
    ensure!(told.contains("has answered this already"), "{body}");
    assert_eq!(get("/permission").await, json!([]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn always_lets_covered_calls_run_and_is_taken_back() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, first, _) = asking(&world, &gateway, "git push origin").await?;
    let (_, _, _) = asking(&world, &gateway, "git push").await?;
    let path = format!("/platform/ask/{first}");
    let (status, body) = post(&world, &gateway, &path, json!({ "reply": "always" })).await;
    ensure!(status == StatusCode::NO_CONTENT, "{status} {body}");
    let left = ok(&gateway, "GET", "/platform/ask", &world.key, None).await;
    assert_eq!(left, json!([]), "the other one is covered");
    let saved = ok(&gateway, "GET", "/api/permission/saved", &world.key, None).await;
    assert_eq!(saved["data"][0]["resource"], "git push *");
    let id = saved["data"][0]["id"].as_str().context("an id")?;
    let path = format!("/api/permission/saved/{id}");
    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        assert_eq!(call(&gateway, "DELETE", &path, &world.key, None).await.0, expected);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_another_kind_is_refused_with_what_to_do() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (session, ask, _) = asking(&world, &gateway, "git push").await?;
    let (other, _, _) = asking(&world, &gateway, "git push").await?;
    let path = format!("/platform/ask/{ask}");
    for (body, told) in [
        (json!({}), "`reply` is `once`, `always` or `reject`"),
        (json!({ "answers": [["a"]] }), "`reply` is `once`, `always` or `reject`"),
        (json!({ "reply": "once", "message": "x" }), "`message` goes with"),
        (json!({ "reply": "reject", "message": "x".repeat(9_000) }), "at most 8192 bytes"),
        (json!({ "reply": "maybe" }), "unknown variant `maybe`"),
    ] {
        let (status, answer) = post(&world, &gateway, &path, body.clone()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body} {answer}");
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        ensure!(message.contains(told), "{body}: {answer}");
    }
    // The session in a path is that of the ask.
    let wrong = format!("/session/{other}/permissions/{ask}");
    let (status, _) = post(&world, &gateway, &wrong, json!({ "response": "once" })).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let right = format!("/session/{session}/permissions/{ask}");
    let (status, body) = post(&world, &gateway, &right, json!({ "response": "reject" })).await;
    assert_eq!((status, body), (StatusCode::OK, json!(true)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_withdraws_what_was_asked() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (session, ask, _) = asking(&world, &gateway, "git push").await?;
    let abort = format!("/session/{session}/abort");
    let (status, body) = call(&gateway, "POST", &abort, &world.key, None).await;
    assert_eq!((status, body), (StatusCode::OK, json!(true)));
    let path = format!("/platform/ask/{ask}");
    let (status, body) = post(&world, &gateway, &path, json!({ "reply": "once" })).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    let message = body["error"]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("nobody waits for this answer"), "{body}");
    Ok(())
}
