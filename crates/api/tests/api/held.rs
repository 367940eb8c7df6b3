//! Requests that are held until their prompt is answered, beside work that ends in every way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::{Clock, DrainOutcome, SessionError, SessionRef, SystemClock};
use http::StatusCode;
use serde_json::{Value, json};
use store::DrainEnd;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::drain::{at, begin};
use crate::inbox::beside;
use crate::native::session;
use crate::world::{World, call, ok};

const PATIENCE: Duration = Duration::from_secs(60);

/// One way in which the work ends that a prompt meets.
#[derive(Debug, Clone, Copy)]
struct End {
    outcome: DrainOutcome,
    how: DrainEnd,
    /// Whether somebody interrupts the session, and whether that is before the prompt.
    interrupt: Option<bool>,
    /// Whether the prompt is parked.
    parks: bool,
}

const fn closed(outcome: DrainOutcome) -> End {
    End { outcome, how: DrainEnd::Close, interrupt: None, parks: false }
}

/// Every way in which a drain ends.
const ENDS: [End; 6] = [
    closed(DrainOutcome::Completed),
    closed(DrainOutcome::Failed),
    closed(DrainOutcome::Interrupted),
    End { how: DrainEnd::Park, parks: true, ..closed(DrainOutcome::Failed) },
    End { interrupt: Some(true), ..closed(DrainOutcome::Interrupted) },
    End { interrupt: Some(false), parks: true, ..closed(DrainOutcome::Interrupted) },
];

fn prompt(id: &str) -> Value {
    json!({ "messageID": id, "parts": [{ "type": "text", "text": "hello" }] })
}

/// Sends a prompt whose request is held.
fn hold(
    world: &World,
    gateway: &axum::Router,
    path: &str,
    id: &str,
) -> JoinHandle<(StatusCode, Value)> {
    let (router, key, path) = (gateway.clone(), world.key.clone(), path.to_owned());
    let body = Some(prompt(id));
    beside(async move { call(&router, "POST", &path, &key, body).await })
}

/// Waits until the prompt is in the inbox.
async fn admitted(world: &World, at: &SessionRef, id: &str) -> Result<()> {
    let look = async {
        loop {
            let inbox = world.store.inbox(at.org, at.session.clone(), domain::Seq(0), 10).await?;
            if inbox.items.iter().any(|row| row.id.as_str() == id) {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, look).await?
}

// Finding core-3 M7: a client was told that its prompt failed, and the prompt ran.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_request_fails_only_if_its_prompt_does_not_run() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let key = world.key.as_str();
    for (number, end) in (0..).zip(ENDS) {
        let (_, id) = session(&world, &gateway).await;
        let path = format!("/session/{id}/message");
        let [before, during, after] = ["a", "b", "c"].map(|place| format!("msg_{number}{place}"));
        let at = at(&world, &id).await?;
        let error = (end.outcome == DrainOutcome::Failed).then(|| SessionError {
            code: "provider.quota".to_owned().into(),
            message: "no".into(),
        });
        let interrupt = async || {
            let now = SystemClock::new().now_ms();
            world.store.interrupt(at.org, at.session.clone(), None, now).await
        };

        let first = hold(&world, &gateway, &path, &before);
        admitted(&world, &at, &before).await?;
        let turn = begin(&world, &at).await?;
        if end.interrupt == Some(true) {
            interrupt().await?;
        }
        let second = hold(&world, &gateway, &path, &during);
        admitted(&world, &at, &during).await?;
        if end.interrupt == Some(false) {
            interrupt().await?;
        }
        turn.stop(&world, end.outcome, error, end.how).await?;
        let (status, body) = timeout(PATIENCE, first).await??;
        ensure!(status == StatusCode::OK, "{end:?}: it had a turn: {body}");
        if end.parks {
            let (status, body) = timeout(PATIENCE, second).await??;
            ensure!(status == StatusCode::CONFLICT, "{end:?}: it is parked: {body}");
            let third = hold(&world, &gateway, &path, &after);
            admitted(&world, &at, &after).await?;
            begin(&world, &at).await?.finish(&world, "answered", None).await?;
            answered(third, end).await?;
        } else {
            begin(&world, &at).await?.finish(&world, "answered", None).await?;
            answered(second, end).await?;
            let third = hold(&world, &gateway, &path, &after);
            admitted(&world, &at, &after).await?;
            begin(&world, &at).await?.finish(&world, "answered", None).await?;
            answered(third, end).await?;
        }
        ok(&gateway, "DELETE", &format!("/session/{id}"), key, None).await;
    }
    Ok(())
}

async fn answered(held: JoinHandle<(StatusCode, Value)>, end: End) -> Result<()> {
    let (status, body) = timeout(PATIENCE, held).await??;
    ensure!(status == StatusCode::OK, "{end:?}: it ran: {body}");
    let text =
        body["parts"].as_array().context("parts")?.iter().find_map(|part| part["text"].as_str());
    ensure!(text == Some("answered"), "{end:?}: {body}");
    Ok(())
}
