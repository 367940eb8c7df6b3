//! Waiting inputs, and sessions that wait for them.

use std::time::Duration;

use anyhow::Result;
use domain::{ErrorCode, SessionError, SideOutcome};
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{at, begin, compact};
use crate::native::session;
use crate::world::{World, call, json as json_of, ok, request, send};

/// Returns the ids of the waiting inputs, in order.
fn ids(inbox: &Value) -> Vec<&str> {
    inbox
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| item["id"].as_str().expect("an id"))
        .collect()
}

/// Sends a request that is held while the test continues.
#[expect(clippy::disallowed_methods, reason = "a test waits for what it started")]
pub(crate) fn beside<T: Send + 'static>(
    request: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(request)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_listed_changed_and_cancelled() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let below = format!("/project/{project}/session/{session}");
    let own = format!("/platform/session/{session}");
    for (id, delivery) in [("msg_a", "steer"), ("msg_b", "queue")] {
        let body = json!({ "id": id, "text": id, "delivery": delivery, "resume": false });
        ok(&gateway, "POST", &format!("{below}/message"), &world.key, Some(body)).await;
    }
    let inbox = ok(&gateway, "GET", &format!("{below}/inbox"), &world.key, None).await;
    assert_eq!(inbox, ok(&gateway, "GET", &format!("{own}/inbox"), &world.key, None).await);
    assert_eq!(ids(&inbox), ["msg_a", "msg_b"]);
    let mut second = inbox[1].clone();
    assert!(second["time"]["created"].take().is_i64());
    let expected = json!({
        "id": "msg_b", "kind": "prompt", "delivery": "queue", "seq": 3, "time": { "created": null },
        "texts": ["msg_b"],
    });
    assert_eq!(second, expected);
    assert_eq!(ok(&gateway, "GET", &own, &world.key, None).await["busy"], false);

    let b = format!("{below}/inbox/msg_b");
    let steer = || Some(json!({ "delivery": "steer" }));
    let changed = ok(&gateway, "PATCH", &b, &world.key, steer()).await;
    assert_eq!(changed, json!({ "id": "msg_b", "delivery": "steer" }));
    assert_eq!(ok(&gateway, "GET", &own, &world.key, None).await["busy"], true, "it was woken");
    for (target, body, expected) in [
        (&b, steer(), StatusCode::CONFLICT),
        (&b, Some(json!({})), StatusCode::BAD_REQUEST),
        (&b, Some(json!({ "delivery": "soon" })), StatusCode::BAD_REQUEST),
        (&format!("{below}/inbox/msg_none"), steer(), StatusCode::NOT_FOUND),
    ] {
        let (status, answer) = call(&gateway, "PATCH", target, &world.key, body).await;
        assert_eq!(status, expected, "{target}: {answer}");
    }
    for _ in 0..2 {
        let (status, _) = call(&gateway, "DELETE", &b, &world.key, None).await;
        assert_eq!(status, StatusCode::NO_CONTENT, "gone is as good as cancelled");
    }
    let inbox = ok(&gateway, "GET", &format!("{own}/inbox"), &world.key, None).await;
    assert_eq!(ids(&inbox), ["msg_a"]);
    assert_eq!(ok(&gateway, "GET", &own, &world.key, None).await["busy"], false);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synthetic_input_is_shown_as_no_users() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let path = format!("/project/{project}/session/{session}");
    let body =
        json!({ "id": "msg_s", "text": "a.rs has changed", "description": "A file changed" });
    let post = format!("{path}/synthetic");
    let first = ok(&gateway, "POST", &post, &world.key, Some(body.clone())).await;
    assert_eq!(first["parts"][0]["synthetic"], true, "{first}");
    assert_eq!(first, ok(&gateway, "POST", &post, &world.key, Some(body)).await);
    // A user's prompt with the same id and text is a different prompt.
    let body = Some(json!({ "id": "msg_s", "text": "a.rs has changed" }));
    let (status, _) = call(&gateway, "POST", &format!("{path}/message"), &world.key, body).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let inbox = ok(&gateway, "GET", &format!("{path}/inbox"), &world.key, None).await;
    assert_eq!(
        (&inbox[0]["kind"], &inbox[0]["description"]),
        (&json!("synthetic"), &json!("A file changed"))
    );
    let long = Some(json!({ "text": "x", "description": "d".repeat(201) }));
    assert_eq!(call(&gateway, "POST", &post, &world.key, long).await.0, StatusCode::BAD_REQUEST);
    begin(&world, &at(&world, &session).await?).await?.finish(&world, "seen", None).await?;
    for list in [format!("{path}/message"), format!("/session/{session}/message")] {
        let messages = ok(&gateway, "GET", &list, &world.key, None).await;
        assert_eq!(messages[0]["parts"][0]["synthetic"], true, "{messages}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_waits_once_at_its_place_and_wakes_the_worker() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let path = format!("/project/{project}/session/{session}/compact");
    let body = || Some(json!({ "messageID": "msg_c", "delivery": "queue" }));
    let first = ok(&gateway, "POST", &path, &world.key, body()).await;
    assert_eq!(first, json!({ "id": "msg_c", "seq": 2, "delivery": "queue", "first": true }));
    let again = json!({ "id": "msg_c", "seq": 2, "delivery": "queue", "first": false });
    assert_eq!(ok(&gateway, "POST", &path, &world.key, body()).await, again);
    assert_eq!(ok(&gateway, "POST", &path, &world.key, None).await, again, "one waits already");
    let other = Some(json!({ "messageID": "msg_c" }));
    assert_eq!(call(&gateway, "POST", &path, &world.key, other).await.0, StatusCode::CONFLICT);
    let inbox = format!("/platform/session/{session}/inbox");
    let inbox = ok(&gateway, "GET", &inbox, &world.key, None).await;
    assert_eq!((ids(&inbox), &inbox[0]["kind"]), (vec!["msg_c"], &json!("compaction")));
    let asked = async || loop {
        if !world.placement.asked.lock().expect("no panic under it").is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    };
    tokio::time::timeout(Duration::from_secs(60), asked()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_clients_wait_for_a_compaction_and_see_it_as_a_part() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let at = at(&world, &session).await?;
    let refused =
        SessionError { code: ErrorCode::SessionNothingToCompact.into(), message: "empty".into() };
    for (outcome, error) in [(SideOutcome::Failed, Some(refused)), (SideOutcome::Completed, None)] {
        let (router, key, path) =
            (gateway.clone(), world.key.clone(), format!("/session/{session}/summarize"));
        let held = beside(async move {
            let body = Some(json!({ "providerID": "simulated", "modelID": "echo" }));
            call(&router, "POST", &path, &key, body).await
        });
        let inbox = format!("/platform/session/{session}/inbox");
        while ok(&gateway, "GET", &inbox, &world.key, None).await == json!([]) {
            tokio::task::yield_now().await;
        }
        assert!(!held.is_finished(), "it is held until the compaction ends");
        compact(&world, &at, outcome, error).await?;
        let (status, body) = tokio::time::timeout(Duration::from_secs(60), held).await??;
        if outcome == SideOutcome::Completed {
            assert_eq!((status, body), (StatusCode::OK, json!(true)));
        } else {
            assert_eq!((status, &body["data"]["message"]), (StatusCode::CONFLICT, &json!("empty")));
        }
    }
    let stock = format!("/session/{session}/message");
    let messages = ok(&gateway, "GET", &stock, &world.key, None).await;
    assert_eq!(messages.as_array().map(Vec::len), Some(2), "the failed one left nothing");
    assert_eq!(messages[0]["info"]["role"], "user");
    let part = &messages[0]["parts"][0];
    assert_eq!(
        (&part["type"], &part["auto"], &part["text"]),
        (&json!("compaction"), &json!(false), &Value::Null)
    );
    let (info, summary) = (&messages[1]["info"], &messages[1]["parts"]);
    assert_eq!((&info["role"], &info["summary"]), (&json!("assistant"), &json!(true)));
    assert_eq!(info["parentID"], messages[0]["info"]["id"]);
    assert_eq!(summary[0]["text"], "They talked.", "released clients show the summary");
    let native = format!("/platform/session/{session}/message");
    let messages = ok(&gateway, "GET", &native, &world.key, None).await;
    assert_eq!(
        (
            &messages[0]["info"]["role"],
            &messages[0]["info"]["reason"],
            &messages[0]["parts"][0]["text"]
        ),
        (&json!("checkpoint"), &json!("manual"), &json!("They talked."))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_is_waited_for_until_it_is_idle_and_no_longer_than_asked() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let path = format!("/project/{project}/session/{session}");
    let wait = format!("{path}/wait");
    let idle = ok(&gateway, "POST", &wait, &world.key, None).await;
    assert_eq!(idle, json!({ "busy": false, "outcome": null, "seq": 1 }));
    let stored = Some(json!({ "id": "msg_a", "text": "hello", "resume": false }));
    ok(&gateway, "POST", &format!("{path}/message"), &world.key, stored).await;
    assert_eq!(ok(&gateway, "POST", &wait, &world.key, None).await["busy"], false, "it sleeps");

    let resume = format!("{path}/resume");
    let woken = ok(&gateway, "POST", &resume, &world.key, None).await;
    assert_eq!(woken, json!({ "resumed": true }));
    let short = Some(json!({ "seconds": 1 }));
    assert_eq!(ok(&gateway, "POST", &wait, &world.key, short).await["busy"], true);
    let turn = begin(&world, &at(&world, &session).await?).await?;
    assert_eq!(ok(&gateway, "POST", &resume, &world.key, None).await["resumed"], false, "it runs");
    let waits: Vec<_> = (0..3)
        .map(|_| {
            let (router, key, wait) = (gateway.clone(), world.key.clone(), wait.clone());
            beside(async move { ok(&router, "POST", &wait, &key, None).await })
        })
        .collect();
    turn.finish(&world, "done", None).await?;
    for wait in waits {
        let ended = tokio::time::timeout(Duration::from_secs(60), wait).await??;
        assert_eq!((&ended["busy"], &ended["outcome"]), (&json!(false), &json!("completed")));
    }
    Ok(())
}

/// Finding cluster 11: a deleted session and a stopping gateway got the same answer, 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_session_is_told_that_it_was_deleted() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    for patience in 1..40 {
        let (project, session) = session(&world, &gateway).await;
        let path = format!("/project/{project}/session/{session}");
        let prompt = Some(json!({ "id": format!("msg_{patience}"), "text": "hello" }));
        ok(&gateway, "POST", &format!("{path}/message"), &world.key, prompt).await;
        let (router, key, wait) = (gateway.clone(), world.key.clone(), format!("{path}/wait"));
        let waiting = beside(async move { call(&router, "POST", &wait, &key, None).await });
        // Nothing shows that the request already waits. If it does not wait yet, it finds no session, and the next
        // attempt gets more time.
        tokio::time::sleep(Duration::from_millis(25 * patience)).await;
        ok(&gateway, "DELETE", &path, &world.key, None).await;
        let (status, body) = tokio::time::timeout(Duration::from_secs(60), waiting).await??;
        assert_eq!(status, 404, "{body}");
        if body.to_string().contains("was deleted") {
            return Ok(());
        }
    }
    anyhow::bail!("nobody waited when the session was deleted")
}

/// A page of messages, events or inputs: how many, and where the next one begins.
async fn page(gateway: &axum::Router, path: &str, key: &str) -> (usize, Option<String>) {
    let response = send(gateway, request("GET", path, key, None)).await;
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    let next = response.headers().get("x-next-cursor").cloned();
    let next = next.map(|next| next.to_str().expect("text").to_owned());
    (json_of(response).await.as_array().expect("a list").len(), next)
}

// Finding security 11: pages were bounded by rows, and a short one meant the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_says_whether_there_is_more() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    for id in ["msg_a", "msg_b", "msg_c"] {
        let body = json!({ "id": id, "text": id, "resume": false });
        ok(&gateway, "POST", &format!("{own}/message"), &world.key, Some(body)).await;
    }
    let at = at(&world, &session).await?;
    let log = async |query: &str| page(&gateway, &format!("{own}/log{query}"), &world.key).await;
    assert_eq!(log("").await, (4, None));
    assert_eq!(log("?limit=3").await, (3, Some("3".to_owned())));
    assert_eq!(log("?limit=3&after=3").await, (1, None));
    let inbox =
        async |query: &str| page(&gateway, &format!("{own}/inbox{query}"), &world.key).await;
    assert_eq!(inbox("").await, (3, None));
    assert_eq!(inbox("?after=2").await, (2, None));
    ok(&gateway, "POST", &format!("{own}/resume"), &world.key, None).await;
    begin(&world, &at).await?.finish(&world, "done", None).await?;
    for below in [own.clone(), format!("/session/{session}")] {
        let path = format!("{below}/message");
        let messages =
            async |query: &str| page(&gateway, &format!("{path}{query}"), &world.key).await;
        let (all, next) = messages("").await;
        assert_eq!(next, None);
        let (one, next) = messages("?limit=1").await;
        assert_eq!(one, 1);
        let before = next.expect("there is more");
        assert_eq!(messages(&format!("?before={before}")).await, (all - 1, None));
    }
    Ok(())
}

// Finding scenarios F8: a prompt that was stored, and sent again to run, never ran; nor did one that was cancelled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_is_sent_again_runs_or_says_why_not() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let post = async |id: &str, resume: bool| {
        let body = Some(json!({ "id": id, "text": "hello", "resume": resume }));
        call(&gateway, "POST", &format!("{own}/message"), &world.key, body).await
    };
    let busy = async || ok(&gateway, "GET", &own, &world.key, None).await["busy"].clone();
    for resume in [false, false] {
        assert_eq!(post("msg_a", resume).await.1["admission"]["wake"], false);
    }
    assert_eq!(busy().await, false);
    assert_eq!(post("msg_a", true).await.1["admission"]["wake"], true);
    assert_eq!(busy().await, true);

    ok(&gateway, "DELETE", &format!("{own}/inbox/msg_a"), &world.key, None).await;
    let (status, told) = post("msg_a", true).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    assert!(
        told.to_string().contains("cancelled") && told.to_string().contains("messageID"),
        "{told}"
    );
    Ok(())
}

// Finding scenarios F8: the sender of a prompt that an interrupt has parked may only not know that it was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_prompt_that_is_sent_again_stays_parked() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let post = async || {
        let body = Some(json!({ "id": "msg_a", "text": "hello" }));
        ok(&gateway, "POST", &format!("{own}/message"), &world.key, body).await
    };
    let busy = async || ok(&gateway, "GET", &own, &world.key, None).await["busy"].clone();
    assert_eq!(post().await["admission"]["wake"], true);
    assert_eq!(busy().await, true);
    ok(&gateway, "POST", &format!("{own}/abort"), &world.key, None).await;
    assert_eq!(busy().await, false);
    post().await;
    assert_eq!(busy().await, false);
    Ok(())
}

// Finding scenarios F14: a new prompt under a reverted message's id was refused without a word on what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_was_used_says_to_take_another() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let post = async |text: &str| {
        let body = Some(json!({ "id": "msg_a", "text": text }));
        call(&gateway, "POST", &format!("{own}/message"), &world.key, body).await
    };
    post("one").await;
    let at = at(&world, &session).await?;
    begin(&world, &at).await?.finish(&world, "done", None).await?;
    let (status, told) = post("two").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(told.to_string().contains("not even after a cancel or a revert"), "{told}");
    assert_eq!(post("one").await.0, StatusCode::OK, "a retry");
    Ok(())
}

// Finding core-3 C2: an inbox took any number of prompts, and its worker died of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_inbox_is_a_429_that_says_what_to_do() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let native = format!("/platform/session/{session}/message");
    let text = "x".repeat(500_000);
    for _ in 0..33 {
        let body = json!({ "text": text, "resume": false });
        ok(&gateway, "POST", &native, &world.key, Some(body)).await;
    }
    let body = Some(json!({ "text": text, "resume": false }));
    let refused = send(&gateway, request("POST", &native, &world.key, body.as_ref())).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key("retry-after"));
    let error = json_of(refused).await["error"].take();
    assert_eq!(
        (&error["code"], &error["reason"]),
        (&json!("INBOX_FULL"), &json!("session.inbox_full"))
    );
    let message = error["message"].as_str().expect("a sentence");
    assert!(message.contains("resume the session, or cancel"), "{message}");
    let body = Some(json!({ "noReply": true, "parts": [{ "type": "text", "text": text }] }));
    let stock = format!("/session/{session}/prompt_async");
    let (status, _) = call(&gateway, "POST", &stock, &world.key, body).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    Ok(())
}
