//! The operations of the released contract: each has a row, each answers, and the answers are what the contract says.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use api::route_table;
use axum::Router;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::world::{SseReader, World, call, json, ok, request, send};

const TABLE: &str = include_str!("../../contract/operations.tsv");

/// The answers of each operation, by status, from the contract that the released server serves; and their schemas.
#[derive(Deserialize)]
struct Released {
    operations: BTreeMap<String, Operation>,
    schemas: Value,
}

#[derive(Deserialize)]
struct Operation {
    operation: String,
    answers: BTreeMap<String, Option<Value>>,
}

impl Released {
    fn read() -> Result<Self> {
        Ok(serde_json::from_str(include_str!("../../contract/released.json"))?)
    }

    /// Checks an answer against the operation's schema for its status.
    fn check(&self, operation: &str, status: StatusCode, body: &Value) -> Result<()> {
        let released = self.operations.get(operation).context("an operation of the contract")?;
        let answer = released.answers.get(status.as_str());
        let answer =
            answer.with_context(|| format!("{operation} never answers {status}: {body}"))?;
        let Some(schema) = answer else {
            ensure!(body.is_null(), "{operation} has a body: {body}");
            return Ok(());
        };
        let schema = json!({ "allOf": [schema], "components": { "schemas": self.schemas } });
        let validator = jsonschema::draft202012::new(&schema)?;
        let faults: Vec<String> = validator
            .iter_errors(body)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        ensure!(faults.is_empty(), "{operation}: {}\n{body:#}", faults.join("\n"));
        Ok(())
    }
}

/// A row of the table.
struct Row {
    method: &'static str,
    path: &'static str,
    operation: &'static str,
    state: &'static str,
    answer: &'static str,
}

impl Row {
    fn all() -> Vec<Self> {
        let row = |line: &'static str| {
            let mut columns = line.split('\t');
            let mut next = || columns.next().unwrap_or_default();
            Self { method: next(), path: next(), operation: next(), state: next(), answer: next() }
        };
        TABLE.lines().filter(|line| !line.starts_with('#')).map(row).collect()
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// Returns whether a route answers the same to everybody: it belongs to an operation without a handler.
pub(crate) fn is_the_same_for_all(method: &str, path: &str) -> bool {
    let is_it = |row: &Row| row.method == method && anonymous(row.path) == anonymous(path);
    Row::all().iter().any(|row| row.state != "served" && is_it(row))
}

/// Returns whether a route is an operation of the released contract.
pub(crate) fn has_row(method: &str, path: &str) -> bool {
    Row::all().iter().any(|row| row.method == method && anonymous(row.path) == anonymous(path))
}

/// Replaces the names of parameters, which differ between the contract and our routes.
fn anonymous(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment {
        "*" => "{}",
        segment if segment.starts_with('{') => "{}",
        segment => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

#[test]
fn every_operation_of_the_contract_has_a_row_and_a_route() -> Result<()> {
    let released = Released::read()?;
    let rows = Row::all();
    let names: BTreeSet<String> = rows.iter().map(Row::name).collect();
    assert_eq!(names, released.operations.keys().cloned().collect());
    let routes: BTreeSet<String> = route_table()
        .into_iter()
        .map(|(method, path)| format!("{method} {}", anonymous(path)))
        .collect();
    for row in &rows {
        assert_eq!(row.operation, released.operations[&row.name()].operation);
        let route = format!("{} {}", row.method, anonymous(row.path));
        assert!(routes.contains(&route), "{route} has no route");
        let has_answer = !row.answer.is_empty();
        assert_eq!(has_answer, row.state != "served", "{}", row.name());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn constants_have_released_shapes_and_refusals_a_sentence() -> Result<()> {
    let released = Released::read()?;
    let world = World::new().await?;
    let gateway = world.gateway();
    for row in Row::all().iter().filter(|row| row.state != "served") {
        let path = row.path.replace('*', "a.txt").replace(['{', '}'], "");
        let (status, body) = call(&gateway, row.method, &path, &world.key, None).await;
        if row.state == "constant" {
            released.check(&row.name(), status, &body)?;
            continue;
        }
        ensure!(status == StatusCode::BAD_REQUEST, "{}: {status} {body}", row.name());
        let said = if row.path.starts_with("/api/") {
            ensure!(body["_tag"] == "InvalidRequestError", "{body}");
            &body["message"]
        } else {
            ensure!(body["name"] == "BadRequest", "{body}");
            &body["data"]["message"]
        };
        ensure!(said == row.answer, "{}: {body}", row.name());
        ensure!(said.as_str().is_some_and(|said| said.len() > 20), "{said} is no sentence");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_served_has_the_released_shape() -> Result<()> {
    let released = Released::read()?;
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, None).await;
    released.check("POST /session", StatusCode::OK, &session)?;
    let id = session["id"].as_str().context("an id")?;
    let turn = {
        let prompt =
            json!({ "parts": [{ "type": "text", "text": "hello" }], "messageID": "msg_ours" });
        let (status, _) = call(
            &gateway,
            "POST",
            &format!("/session/{id}/prompt_async"),
            &world.key,
            Some(prompt),
        )
        .await;
        ensure!(status == StatusCode::NO_CONTENT, "{status}");
        crate::drain::begin(&world, &crate::drain::at(&world, id).await?).await?
    };
    let ask = turn.ask(&world, "git push").await?;
    let project = session["projectID"].as_str().context("a project")?;
    let filled = |path: &str| {
        path.replace("{sessionID}", id)
            .replace("{projectID}", project)
            .replace("{messageID}", "msg_ours")
            .replace("{providerID}", "simulated")
            .replace("{requestID}", ask.as_str())
            .replace("/find/file", "/find/file?type=directory&query=")
            .replace("/fs/find", &format!("/fs/find?query=&directory={}", world.path()))
            .replace("/skill", &format!("/skill?directory={}", world.path()))
    };
    let mut tried = 0;
    for row in Row::all().iter().filter(|row| row.state == "served" && row.method == "GET") {
        if row.path.ends_with("/event") {
            continue; // a stream
        }
        let (status, body) = call(&gateway, "GET", &filled(row.path), &world.key, None).await;
        ensure!(status == StatusCode::OK, "{}: {status} {body}", row.name());
        released.check(&row.name(), status, &body)?;
        tried += 1;
    }
    ensure!(tried > 25, "{tried}");
    let interrupt = format!("/api/session/{id}/interrupt");
    let (status, body) = call(&gateway, "POST", &interrupt, &world.key, None).await;
    released.check("POST /api/session/{sessionID}/interrupt", status, &body)?;
    Ok(())
}

// Finding heldout-3: unknown asks were 404 without `_tag` and `requestID`, and each refusal had a member more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_there_has_the_released_shape() -> Result<()> {
    let released = Released::read()?;
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, None).await;
    let id = session["id"].as_str().context("an id")?;
    let (once, answers) = (json!({ "reply": "once" }), json!({ "answers": [["yes"]] }));
    let own = "/api/session/{sessionID}";
    for (method, operation, path, body) in [
        ("GET", "/session/{sessionID}", "/session/ses_none", None),
        ("GET", own, "/api/session/ses_none", None),
        ("POST", "/permission/{requestID}/reply", "/permission/per_none/reply", Some(once.clone())),
        ("POST", "/question/{requestID}/reply", "/question/que_none/reply", Some(answers.clone())),
        ("POST", "/question/{requestID}/reject", "/question/que_none/reject", None),
        (
            "POST",
            "/session/{sessionID}/permissions/{permissionID}",
            &format!("/session/{id}/permissions/per_none"),
            Some(json!({ "response": "once" })),
        ),
        (
            "GET",
            &format!("{own}/permission/{{requestID}}"),
            &format!("/api/session/{id}/permission/per_none"),
            None,
        ),
        (
            "POST",
            &format!("{own}/permission/{{requestID}}/reply"),
            &format!("/api/session/{id}/permission/per_none/reply"),
            Some(once.clone()),
        ),
        (
            "POST",
            &format!("{own}/question/{{requestID}}/reply"),
            &format!("/api/session/{id}/question/que_none/reply"),
            Some(answers.clone()),
        ),
        (
            "POST",
            &format!("{own}/question/{{requestID}}/reply"),
            "/api/session/ses_none/question/que_none/reply",
            Some(answers.clone()),
        ),
    ] {
        let (status, answer) = call(&gateway, method, path, &world.key, body).await;
        ensure!(status == StatusCode::NOT_FOUND, "{path}: {status} {answer}");
        released.check(&format!("{method} {operation}"), status, &answer)?;
        let asked = ["per_none", "que_none"].into_iter().find(|ask| path.contains(ask));
        if let Some(ask) = asked.filter(|_| !path.contains("ses_none")) {
            ensure!(answer["requestID"] == ask, "{path}: {answer}");
        }
    }
    let (status, answer) = call(&gateway, "GET", "/api/session/1", &world.key, None).await;
    released.check("GET /api/session/{sessionID}", status, &answer)?;
    let (status, answer) = call(&gateway, "GET", "/api/session", "no key", None).await;
    released.check("GET /api/session", status, &answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_a_client_sets_is_a_credential() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let set =
        async |body: Value| call(&gateway, "PUT", "/auth/openai", &world.key, Some(body)).await;
    let kept = async || ok(&gateway, "GET", "/platform/credential", &world.key, None).await;
    for key in ["sk-0123456789-0123456789-1111", "sk-0123456789-0123456789-2222"] {
        let (status, body) = set(json!({ "type": "api", "key": key })).await;
        assert_eq!((status, body), (StatusCode::OK, json!(true)));
        let kept = kept().await;
        assert_eq!(kept.as_array().map(Vec::len), Some(1), "{kept}");
        assert_eq!(kept[0]["hint"], key[key.len() - 4..], "{kept}");
    }
    for refused in [
        json!({ "type": "api", "key": " " }),
        json!({ "type": "api", "key": "k", "metadata": { "resource": "r" } }),
        json!({ "type": "oauth", "refresh": "r", "access": "a", "expires": 1 }),
        json!({ "type": "wellknown", "key": "k", "token": "t" }),
        json!({}),
    ] {
        assert_eq!(set(refused.clone()).await.0, StatusCode::BAD_REQUEST, "{refused}");
    }
    for _ in 0..2 {
        assert_eq!(ok(&gateway, "DELETE", "/auth/openai", &world.key, None).await, json!(true));
        assert_eq!(kept().await, json!([]));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_the_second_api_have_every_session_once() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let mut made = BTreeSet::new();
    for _ in 0..5 {
        let session = ok(&gateway, "POST", "/session", &world.key, None).await;
        made.insert(session["id"].as_str().context("an id")?.to_owned());
    }
    let (mut seen, mut path) = (Vec::new(), "/api/session?limit=2".to_owned());
    loop {
        let page = ok(&gateway, "GET", &path, &world.key, None).await;
        let data = page["data"].as_array().context("a page")?;
        seen.extend(data.iter().filter_map(|session| session["id"].as_str().map(str::to_owned)));
        let Some(next) = page["cursor"]["next"].as_str() else { break };
        path = format!("/api/session?limit=2&cursor={next}");
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), made);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_that_shows_no_error_is_told_why() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let session = ok(&gateway, "POST", "/session", &world.key, None).await;
    let id = session["id"].as_str().context("an id")?;
    let mut events =
        SseReader::new(send(&gateway, request("GET", "/event", &world.key, None)).await);
    ensure!(events.next().await.context("a greeting")?.data["type"] == "server.connected");
    let shell = format!("/session/{id}/shell");
    let mut asked = request("POST", &shell, &world.key, Some(&json!({ "command": "ls" })));
    asked.headers_mut().insert("user-agent", "opencode/1.18.33".parse()?);
    let answer = send(&gateway, asked).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    let why = json(answer).await["data"]["message"].clone();
    let told = events.until(|frame| frame.data["type"] == "tui.toast.show").await;
    assert_eq!(told.last().context("a frame")?.data["properties"]["message"], why);
    // A session of others is not there, and nothing is shown.
    let mut foreign = request("POST", &shell, &world.stranger, None);
    foreign.headers_mut().insert("user-agent", "opencode/1.18.33".parse()?);
    assert_eq!(send(&gateway, foreign).await.status(), StatusCode::NOT_FOUND);
    Ok(())
}

/// Calls a path as a page of `origin` would.
async fn cross(
    gateway: &Router,
    method: &str,
    path: &str,
    key: &str,
    origin: &str,
) -> http::Response<axum::body::Body> {
    let mut asked = request(method, path, key, None);
    asked.headers_mut().insert("host", http::HeaderValue::from_static("localhost"));
    asked.headers_mut().insert("origin", origin.parse().expect("a header"));
    asked.headers_mut().insert("sec-fetch-site", http::HeaderValue::from_static("cross-site"));
    if method == "OPTIONS" {
        let names = http::HeaderValue::from_static("authorization,x-opencode-directory");
        asked.headers_mut().insert("access-control-request-headers", names);
        asked
            .headers_mut()
            .insert("access-control-request-method", http::HeaderValue::from_static("PUT"));
    }
    send(gateway, asked).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_listed_origins_may_call_and_each_needs_a_key() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let allowed = "access-control-allow-origin";
    for origin in ["https://code.example.com", "oc://renderer", "tauri://localhost"] {
        let preflight = cross(&gateway, "OPTIONS", "/config", "", origin).await;
        assert_eq!(preflight.status(), StatusCode::OK);
        assert_eq!(preflight.headers()[allowed], origin);
        assert_eq!(
            preflight.headers()["access-control-allow-headers"],
            "authorization,x-opencode-directory"
        );
        assert!(preflight.headers().get("access-control-allow-credentials").is_none());
        let answer = cross(&gateway, "GET", "/config", &world.key, origin).await;
        assert_eq!(
            (answer.status(), &answer.headers()[allowed]),
            (StatusCode::OK, &origin.parse()?)
        );
        let refused = cross(&gateway, "GET", "/config", "", origin).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED);
        assert_eq!(refused.headers()[allowed], origin, "the page may read why");
    }
    for origin in ["https://evil.example", "null", "http://code.example.com"] {
        let preflight = cross(&gateway, "OPTIONS", "/config", "", origin).await;
        assert!(preflight.headers().get(allowed).is_none(), "{origin}");
        let answer = cross(&gateway, "GET", "/config", &world.key, origin).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{origin}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_answers_are_compressed_for_those_who_ask() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    for _ in 0..20 {
        ok(&gateway, "POST", "/session", &world.key, None).await;
    }
    for (accepted, encoding) in
        [("gzip", Some("gzip")), ("br, gzip", Some("br")), ("identity", None)]
    {
        let mut asked = request("GET", "/session", &world.key, None);
        asked.headers_mut().insert("accept-encoding", accepted.parse()?);
        let answer = send(&gateway, asked).await;
        let told =
            answer.headers().get("content-encoding").map(|name| name.to_str()).transpose()?;
        assert_eq!(told, encoding);
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await?;
        assert_eq!(bytes.len() < 3_000, encoding.is_some(), "{accepted}: {} bytes", bytes.len());
    }
    let mut small = request("GET", "/global/health", &world.key, None);
    small.headers_mut().insert("accept-encoding", "gzip".parse()?);
    let answer = send(&gateway, small).await;
    assert!(answer.headers().get("content-encoding").is_none());
    assert_eq!(json(answer).await["healthy"], true);
    Ok(())
}
