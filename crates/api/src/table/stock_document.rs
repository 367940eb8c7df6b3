//! The OpenAPI 3.1 document of the stock dialect: the operations of the released contract, and what this service does
//! with each.
//!
//! `contract/operations.tsv` says what is done. `contract/released.json` has the schemas of the contract: of each
//! operation's answers, and of what a served one takes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::openapi::failure;
use super::operations::{Contracted, State};
use crate::render::StockKind;
use crate::surface::Dialect;

const RELEASED: &str = include_str!("../../contract/released.json");

const ABOUT: &str = "The operations of the released OpenCode contract at this service, for released clients. Each is `served`, \
answers a `constant` that is true for this service, or is `refused` with a sentence that names another way. Every operation \
wants an API key: as a Bearer token, or as the password of Basic authentication.";

/// The streams, and the name of the schema of each event's data.
const STREAMS: [(&str, &str); 2] = [("/event", "Event"), ("/global/event", "GlobalEvent")];

/// The names of the schemas of failures.
const FAILURE: &str = "Failure";
const TAGGED: &str = "TaggedFailure";
const OWN: &str = "OwnFailure";

#[derive(Deserialize)]
struct Released {
    operations: BTreeMap<String, Schemas>,
    /// The names of the schemas of events, by their types.
    events: BTreeMap<String, String>,
    schemas: Map<String, Value>,
}

/// The schemas of an operation.
#[derive(Deserialize)]
struct Schemas {
    answers: BTreeMap<String, Option<Value>>,
    #[serde(default)]
    query: Vec<Map<String, Value>>,
    #[serde(default)]
    body: Option<Value>,
}

/// Returns the document. It is the same for every gateway of a build.
#[must_use]
pub fn stock_openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    &DOCUMENT
}

fn document() -> Value {
    let mut released: Released = serde_json::from_str(RELEASED).expect("tests read it");
    released.schemas.extend(of_streams(&released.events));
    released.schemas.extend(of_failures());
    let mut paths: Map<String, Value> = Map::new();
    for row in super::operations::contracted() {
        let schemas = &released.operations[&format!("{} {}", row.method, row.path)];
        let operations = paths.entry(row.path).or_insert_with(|| json!({}));
        operations[row.method.to_ascii_lowercase()] = operation(row, schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "OpenCode Cloud: released contract", "version": "1", "description": ABOUT },
        "security": [{ "bearer": [] }, { "basic": [] }],
        "paths": paths,
        "components": {
            "schemas": released.schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "basic": { "type": "http", "scheme": "basic", "description": "Any user, and the key as password" },
            },
        },
    })
}

/// Returns the schemas of the data of events: those of the contract whose types are sent here, and the heartbeat, which
/// the released server sends too and which its contract does not have.
fn of_streams(contracted: &BTreeMap<String, String>) -> [(String, Value); 3] {
    const HEARTBEAT: &str = "EventServerHeartbeat";
    let mapping: BTreeMap<&str, String> = StockKind::ALL
        .iter()
        .map(|kind| {
            let is_ours = *kind == StockKind::ServerHeartbeat;
            let name = if is_ours { HEARTBEAT } else { &contracted[kind.as_str()] };
            (kind.as_str(), reference(name))
        })
        .collect();
    let all: Vec<Value> = mapping.values().map(|path| json!({ "$ref": path })).collect();
    let event = json!({
        "description": "The `data` of a server-sent event.",
        "oneOf": all,
        "discriminator": { "propertyName": "type", "mapping": mapping },
    });
    let global = json!({
        "description": "The `data` of a server-sent event, with the directory that it is about.",
        "type": "object",
        "required": ["payload"],
        "properties": {
            "directory": { "type": "string" },
            "project": { "type": "string" },
            "payload": { "$ref": reference("Event") },
        },
        "additionalProperties": false,
    });
    let heartbeat = json!({
        "type": "object",
        "required": ["id", "type", "properties"],
        "properties": {
            "id": { "type": "string", "pattern": "^evt_" },
            "type": { "const": StockKind::ServerHeartbeat },
            "properties": { "type": "object" },
        },
        "additionalProperties": false,
    });
    [("Event", event), ("GlobalEvent", global), (HEARTBEAT, heartbeat)]
        .map(|(name, schema)| (name.to_owned(), schema))
}

/// The schemas of failures, in the contract's first and second API: they have the contract's members. The third is that of paths
/// which the service's own interface has too.
fn of_failures() -> [(String, Value); 3] {
    let text = || json!({ "type": "string" });
    let named = json!({
        "type": "object",
        "required": ["name", "data"],
        "properties": {
            "name": text(),
            "data": { "type": "object", "required": ["message"], "properties": { "message": text() } },
        },
        "additionalProperties": false,
    });
    let tagged = json!({
        "type": "object",
        "required": ["_tag", "message"],
        "properties": { "_tag": text(), "message": text(), "sessionID": text(), "requestID": text() },
        "additionalProperties": false,
    });
    let why = "Why a request was not done. The header `x-request-id` names the request in the service's log.";
    // Each API has failures of both forms: the first of what it looks for by id, the second those that nobody expected.
    let first = json!({ "description": why, "anyOf": [&named, &tagged] });
    let second = json!({ "description": why, "anyOf": [tagged, named] });
    [(FAILURE, first), (TAGGED, second), (OWN, failure())]
        .map(|(name, schema)| (name.to_owned(), schema))
}

fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

fn operation(row: &Contracted, schemas: &Schemas) -> Value {
    let mut parameters: Vec<Value> = in_path(row.path).collect();
    parameters.extend(schemas.query.iter().map(|query| {
        let mut parameter = query.clone();
        parameter.insert("in".to_owned(), json!("query"));
        Value::Object(parameter)
    }));
    let (state, summary) = match &row.state {
        State::Served => ("served", "Answers as the contract says".to_owned()),
        State::Nothing => ("constant", "Answers without a body, and does nothing".to_owned()),
        State::Constant(answer) => ("constant", format!("Always answers {answer}")),
        State::Refused(why) => ("refused", (*why).to_owned()),
    };
    let mut operation = json!({
        "operationId": row.operation,
        "summary": summary,
        "tags": [row.operation.split('.').next().unwrap_or_default()],
        "parameters": parameters,
        "responses": responses(row, schemas),
        "x-state": state,
    });
    if let Some(body) = &schemas.body {
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
    }
    operation
}

fn responses(row: &Contracted, schemas: &Schemas) -> Value {
    let answers = schemas
        .answers
        .iter()
        .filter(|(status, _)| status.starts_with('2') && !matches!(row.state, State::Refused(_)));
    let responses = answers.map(|(status, schema)| {
        let mut answer = json!({ "description": meaning(status) });
        if let Some(schema) = schema {
            answer["content"] = json!({ "application/json": { "schema": schema } });
        } else if let Some(event) =
            STREAMS.iter().find(|(path, _)| *path == row.path && status == "200")
        {
            let schema = json!({ "$ref": reference(event.1) });
            answer["content"] = json!({ "text/event-stream": { "schema": schema } });
            answer["description"] = json!("A stream of server-sent events, each with this `data`");
        }
        (status.clone(), answer)
    });
    let mut responses: Map<String, Value> = responses.collect();
    let failure = match Dialect::of(row.path) {
        Dialect::Native => OWN,
        Dialect::Stock if row.path.starts_with("/api/") => TAGGED,
        Dialect::Stock => FAILURE,
    };
    for status in failures(row, schemas) {
        let content = json!({ "application/json": { "schema": { "$ref": reference(failure) } } });
        let answer = json!({ "description": meaning(status), "content": content });
        responses.insert(status.to_owned(), answer);
    }
    Value::Object(responses)
}

/// Returns the statuses of an operation's failures.
fn failures(row: &Contracted, schemas: &Schemas) -> Vec<&'static str> {
    let mut all = vec!["401", "429", "503"];
    let is_served = matches!(row.state, State::Served);
    let takes = schemas.body.is_some() || !schemas.query.is_empty() || row.path.contains('{');
    if matches!(row.state, State::Refused(_)) || is_served && takes {
        all.push("400");
    }
    if is_served {
        all.extend(["403", "409"]);
        if schemas.body.is_some() {
            all.push("413");
        }
        // A body may name a session too.
        if schemas.body.is_some() || row.path.contains('{') {
            all.push("404");
        }
    }
    all.sort_unstable();
    all
}

fn meaning(status: &str) -> &'static str {
    match status {
        "400" => "The request cannot be read, or asks for what is not done here",
        "401" => "The key is missing, or is not good",
        "403" => "The role, or the key, may not do this; the message names the need",
        "404" => "There is no such thing in this organisation",
        "409" => "It does not fit what is there",
        "413" => "The request is too large",
        "429" => "Too many requests: ask again",
        "503" => "The database does not answer, or the service is busy: ask again",
        status if status.starts_with('2') => "It was done",
        _ => "It was not done",
    }
}

fn in_path(path: &str) -> impl Iterator<Item = Value> {
    let names = path.split('/').filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'));
    names.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    })
}
