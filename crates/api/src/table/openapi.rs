//! The OpenAPI 3.1 document of our own dialect, made from the route table.

use std::sync::LazyLock;

use access::Need;
use schemars::Schema;
use serde_json::{Map, Value, json};

use super::contract::{Answer, Operation, Schemas};
use super::native;
use super::route::{Route, Told};

/// Says in a few words what the whole interface is.
const ABOUT: &str = "The own routes of OpenCode Cloud. Every route but those without `security` wants an API key: as a Bearer \
token, or as the password of Basic authentication. Failures have one shape; `code` and `reason` are stable, `message` is \
for people. Ids that a client chooses make a request safe to repeat.";

/// Returns the document. It is the same for every gateway of a build.
#[must_use]
pub fn openapi() -> &'static Value {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(document);
    &DOCUMENT
}

fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for Route { method, path, policy, told, .. } in native::routes() {
        let Some(told) = told else { continue };
        let said = (told.describe)(&mut schemas);
        let operations = paths.entry(path).or_insert_with(|| json!({}));
        operations[method.as_str().to_ascii_lowercase()] =
            operation(path, policy.need(), told, said);
    }
    let mut named = schemas.into_named();
    named.insert("Failure".to_owned(), failure());
    json!({
        "openapi": "3.1.0",
        "info": { "title": "OpenCode Cloud", "version": "1", "description": ABOUT },
        "paths": paths,
        "components": {
            "schemas": named,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "basic": { "type": "http", "scheme": "basic", "description": "Any user, and the key as password" },
                "login": { "type": "apiKey", "in": "cookie", "name": "__Host-oc", "description": "A browser's login, from the service's own pages" },
            },
        },
    })
}

fn operation(path: &str, need: Option<Need>, told: Told, said: Operation) -> Value {
    let Operation { query, body, takes, answer } = said;
    let subject = if told.id.starts_with("project.session.") { "session" } else { told.id };
    let tag = subject.split('.').next().unwrap_or_default();
    let mut responses = Map::new();
    if let Some(answer) = answer {
        responses.insert(answer.status.as_str().to_owned(), success(answer));
    }
    if ["login.link", "login.key", "login.recovery"].contains(&told.id) {
        responses.insert("401".to_owned(), failed("The link, key or code logs nobody in"));
        responses
            .insert("403".to_owned(), failed("It logs nobody in, or another site's page sent it"));
        responses
            .insert("429".to_owned(), failed("Too many unknown links, keys or codes: ask again"));
    }
    for (status, why) in failures(need, path, query.is_some() || body.is_some()) {
        responses.insert(status.to_owned(), failed(why));
    }
    let mut parameters = in_path(path);
    parameters.extend(query.iter().flat_map(in_query));
    let mut operation = json!({
        "operationId": told.id,
        "summary": told.summary,
        "tags": [tag],
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(need) = need {
        operation["security"] = json!([{ "bearer": [] }, { "basic": [] }, { "login": [] }]);
        operation["x-need"] = json!(need.as_str());
        operation["x-scope"] = json!(need.bundle().as_str());
    }
    if let Some(body) = body {
        let content = takes.iter().map(|media| ((*media).to_owned(), json!({ "schema": body })));
        operation["requestBody"] = json!({ "content": content.collect::<Map<_, _>>() });
    }
    operation
}

/// The failures that a route's scope, path and input bring with them.
fn failures(need: Option<Need>, path: &str, takes: bool) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("503", "The database does not answer, or the service is busy: ask again")];
    if need.is_some() {
        all.push(("401", "The key or login is missing, or is not good"));
        all.push(("403", "The role, or the key, may not do this; the message names the need"));
        all.push(("409", "What was asked for does not fit what is there"));
        all.push(("429", "Too many requests: ask again"));
    }
    if takes || path.contains('{') {
        all.push(("400", "The request cannot be read, or asks for what is not offered"));
        all.push(("413", "The request is too large"));
    }
    if path.contains('{') {
        all.push(("404", "There is no such thing in this organisation"));
    }
    all
}

fn failed(why: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/Failure" });
    json!({ "description": why, "content": { "application/json": { "schema": schema } } })
}

fn success(answer: Answer) -> Value {
    let Answer { body, is_page, media, frame, .. } = answer;
    let mut content = Map::new();
    if let Some(body) = body {
        content.insert(media.to_owned(), json!({ "schema": body }));
    }
    let mut about = "It was done";
    if let Some(frame) = frame {
        content.insert("text/event-stream".to_owned(), json!({ "schema": frame }));
        about = "A page; with `follow=true` a stream of server-sent events, each with this `data`";
    }
    let mut success = json!({ "description": about });
    if !content.is_empty() {
        success["content"] = content.into();
    }
    if is_page {
        let next = "Where the next page begins; without it this page is the last";
        success["headers"] =
            json!({ "X-Next-Cursor": { "description": next, "schema": { "type": "string" } } });
    }
    success
}

fn in_path(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } });
    names.map(parameter).collect()
}

fn in_query(query: &Schema) -> Vec<Value> {
    let required = query.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = query.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let parameter = |(name, schema): (&String, &Value)| {
        let is_required = required.iter().any(|known| known == name);
        let mut parameter = json!({ "name": name, "in": "query", "required": is_required, "schema": plain(schema) });
        if let Some(about) = schema.get("description") {
            parameter["description"] = about.clone();
        }
        parameter
    };
    properties.iter().map(parameter).collect()
}

/// A parameter that may be left out is not null: a query has no null.
fn plain(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(types) = schema.get("type").and_then(Value::as_array)
        && let Some(own) = types.iter().find(|own| *own != "null")
    {
        schema["type"] = own.clone();
    }
    if let Some(members) = schema.as_object_mut() {
        members.remove("description");
        members.remove("default");
    }
    schema
}

/// The schema of a failure as our own interface tells it.
pub(super) fn failure() -> Value {
    json!({
        "type": "object",
        "required": ["error", "request_id"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": { "type": "string", "description": "Stable, such as `NOT_FOUND`" },
                    "message": { "type": "string", "description": "For people" },
                    "reason": { "type": "string", "description": "Stable, such as `session.busy`; `docs/errors` has a page for it" },
                },
            },
            "request_id": { "type": "string", "description": "In the service's log too" },
        },
    })
}
