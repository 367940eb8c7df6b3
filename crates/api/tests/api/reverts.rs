//! Sessions that go back to before a message, and forward again.

use std::time::Duration;

use anyhow::Result;
use api::{ApiParts, ApiSettings, ApiState, router};
use axum::Router;
use domain::{
    ControlDelivered, FileChange, FileStatus, RevertCleared, RevertPaths, RevertStaged,
    SessionError, SessionEvent,
};
use history::{History, PendingControl};
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{asked, at, begin, deliver};
use crate::inbox::beside;
use crate::native::session;
use crate::world::{SseReader, World, call, ok, request, send};

/// Makes a session of two exchanges.
async fn two_exchanges(world: &World, gateway: &Router) -> Result<String> {
    let (_, session) = session(world, gateway).await;
    let post = format!("/platform/session/{session}/message");
    for id in ["msg_one", "msg_two"] {
        let body = Some(json!({ "id": id, "text": id }));
        ok(gateway, "POST", &post, &world.key, body).await;
        begin(world, &at(world, &session).await?).await?.finish(world, "done", None).await?;
    }
    Ok(session)
}

/// Returns the events that a worker writes for a Revert of one file.
pub(crate) fn stages(control: &PendingControl, history: &History) -> Vec<SessionEvent> {
    let domain::Control::Revert { message, files } = &control.control else {
        panic!("{control:?}")
    };
    let to = history.savepoint(message).expect("it is there");
    let change = FileChange {
        path: "a.txt".into(),
        status: FileStatus::Modified,
        additions: 2,
        deletions: 1,
        patch: Some("--- a/a.txt\n+++ b/a.txt\n".into()),
    };
    vec![
        ControlDelivered { message: control.message.clone(), error: None }.into(),
        RevertStaged {
            message: message.clone(),
            from: to.seq,
            original: None,
            paths: RevertPaths::default(),
            files: files.then_some(change).into_iter().collect(),
            more: 0,
            left: Vec::new(),
            back: to.back(),
        }
        .into(),
    ]
}

fn clears(control: &PendingControl, _: &History) -> Vec<SessionEvent> {
    assert_eq!(control.control, domain::Control::Unrevert);
    let delivered = ControlDelivered { message: control.message.clone(), error: None };
    vec![RevertCleared::default().into(), delivered.into()]
}

fn refuses(code: &'static str) -> impl FnOnce(&PendingControl, &History) -> Vec<SessionEvent> {
    move |control, _| {
        let error = SessionError { code: code.to_owned().into(), message: "it cannot".into() };
        vec![ControlDelivered { message: control.message.clone(), error: Some(error) }.into()]
    }
}

/// Posts a request, handles its control like a worker, and returns the answer.
pub(crate) async fn held(
    world: &World,
    gateway: &Router,
    path: &str,
    body: Value,
    session: &str,
    make: impl FnOnce(&PendingControl, &History) -> Vec<SessionEvent>,
) -> Result<(StatusCode, Value)> {
    let at = at(world, session).await?;
    let (router, key, path) = (gateway.clone(), world.key.clone(), path.to_owned());
    let held = beside(async move { call(&router, "POST", &path, &key, Some(body)).await });
    asked(world, &at).await?;
    deliver(world, &at, make).await?;
    Ok(tokio::time::timeout(Duration::from_secs(60), held).await??)
}

fn ids(messages: &Value) -> Vec<&str> {
    messages.as_array().expect("a list").iter().filter_map(|m| m["info"]["id"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_is_held_until_it_is_staged_and_can_be_undone() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let own = format!("/platform/session/{session}");
    let revert = format!("{own}/revert");
    let body = json!({ "id": "msg_r", "messageID": "msg_two" });
    let (status, staged) = held(&world, &gateway, &revert, body.clone(), &session, stages).await?;
    assert_eq!(status, StatusCode::OK, "{staged}");
    let expected = json!({
        "messageID": "msg_two", "diff": "--- a/a.txt\n+++ b/a.txt\n",
        "files": [{ "file": "a.txt", "status": "modified", "additions": 2, "deletions": 1,
            "patch": "--- a/a.txt\n+++ b/a.txt\n" }],
    });
    assert_eq!(staged["revert"], expected);
    // The same request again finds it done.
    assert_eq!(ok(&gateway, "POST", &revert, &world.key, Some(body)).await, staged);
    let other = json!({ "id": "msg_r", "messageID": "msg_one" });
    let (status, _) = call(&gateway, "POST", &revert, &world.key, Some(other)).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let stock = ok(&gateway, "GET", &format!("/session/{session}"), &world.key, None).await;
    assert_eq!(stock["revert"], json!({ "messageID": "msg_two", "diff": expected["diff"] }));

    let unrevert = format!("/session/{session}/unrevert");
    let (status, back) = held(&world, &gateway, &unrevert, json!({}), &session, clears).await?;
    assert_eq!((status, &back["revert"]), (StatusCode::OK, &Value::Null), "{back}");
    let messages = ok(&gateway, "GET", &format!("{own}/message"), &world.key, None).await;
    assert_eq!(ids(&messages).len(), 4);
    Ok(())
}

// Check heldout-3: a released client's revert of an answer left the question.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_revert_of_an_answer_takes_its_question() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let listed = format!("/platform/session/{session}/message");
    let messages = ok(&gateway, "GET", &listed, &world.key, None).await;
    let answer = *ids(&messages).last().expect("an answer");
    let body = json!({ "messageID": answer });
    for (route, from) in [
        (format!("/session/{session}/revert"), "msg_two"),
        (format!("/platform/session/{session}/revert"), answer),
    ] {
        let staged = held(&world, &gateway, &route, body.clone(), &session, stages).await?;
        assert_eq!(staged.0, StatusCode::OK, "{staged:?}");
        assert_eq!(staged.1["revert"]["messageID"], from, "{route}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_that_is_made_final_takes_its_messages_with_it_and_clients_are_told() -> Result<()>
{
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let own = format!("/platform/session/{session}");
    let messages = ok(&gateway, "GET", &format!("{own}/message"), &world.key, None).await;
    let gone = ids(&messages)[2..].to_vec();
    let mut events =
        SseReader::new(send(&gateway, request("GET", "/event", &world.key, None)).await);
    events.until(|sse| sse.data["type"] == "server.connected").await;
    let commit = format!("{own}/revert/commit");
    let nothing = ok(&gateway, "POST", &commit, &world.key, None).await;
    assert_eq!(nothing["revert"], Value::Null);
    let (revert, body) = (format!("/session/{session}/revert"), json!({ "messageID": "msg_two" }));
    held(&world, &gateway, &revert, body, &session, stages).await?;
    let told = events.until(|sse| sse.data["type"] == "session.diff").await;
    let updated = told.iter().rfind(|sse| sse.data["type"] == "session.updated");
    let info = updated.map(|sse| &sse.data["properties"]["info"]["revert"]["messageID"]);
    assert_eq!(info, Some(&json!("msg_two")));

    let left = ok(&gateway, "POST", &commit, &world.key, None).await;
    assert_eq!(left["revert"], Value::Null);
    let left = ok(&gateway, "GET", &format!("{own}/message"), &world.key, None).await;
    assert_eq!(ids(&left), ids(&messages)[..2]);
    let told = events.until(|sse| sse.data["type"] == "session.diff").await;
    let removed: Vec<&Value> = told
        .iter()
        .filter(|sse| sse.data["type"] == "message.removed")
        .map(|sse| &sse.data["properties"]["messageID"])
        .collect();
    assert_eq!(removed, gone);
    let updated = told.iter().rfind(|sse| sse.data["type"] == "session.updated");
    let info = updated.map(|sse| &sse.data["properties"]["info"]["revert"]);
    assert_eq!(info, Some(&Value::Null));
    // Finding scenarios F14: the same prompt under its old id was answered as if it would run.
    let again = Some(json!({ "id": "msg_two", "text": "msg_two" }));
    let path = format!("{own}/message");
    let (status, told) = call(&gateway, "POST", &path, &world.key, again).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert!(told.to_string().contains("was reverted"), "{told}");
    let check = format!("{own}/rebuild?check=true");
    assert_eq!(ok(&gateway, "POST", &check, &world.key, None).await["exact"], true);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_revert_cannot_do_is_told_with_its_code() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = two_exchanges(&world, &gateway).await?;
    let own = format!("/platform/session/{session}");
    let revert = format!("{own}/revert");
    for body in [json!({}), json!({ "messageID": "msg_one", "partID": "prt_a" })] {
        let (status, answer) = call(&gateway, "POST", &revert, &world.key, Some(body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    let body = || json!({ "messageID": "msg_one" });
    let (status, answer) =
        held(&world, &gateway, &revert, body(), &session, refuses("session.revert_across_move"))
            .await?;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(
        answer["error"],
        json!({
            "code": "CONFLICT", "reason": "session.revert_across_move", "message": "it cannot",
        })
    );
    let (status, _) =
        held(&world, &gateway, &revert, body(), &session, refuses("session.message_unknown"))
            .await?;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let prompt = Some(json!({ "text": "more" }));
    ok(&gateway, "POST", &format!("{own}/message"), &world.key, prompt).await;
    for path in [&revert, &format!("{own}/unrevert"), &format!("{own}/revert/commit")] {
        let asked = (*path == revert).then(body);
        let (status, answer) = call(&gateway, "POST", path, &world.key, asked).await;
        assert_eq!(
            (status, &answer["error"]["reason"]),
            (StatusCode::CONFLICT, &json!("session.busy")),
            "{path}: {answer}"
        );
    }
    let stock = format!("/session/{session}/revert");
    let (status, answer) = call(&gateway, "POST", &stock, &world.key, Some(body())).await;
    assert_eq!(
        (status, &answer["_tag"], &answer["sessionID"]),
        (StatusCode::CONFLICT, &json!("SessionBusyError"), &json!(session))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_wait_for_their_reverts_no_longer_than_set_and_without_a_connection_each() -> Result<()>
{
    const MANY: usize = 64;
    let world = World::new().await?;
    let hold = Duration::from_secs(8);
    let settings = ApiSettings { hold, ..World::settings() };
    let gateway = router(ApiState::start(ApiParts { settings, ..world.parts() }));
    let first = two_exchanges(&world, &gateway).await?;
    let mut waits = Vec::new();
    for n in 0..MANY {
        let (_, session) = match n {
            0 => (String::new(), first.clone()),
            _ => session(&world, &gateway).await,
        };
        let (router, key) = (gateway.clone(), world.key.clone());
        waits.push(beside(async move {
            let body = json!({ "id": format!("msg_r{n}"), "messageID": "msg_two" });
            let path = format!("/platform/session/{session}/revert");
            let request = request("POST", &path, &key, Some(&body));
            let response = send(&router, request).await;
            (response.status(), response.headers().get("retry-after").cloned())
        }));
    }
    // More requests than connections: others are served before the first of them gives up.
    let one = at(&world, &first).await?;
    asked(&world, &one).await?;
    let served = tokio::time::timeout(hold * 3 / 4, async {
        ok(&gateway, "GET", &format!("/platform/session/{first}"), &world.key, None).await
    });
    assert_eq!(served.await?["busy"], true);
    for wait in waits {
        let (status, after) = tokio::time::timeout(hold * 8, wait).await??;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(after.as_ref().map(|value| value.as_bytes()), Some(b"1".as_slice()));
    }
    // The control still waits: the same request waits on, and gets its answer.
    let path = format!("/platform/session/{first}/revert");
    let body = json!({ "id": "msg_r0", "messageID": "msg_two" });
    let (status, staged) = held(&world, &gateway, &path, body, &first, stages).await?;
    assert_eq!((status, &staged["revert"]["messageID"]), (StatusCode::OK, &json!("msg_two")));
    Ok(())
}
