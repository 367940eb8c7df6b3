//! The document of our own dialect: it is the committed one, and answers are what it says.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use api::{openapi, route_table, stock_openapi};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use jsonschema::Validator;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::drain::{at, begin};
use crate::world::{World, call, ok, request, send};

/// Where the document is shown. It does not have these routes itself.
const DOCUMENT: [&str; 3] =
    ["/platform/openapi.json", "/platform/reference", "/platform/reference/stock"];

/// Every operation: method, path and what is said of it.
fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = openapi()["paths"].as_object().into_iter().flatten();
    let of_path = |(path, methods): (&String, &'static Value)| {
        let path = path.clone();
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, said)| (method.to_ascii_uppercase(), path.clone(), said))
    };
    paths.flat_map(of_path).collect()
}

/// Checks a body against a schema of the document.
fn check(schema: &Value, body: &Value) -> Result<()> {
    fits(&validator(openapi(), schema)?, body)
}

fn validator(document: &Value, schema: &Value) -> Result<Validator> {
    let whole = json!({ "allOf": [schema], "components": document["components"] });
    Ok(jsonschema::draft202012::new(&whole)?)
}

fn fits(validator: &Validator, body: &Value) -> Result<()> {
    let faults: Vec<String> = validator
        .iter_errors(body)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    ensure!(faults.is_empty(), "{}\n{body:#}", faults.join("\n"));
    Ok(())
}

/// The schema of a stream's events in a document.
fn stream_of<'d>(document: &'d Value, path: &str) -> &'d Value {
    let content = &document["paths"][path]["get"]["responses"]["200"]["content"];
    &content["text/event-stream"]["schema"]
}

/// Checks an event that was sent. Every test that reads a stream does so.
///
/// Frames of a session's stream have names; those of released clients' streams have none, and a payload where they are
/// of all directories.
pub(crate) fn check_sent(event: &str, data: &Value) -> Result<()> {
    static SESSION: LazyLock<Validator> = LazyLock::new(|| {
        let path = "/platform/session/{session}/log";
        validator(openapi(), stream_of(openapi(), path)).expect("a schema")
    });
    static STOCK: LazyLock<Validator> = LazyLock::new(|| {
        validator(stock_openapi(), stream_of(stock_openapi(), "/event")).expect("a schema")
    });
    static GLOBAL: LazyLock<Validator> = LazyLock::new(|| {
        validator(stock_openapi(), stream_of(stock_openapi(), "/global/event")).expect("a schema")
    });
    if !event.is_empty() {
        ensure!(data["type"] == event, "`event: {event}`, and {data}");
        return fits(&SESSION, data);
    }
    fits(if data.get("payload").is_some() { &GLOBAL } else { &STOCK }, data)
}

#[test]
fn an_event_that_no_document_has_is_found() -> Result<()> {
    let ended = json!({ "seq": 3, "id": "evt_1", "time": 5, "type": "drain.ended", "data": { "outcome": "completed" } });
    check_sent("drain.ended", &ended)?;
    let idle =
        json!({ "id": "evt_1", "type": "session.idle", "properties": { "sessionID": "ses_1" } });
    check_sent("", &idle)?;
    check_sent("", &json!({ "directory": "/w", "project": "prj_1", "payload": idle }))?;
    let changed = |event: &Value, pointer: &str, to: Value| {
        let mut event = event.clone();
        *event.pointer_mut(pointer).expect("a member") = to;
        event
    };
    for (name, event) in [
        ("moon.rose", changed(&ended, "/type", json!("moon.rose"))),
        ("drain.ended", changed(&ended, "/data", json!({}))),
        ("drain.ended", changed(&ended, "/data/outcome", json!("full"))),
        ("delta", json!({ "type": "delta", "message": "msg_1", "text": "a" })),
        ("gone", json!({ "reason": "deleted" })),
        ("", changed(&idle, "/type", json!("moon.rose"))),
        ("", changed(&idle, "/properties", json!({}))),
        ("", json!({ "payload": changed(&idle, "/type", json!("moon.rose")) })),
    ] {
        ensure!(check_sent(name, &event).is_err(), "{name}: {event}");
    }
    Ok(())
}

#[test]
fn the_committed_documents_are_those_of_the_routes() -> Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi");
    for (name, document) in [("native.json", openapi()), ("stock.json", stock_openapi())] {
        let (file, text) = (folder.join(name), format!("{document:#}\n"));
        if std::env::var_os("WRITE_OPENAPI").is_some() {
            std::fs::write(&file, &text)?;
        }
        let committed = std::fs::read_to_string(&file)?;
        let file = file.display();
        ensure!(committed == text, "run this test with WRITE_OPENAPI=1, and commit {file}");
    }
    Ok(())
}

#[test]
fn the_stock_document_says_what_is_done_with_each_operation() {
    let document = stock_openapi();
    let paths = document["paths"].as_object().expect("paths");
    let all: Vec<&Value> =
        paths.values().flat_map(|methods| methods.as_object().expect("methods").values()).collect();
    assert_eq!(all.len(), 188);
    let count = |state: &str| all.iter().filter(|said| said["x-state"] == state).count();
    assert_eq!(count("served") + count("constant") + count("refused"), all.len());
    let is_success = |status: &String| status.starts_with('2');
    for said in &all {
        let succeeds = said["responses"].as_object().expect("answers").keys().any(is_success);
        assert_eq!(succeeds, said["x-state"] != "refused", "{said}");
    }
    let sent = &document["paths"]["/session/{sessionID}/message"]["post"];
    assert!(sent["requestBody"]["content"]["application/json"]["schema"].is_object(), "{sent}");
}

#[test]
fn every_own_route_is_an_operation_with_a_name_of_its_own() {
    let all = operations();
    let names: BTreeSet<&str> =
        all.iter().filter_map(|(_, _, said)| said["operationId"].as_str()).collect();
    assert_eq!(names.len(), all.len(), "no name twice");
    let told: BTreeSet<String> =
        all.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let is_ours = |path: &str| {
        let own = ["/project/", "/platform/", "/healthz", "/readyz"];
        own.iter().any(|root| path.starts_with(root))
            && path != "/project/current"
            && !DOCUMENT.contains(&path)
    };
    for (method, path) in route_table().into_iter().filter(|(_, path)| is_ours(path)) {
        let route = format!("{method} {path}");
        let of_released = crate::contract::has_row(method.as_str(), path);
        assert!(of_released || told.contains(&route), "{route} is not in the document");
    }
}

#[test]
fn every_reference_of_a_document_leads_somewhere() {
    fn walk(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                found.extend(members.get("$ref").and_then(Value::as_str).map(str::to_owned));
                members.values().for_each(|member| walk(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    for document in [openapi(), stock_openapi()] {
        let mut found = Vec::new();
        walk(document, &mut found);
        assert!(found.len() > 100, "{}", found.len());
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_what_the_document_says() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let project = ok(&gateway, "POST", "/project", &world.key, None).await;
    let project = project["id"].as_str().context("an id")?.to_owned();
    let new = json!({ "id": "ses_told", "directory": world.path() });
    ok(&gateway, "POST", &format!("/project/{project}/session"), &world.key, Some(new)).await;
    let own = "/platform/session/ses_told";
    let prompt = json!({ "id": "msg_ours", "text": "hello" });
    let admitted = ok(&gateway, "POST", &format!("{own}/message"), &world.key, Some(prompt)).await;
    let (credential, attempt) = crate::providers::every_kind(&gateway, &world.key).await;
    let turn = begin(&world, &at(&world, "ses_told").await?).await?;
    let id = turn.turn.to_string();
    turn.finish(&world, "done", None).await?;
    let waits = json!({ "id": "msg_waits", "text": "later", "resume": false });
    ok(&gateway, "POST", &format!("{own}/message"), &world.key, Some(waits)).await;
    ok(&gateway, "PUT", &format!("{own}/context/plan"), &world.key, Some(json!({ "a": 1 }))).await;
    let filled = |path: &str| {
        path.replace("{project}", &project)
            .replace("{session}", "ses_told")
            .replace("{message}", "msg_ours")
            .replace("{id}", &id)
            .replace("{key}", "plan")
            .replace("{provider}", "acme")
            .replace("{credential}", &credential)
            .replace("{attempt}", &attempt)
    };
    let answer = |said: &'static Value, status: StatusCode| {
        &said["responses"][status.as_str()]["content"]["application/json"]["schema"]
    };
    let mut tried = 0;
    for (method, path, said) in operations() {
        let is_lines = said["responses"]["200"]["content"].get("application/x-ndjson").is_some();
        if is_lines {
            let response = send(&gateway, request("GET", &filled(&path), &world.key, None)).await;
            ensure!(response.status() == StatusCode::OK, "GET {path}");
        } else if method == "GET" {
            let (status, body) = call(&gateway, "GET", &filled(&path), &world.key, None).await;
            ensure!(said["responses"].get(status.as_str()).is_some(), "{path}: {status} {body}");
            check(answer(said, status), &body).with_context(|| format!("GET {path}"))?;
            tried += usize::from(status == StatusCode::OK);
        }
        // A failure has its shape too: without a key, and for what there is not.
        if said.get("x-scope").is_some() {
            let (status, body) = call(&gateway, &method, &filled(&path), "", None).await;
            check(answer(said, status), &body).with_context(|| format!("{method} {path}"))?;
        }
    }
    ensure!(tried > 30, "{tried}");
    let prompted = &openapi()["paths"]["/platform/session/{session}/message"]["post"];
    check(answer(prompted, StatusCode::OK), &admitted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_every_operation_without_a_key() -> Result<()> {
    let world = World::new().await?;
    let gateway = world.gateway();
    let pages = [
        ("/platform/reference", "/platform/openapi.json", openapi(), "turn.replied"),
        ("/platform/reference/stock", "/doc", stock_openapi(), "message.part.updated"),
    ];
    for (path, json, document, event) in pages {
        let (status, served) = call(&gateway, "GET", json, "", None).await;
        ensure!(status == StatusCode::OK && served == *document, "{json}: {status}");
        let response = send(&gateway, request("GET", path, "", None)).await;
        ensure!(response.status() == StatusCode::OK);
        let policy = response.headers()["content-security-policy"].to_str()?.to_owned();
        ensure!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        let page = axum::body::to_bytes(response.into_body(), usize::MAX).await?;
        let page = String::from_utf8(page.to_vec())?;
        for (path, methods) in document["paths"].as_object().context("paths")? {
            ensure!(page.contains(&format!("<code>{path}</code>")), "{path}");
            for said in methods.as_object().into_iter().flat_map(|methods| methods.values()) {
                let summary = said["summary"].as_str().context("a summary")?;
                let shown = summary.replace('&', "&amp;").replace('<', "&lt;");
                let shown = shown.replace('>', "&gt;").replace('"', "&quot;");
                let shown = shown.split('`').enumerate().map(|(place, piece)| {
                    if place % 2 == 1 { format!("<code>{piece}</code>") } else { piece.to_owned() }
                });
                ensure!(page.contains(&shown.collect::<String>()), "{path}: {summary}");
            }
        }
        for link in page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            let (quoted, plain) = (format!("id=\"{link}\""), format!("id={link}>"));
            ensure!(page.contains(&quoted) || page.contains(&plain), "#{link} leads nowhere");
        }
        let streams = page.matches("text/event-stream").count();
        ensure!(streams == 2, "{streams} operations answer with a stream");
        ensure!(page.contains(&format!("&quot;{event}&quot;")), "{event} is an event of one");
        ensure!(!page.contains('`'), "code is shown as such");
        ensure!(!page.contains("<script"), "the page needs no scripts");
        ensure!(!page.contains(" src=") && !page.contains("style=\""), "it loads nothing");
        // The hash of the policy is that of the style between the tags.
        let style = page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next());
        let hash = BASE64_STANDARD.encode(Sha256::digest(style.context("a style")?));
        ensure!(policy.contains(&format!("'sha256-{hash}'")), "{policy}");
    }
    Ok(())
}

/// A path as the table of `docs/api.md` has it: its methods, and the path or, after `…`, its end.
struct Told {
    methods: Vec<String>,
    path: String,
}

impl Told {
    /// Reads the code spans of a table's first column. One without methods has those of the one before.
    fn all(document: &str) -> Vec<Self> {
        const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        let section = document.split("\n## Routes\n").nth(1).unwrap_or_default();
        let rows = section.lines().take_while(|line| !line.starts_with("## "));
        let mut all = Vec::new();
        for row in rows.filter_map(|line| line.strip_prefix("| `")) {
            let first = row.split(" | ").next().unwrap_or_default();
            let mut methods = Vec::new();
            for span in first.split('`').step_by(2) {
                let (before, path) = span.rsplit_once(' ').unwrap_or(("", span));
                let named: Vec<&str> = before.split(", ").collect();
                if named.iter().all(|name| METHODS.contains(name)) {
                    methods = named.into_iter().map(str::to_owned).collect();
                }
                let path = path.split('?').next().unwrap_or_default();
                all.push(Self { methods: methods.clone(), path: unnamed(path) });
            }
        }
        all
    }

    fn is_about(&self, method: &str, path: &str) -> bool {
        let is_path = match self.path.strip_prefix('…') {
            Some(end) => path.ends_with(end),
            None => self.path == path,
        };
        is_path && self.methods.iter().any(|known| known == method)
    }
}

/// Returns a path without the names of its parameters.
fn unnamed(path: &str) -> String {
    let is_parameter = |part: &&str| part.starts_with('{');
    let parts = path.split('/').map(|part| if is_parameter(&part) { "{}" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

#[test]
fn the_table_for_people_has_every_operation_and_no_other() -> Result<()> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let told = Told::all(&std::fs::read_to_string(file)?);
    ensure!(told.len() > 50, "the table was not found");
    let all: Vec<_> =
        operations().into_iter().map(|(method, path, _)| (method, unnamed(&path))).collect();
    let missing: Vec<_> = all
        .iter()
        .filter(|(method, path)| !told.iter().any(|told| told.is_about(method, path)))
        .collect();
    ensure!(missing.is_empty(), "not in the table of docs/api.md: {missing:?}");
    let unknown: Vec<_> = told
        .iter()
        .filter(|told| !DOCUMENT.contains(&told.path.as_str()))
        .filter(|told| !all.iter().any(|(method, path)| told.is_about(method, path)))
        .map(|told| format!("{:?} {}", told.methods, told.path))
        .collect();
    ensure!(unknown.is_empty(), "in the table of docs/api.md, and no operation: {unknown:?}");
    Ok(())
}
