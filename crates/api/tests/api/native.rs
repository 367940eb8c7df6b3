use std::sync::Arc;

use anyhow::Result;
use api::{ApiParts, ApiSettings, ApiState, router};
use http::StatusCode;
use placement_api::{
    Heartbeat, HeartbeatReply, PlaceRequest, Placed, Placement, PlacementError, SecretRefused,
};
use serde_json::{Value, json};

use crate::drain::{at, begin};
use crate::world::{World, call, ok};

/// Makes a session in the world's directory.
pub(crate) async fn session(world: &World, gateway: &axum::Router) -> (String, String) {
    let body = Some(json!({ "directory": world.path() }));
    let project = ok(gateway, "POST", "/project/init", &world.key, body.clone()).await;
    let project = project["id"].as_str().expect("an id").to_owned();
    let sessions = format!("/project/{project}/session");
    let session = ok(gateway, "POST", &sessions, &world.key, body).await;
    (project, session["id"].as_str().expect("an id").to_owned())
}

/// Replaces the parts of `value` that differ between runs.
#[expect(clippy::wildcard_enum_match_arm, reason = "JSON has no more kinds")]
fn plain(world: &World, value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| {
                let volatile = ["created", "updated", "completed", "start", "end", "time"];
                let value = match value {
                    Value::Number(_) if volatile.contains(&name.as_str()) => json!("<time>"),
                    Value::String(text) if text == &world.path() => json!("<directory>"),
                    Value::String(text) if text.len() == 64 => json!("<hash>"),
                    Value::String(text) if text.contains('_') && text.len() == 30 => {
                        json!(format!("<{}>", &text[..3]))
                    }
                    Value::String(text) if text.starts_with("New session - ") => {
                        json!("New session - <time>")
                    }
                    Value::String(text) if text.len() == 31 && text.starts_with("call_") => {
                        json!("<call>")
                    }
                    other => plain(world, other),
                };
                (name.clone(), value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| plain(world, item)).collect(),
        other => other.clone(),
    }
}

macro_rules! snapshot {
    ($world:expr, $name:literal, $value:expr) => {
        let shown = serde_json::to_string_pretty(&plain($world, &$value))?;
        insta::assert_snapshot!($name, shown);
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_probes_answer_and_readiness_follows_the_shutdown() -> Result<()> {
    let world = World::new().await?;
    let (gateway, state) = world.gateway_on(world.signals.clone());
    assert_eq!(ok(&gateway, "GET", "/healthz", "", None).await["healthy"], true);
    assert_eq!(ok(&gateway, "GET", "/readyz", "", None).await, json!({ "ready": true }));
    state.stop_being_ready();
    let (status, body) = call(&gateway, "GET", "/readyz", "", None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body["error"]["message"].as_str().expect("text").contains("shutting down"), "{body}");
    world.store.close().await;
    let (status, _) = call(&gateway, "GET", "/readyz", "", None).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    Ok(())
}

/// A placement that refuses the secret, or is away.
struct NoPlacement {
    refuses: bool,
}

#[async_trait::async_trait]
impl Placement for NoPlacement {
    async fn heartbeat(&self, _beat: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        Err(PlacementError::NoWorker)
    }

    async fn place(&self, _request: PlaceRequest) -> Result<Placed, PlacementError> {
        Err(PlacementError::Unreachable { reason: "nobody is there".into() })
    }

    async fn prove_secret(&self) -> Result<(), SecretRefused> {
        if self.refuses { Err(SecretRefused) } else { Ok(()) }
    }
}

// Finding ops B6: a gateway with a wrong secret was ready. One without placement can admit prompts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_is_ready_unless_its_secret_is_refused() -> Result<()> {
    let world = World::new().await?;
    for refuses in [true, false] {
        let placement = Arc::new(NoPlacement { refuses });
        let gateway = router(ApiState::start(ApiParts { placement, ..world.parts() }));
        let (status, body) = call(&gateway, "GET", "/readyz", "", None).await;
        let wanted = if refuses { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        assert_eq!(status, wanted, "{body}");
        let told = body["error"]["message"].as_str().unwrap_or_default();
        assert_eq!(told.contains("--cluster-secret"), refuses, "{body}");
        assert_eq!(ok(&gateway, "GET", "/healthz", "", None).await["healthy"], true);
    }
    Ok(())
}

// Finding ops B3: whether sessions may work in directories of its machine is the service's to say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_says_whether_it_uses_its_directories() -> Result<()> {
    let world = World::new().await?;
    for allowed in [true, false] {
        let settings = ApiSettings { allow_local_paths: allowed, ..World::settings() };
        let gateway = router(ApiState::start(ApiParts { settings, ..world.parts() }));
        let me = ok(&gateway, "GET", "/platform/me", &world.key, None).await;
        assert_eq!(me["local_paths"], allowed);
        let asked = Some(json!({ "directory": world.path() }));
        let (status, body) = call(&gateway, "POST", "/project/init", &world.key, asked).await;
        assert_eq!(status.is_success(), allowed, "{body}");
        let told = body["error"]["message"].as_str().unwrap_or_default();
        for way in ["leave the directory out", "run --here", "--allow-local-paths"] {
            assert_eq!(told.contains(way), !allowed, "{body}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_is_its_directory_and_knows_only_its_own_sessions() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let again = Some(json!({ "directory": format!("{}/", world.path()) }));
    let same = ok(&gateway, "POST", "/project/init", &world.key, again).await;
    assert_eq!(same["id"], project.as_str());
    let managed = ok(&gateway, "POST", "/project/init", &world.key, None).await;
    assert_eq!(managed["worktree"], "/workspace");
    let other = managed["id"].as_str().expect("an id");
    assert_ne!(other, project);
    let projects = ok(&gateway, "GET", "/project", &world.key, None).await;
    assert_eq!(projects.as_array().map(Vec::len), Some(2));
    let of = |project: &str| format!("/project/{project}/session");
    let ours = ok(&gateway, "GET", &of(&project), &world.key, None).await;
    assert_eq!(ours.as_array().map(Vec::len), Some(1));
    assert_eq!(ok(&gateway, "GET", &of(other), &world.key, None).await, json!([]));
    let elsewhere = format!("/project/{other}/session/{session}");
    for (method, path) in [
        ("GET", elsewhere.clone()),
        ("DELETE", elsewhere.clone()),
        ("POST", format!("{elsewhere}/abort")),
        ("POST", format!("{elsewhere}/message")),
        ("GET", format!("{elsewhere}/log")),
    ] {
        let body = path.ends_with("/message").then(|| json!({ "text": "hi" }));
        let (status, answer) = call(&gateway, method, &path, &world.key, body).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method} {path}: {answer}");
    }
    let missing = Some(json!({ "directory": format!("{}/missing", world.path()) }));
    let (status, body) = call(&gateway, "POST", "/project/init", &world.key, missing).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body["error"]["message"].as_str().expect("text").contains("missing"), "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_id_is_taken_once_per_location() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, _) = session(&world, &gateway).await;
    let sessions = format!("/project/{project}/session");
    let body = json!({ "id": "ses_mine", "directory": world.path(), "title": "mine" });
    let first = ok(&gateway, "POST", &sessions, &world.key, Some(body.clone())).await;
    let second = ok(&gateway, "POST", &sessions, &world.key, Some(body)).await;
    assert_eq!(first, second);
    let elsewhere = Some(json!({ "id": "ses_mine", "directory": "/workspace" }));
    let (status, body) = call(&gateway, "POST", &sessions, &world.key, elsewhere).await;
    assert_eq!((status, &body["error"]["code"]), (StatusCode::CONFLICT, &json!("CONFLICT")));
    // Another organisation has its own ids.
    let theirs = ok(&gateway, "POST", "/project/init", &world.stranger, None).await;
    let theirs = format!("/project/{}/session", theirs["id"].as_str().expect("an id"));
    let body = Some(json!({ "id": "ses_mine" }));
    assert_eq!(ok(&gateway, "POST", &theirs, &world.stranger, body).await["id"], "ses_mine");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_there_is_not_is_refused_with_those_there_are() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let own = format!("/project/{project}/agent");
    let agents = ok(&gateway, "GET", &own, &world.key, None).await;
    let names: Vec<_> = agents.as_array().expect("a list").iter().map(|a| &a["name"]).collect();
    assert_eq!(names, ["build", "explore", "general", "plan"]);
    let stock = ok(&gateway, "GET", "/agent", &world.key, None).await;
    let hidden = stock.as_array().expect("a list").iter().filter(|agent| agent["hidden"] == true);
    assert_eq!(hidden.count(), 3);
    assert!(
        agents
            .as_array()
            .expect("a list")
            .iter()
            .all(|agent| stock.as_array().expect("a list").contains(agent))
    );
    let told = "there is no agent `review`: choose one of `build`, `explore`, `general`, `plan`";
    let before = ok(&gateway, "GET", "/platform/session", &world.key, None).await;
    let body = |agent: &str| {
        let parts = [json!({ "type": "text", "text": "look" })];
        json!({ "agent": agent, "parts": parts })
    };
    for path in [
        format!("/project/{project}/session"),
        format!("/project/{project}/session/{session}/message"),
        format!("/platform/session/{session}/message"),
        "/session".to_owned(),
        format!("/session/{session}/message"),
        format!("/session/{session}/prompt_async"),
    ] {
        let asked =
            if path.ends_with("/session") { json!({ "agent": "review" }) } else { body("review") };
        let (status, answer) = call(&gateway, "POST", &path, &world.key, Some(asked)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {answer}");
        if path.starts_with("/session") {
            assert_eq!(
                (&answer["name"], &answer["data"]["message"]),
                (&json!("BadRequest"), &json!(told))
            );
        } else {
            let error = json!({
                "code": "INVALID_INPUT", "reason": "session.agent_unknown", "message": told,
            });
            assert_eq!(answer["error"], error);
        }
    }
    assert_eq!(ok(&gateway, "GET", "/platform/session", &world.key, None).await, before);
    let sessions = format!("/project/{project}/session");
    let planning = Some(json!({ "agent": "plan" }));
    let planning = ok(&gateway, "POST", &sessions, &world.key, planning).await;
    assert_eq!(planning["agent"], "plan");
    let message = format!("/platform/session/{session}/message");
    let admitted = ok(&gateway, "POST", &message, &world.key, Some(body("plan"))).await;
    assert_eq!(admitted["info"]["agent"], "plan");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exact_retry_of_a_prompt_is_the_first_and_another_is_a_conflict() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let path = format!("/project/{project}/session/{session}/message");
    let body = json!({ "messageID": "msg_a", "parts": [{ "type": "text", "text": "hello" }] });
    let first = ok(&gateway, "POST", &path, &world.key, Some(body.clone())).await;
    let second = ok(&gateway, "POST", &path, &world.key, Some(body.clone())).await;
    assert_eq!(first, second);
    snapshot!(&world, "admitted", first);
    for other in [
        json!({ "messageID": "msg_a", "text": "other" }),
        json!({ "messageID": "msg_a", "text": "hello", "delivery": "queue" }),
        json!({ "messageID": "msg_a", "text": "hello", "model": "a/b" }),
    ] {
        let (status, body) = call(&gateway, "POST", &path, &world.key, Some(other)).await;
        assert_eq!(status, StatusCode::CONFLICT, "{body}");
    }
    let empty = Some(json!({ "parts": [] }));
    let (status, _) = call(&gateway, "POST", &path, &world.key, empty).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admitted_prompt_wakes_its_holder_once_placement_has_named_it() -> Result<()> {
    use signals::{Hint, Received, Signals, Topic, WorkerHint};
    let world = World::new().await?;
    let gateway = world.gateway();
    let (_, session) = session(&world, &gateway).await;
    let mut hints = world.signals.subscribe(Topic::Worker(world.placement.incarnation)).await;
    let post = format!("/platform/session/{session}/message");
    ok(&gateway, "POST", &post, &world.key, Some(json!({ "text": "one" }))).await;
    let at = at(&world, &session).await?;
    let wake = Some(Received::Hint(Hint::Worker(WorkerHint::Wake { session: at.clone() })));
    assert_eq!(hints.next().await, wake);
    ok(&gateway, "POST", &post, &world.key, Some(json!({ "text": "two" }))).await;
    assert_eq!(hints.next().await, wake);
    assert_eq!(world.placement.asked.lock().expect("no panic under it").len(), 1);
    let quiet = Some(json!({ "text": "three", "resume": false }));
    ok(&gateway, "POST", &post, &world.key, quiet).await;
    let abort = format!("/platform/session/{session}/abort");
    assert_eq!(
        ok(&gateway, "POST", &abort, &world.key, None).await,
        json!({ "interrupted": true })
    );
    let interrupt = Some(Received::Hint(Hint::Worker(WorkerHint::Interrupt { session: at })));
    assert_eq!(hints.next().await, interrupt);
    assert_eq!(
        ok(&gateway, "POST", &abort, &world.key, None).await,
        json!({ "interrupted": false })
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_turn_is_shown_logged_explained_and_rebuilt() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let (project, session) = session(&world, &gateway).await;
    let base = format!("/project/{project}/session/{session}");
    let messages = format!("{base}/message");
    let body = Some(json!({ "id": "msg_a", "text": "read a.txt" }));
    ok(&gateway, "POST", &messages, &world.key, body).await;
    let turn = begin(&world, &at(&world, &session).await?).await?;
    let (id, sent) = (turn.turn.to_string(), turn.body.clone());
    let call_id = turn.tool(&world).await?;
    turn.finish(&world, "it says hello", Some(call_id)).await?;

    let listed = ok(&gateway, "GET", &messages, &world.key, None).await;
    snapshot!(&world, "messages", listed);
    let one = ok(&gateway, "GET", &format!("{messages}/msg_a"), &world.key, None).await;
    assert_eq!(one, listed[0]);
    snapshot!(&world, "session", ok(&gateway, "GET", &base, &world.key, None).await);

    let log = ok(&gateway, "GET", &format!("{base}/log"), &world.key, None).await;
    let log = log.as_array().expect("a list");
    let seqs: Vec<i64> = log.iter().filter_map(|event| event["seq"].as_i64()).collect();
    assert_eq!(seqs, (1..=i64::try_from(log.len())?).collect::<Vec<_>>());
    let tail = ok(&gateway, "GET", &format!("{base}/log?after=2&limit=3"), &world.key, None).await;
    assert_eq!(tail.as_array().map(Vec::as_slice), Some(&log[2..5]));

    let explained = ok(&gateway, "GET", &format!("/platform/explain/{id}"), &world.key, None).await;
    assert_eq!(explained["match"], true, "{explained}");
    snapshot!(&world, "explained", explained);
    let exact = format!("/platform/explain/{id}?body=true");
    let exact = ok(&gateway, "GET", &exact, &world.key, None).await;
    assert_eq!(exact, serde_json::from_slice::<Value>(&sent)?);

    let rebuild = format!("/platform/session/{session}/rebuild?check=true");
    let rebuilt = ok(&gateway, "POST", &rebuild, &world.key, None).await;
    assert_eq!(rebuilt["exact"], true, "{rebuilt}");
    let check = ok(&gateway, "GET", "/platform/check?settled=true", &world.key, None).await;
    assert_eq!(check, json!([]));

    assert_eq!(ok(&gateway, "DELETE", &base, &world.key, None).await, json!(true));
    let (status, _) = call(&gateway, "GET", &base, &world.key, None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let again = Some(json!({ "text": "hello?" }));
    let (status, _) = call(&gateway, "POST", &messages, &world.key, again).await;
    assert_eq!(status, StatusCode::NOT_FOUND, "the project of a deleted session is remembered");
    Ok(())
}
