//! Sessions that move to another Location, or continue after an interrupt.

use std::time::Duration;

use anyhow::Result;
use domain::{Control, ControlDelivered, SessionEvent, SessionMoved};
use history::{History, PendingControl};
use http::StatusCode;
use serde_json::{Value, json};

use crate::drain::{asked, at, begin, deliver};
use crate::inbox::beside;
use crate::native::session;
use crate::world::{SseReader, World, call, ok, request, send};

/// Returns the events that a worker writes for a Move.
pub(crate) fn moves(
    from: domain::LocationId,
) -> impl FnOnce(&PendingControl, &History) -> Vec<SessionEvent> {
    move |control, _| {
        let Control::Move { project, location, directory, carry } = control.control.clone() else {
            panic!("{control:?}")
        };
        vec![
            ControlDelivered { message: control.message.clone(), error: None }.into(),
            SessionMoved { from, to: location, project, directory, carry, tree: None }.into(),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_waits_at_its_place_and_takes_the_session_to_its_directory() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let elsewhere = tempfile::tempdir()?;
    let elsewhere = elsewhere.path().canonicalize()?;
    let mut here = SseReader::new(
        send(
            &gateway,
            request("GET", &format!("/event?directory={}", world.path()), &world.key, None),
        )
        .await,
    );
    let there = format!("/event?directory={}", elsewhere.display());
    let mut there = SseReader::new(send(&gateway, request("GET", &there, &world.key, None)).await);
    let body = || Some(json!({ "id": "msg_m", "directory": elsewhere, "delivery": "queue" }));
    let path = format!("{own}/move");
    let first = ok(&gateway, "POST", &path, &world.key, body()).await;
    assert_eq!((&first["id"], &first["first"]), (&json!("msg_m"), &json!(true)));
    let again = ok(&gateway, "POST", &path, &world.key, body()).await;
    assert_eq!((&again["seq"], &again["first"]), (&first["seq"], &json!(false)));
    let inbox = ok(&gateway, "GET", &format!("{own}/inbox"), &world.key, None).await;
    assert_eq!((&inbox[0]["kind"], &inbox[0]["delivery"]), (&json!("move"), &json!("queue")));
    let from = at(&world, &session).await?;
    deliver(&world, &from, moves(from.location.clone())).await?;
    let moved = ok(&gateway, "GET", &own, &world.key, None).await;
    assert_eq!(moved["directory"], json!(elsewhere));
    assert_ne!(moved["location"], json!(from.location));
    // Listeners at both directories get the move; later events only go to the new directory.
    let is_told =
        |sse: &crate::world::Sse| sse.data["properties"]["info"]["directory"] == json!(elsewhere);
    here.until(is_told).await;
    there.until(is_told).await;
    let prompt = Some(json!({ "text": "hello" }));
    ok(&gateway, "POST", &format!("{own}/message"), &world.key, prompt).await;
    begin(&world, &at(&world, &session).await?).await?.finish(&world, "hi", None).await?;
    there.until(|sse| sse.data["type"] == "session.idle").await;
    // The session is no longer below its old project.
    let listed = ok(&gateway, "GET", "/session", &world.key, None).await;
    assert_eq!(listed[0]["projectID"], moved["projectID"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_session_moves_to_is_said_in_one_way() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let path = format!("{own}/move");
    let here = at(&world, &session).await?.location;
    for body in [
        json!({}),
        json!({ "directory": "/workspace/a", "location": here }),
        json!({ "directory": "/workspace/a", "carry": true }),
        json!({ "directory": "../a" }),
    ] {
        let (status, answer) = call(&gateway, "POST", &path, &world.key, Some(body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    }
    let nowhere = Some(json!({ "location": "loc_none" }));
    assert_eq!(call(&gateway, "POST", &path, &world.key, nowhere).await.0, StatusCode::NOT_FOUND);
    let carry = || Some(json!({ "id": "msg_m", "carry": true }));
    let first = ok(&gateway, "POST", &path, &world.key, carry()).await;
    assert_eq!(first["first"], true);
    assert_eq!(ok(&gateway, "POST", &path, &world.key, carry()).await["first"], false);
    let from = at(&world, &session).await?;
    deliver(&world, &from, moves(from.location.clone())).await?;
    assert_eq!(ok(&gateway, "GET", &own, &world.key, None).await["directory"], "/workspace/msg_m");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_client_moves_a_session_and_waits_for_it() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let path = "/experimental/control-plane/move-session";
    let body = json!({ "sessionID": session, "destination": { "directory": "/workspace/b" } });
    let mut carries = body.clone();
    carries["moveChanges"] = json!(true);
    let (status, _) = call(&gateway, "POST", path, &world.key, Some(carries)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = call(&gateway, "POST", path, &world.stranger, Some(body.clone())).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (router, key) = (gateway.clone(), world.key.clone());
    let held = beside(async move { call(&router, "POST", path, &key, Some(body)).await });
    let from = at(&world, &session).await?;
    asked(&world, &from).await?;
    assert!(!held.is_finished());
    deliver(&world, &from, moves(from.location.clone())).await?;
    let (status, answer) = tokio::time::timeout(Duration::from_secs(60), held).await??;
    assert_eq!((status, answer), (StatusCode::NO_CONTENT, Value::Null));
    let moved = ok(&gateway, "GET", &format!("/session/{session}"), &world.key, None).await;
    assert_eq!(moved["directory"], "/workspace/b");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_steers_goes_on_after_an_interrupt_that_says_so() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let own = format!("/platform/session/{session}");
    let resume = || Some(json!({ "resume": true }));
    let abort = format!("{own}/abort");
    let nothing = ok(&gateway, "POST", &abort, &world.key, resume()).await;
    assert_eq!(nothing, json!({ "interrupted": false, "resumed": false }));
    for (delivery, resumed) in [("queue", false), ("steer", true)] {
        let body = Some(json!({ "text": delivery, "delivery": delivery }));
        ok(&gateway, "POST", &format!("{own}/message"), &world.key, body).await;
        let answer = ok(&gateway, "POST", &abort, &world.key, resume()).await;
        assert_eq!(answer, json!({ "interrupted": true, "resumed": resumed }), "{delivery}");
        let busy = ok(&gateway, "GET", &own, &world.key, None).await["busy"].clone();
        assert_eq!(busy, resumed, "{delivery}");
    }
    let plain = ok(&gateway, "POST", &abort, &world.key, None).await;
    assert_eq!(plain, json!({ "interrupted": true }));
    Ok(())
}
