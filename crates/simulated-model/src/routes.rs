//! The routes: the protocols', and `/sim/…` to script the model and to read its log.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::MODEL;
use crate::complete::{self, Model, error};
use crate::limits::TokenLimits;
use crate::script::{self, ScriptError};

/// The most records in one answer of `GET /sim/requests`.
const MAX_RECORDS_PER_PAGE: usize = 1000;

/// Returns all routes of the server.
pub(crate) fn router(model: Model, max_request_bytes: usize) -> Router {
    Router::new()
        .merge(protocols("/v1"))
        .merge(protocols(""))
        .route("/v1beta/models/{call}", post(complete::gemini))
        .route("/v1/models", get(models))
        .route("/models", get(models))
        .route("/healthz", get(healthy))
        .route(
            "/sim/scripts",
            get(list_scripts).put(replace_scripts).post(add_scripts).delete(clear_scripts),
        )
        .route("/sim/gates", axum::routing::delete(clear_gates))
        .route("/sim/gates/{name}", post(open_gate).delete(close_gate))
        .route("/sim/limits", get(list_limits).put(replace_limits).delete(clear_limits))
        .route("/sim/requests", get(list_requests).delete(clear_requests))
        .route("/sim/counts", get(counts))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(max_request_bytes))
        .with_state(model)
}

/// Returns the protocols' routes below a base URL. Clients expect different ones.
fn protocols(base: &str) -> Router<Model> {
    Router::new()
        .route(&format!("{base}/chat/completions"), post(complete::chat))
        .route(&format!("{base}/responses"), post(complete::responses))
        .route(&format!("{base}/messages"), post(complete::anthropic))
        .route(&format!("{base}/models/{{call}}"), post(complete::gemini))
        .route(&format!("{base}/model/{{name}}/converse-stream"), post(complete::bedrock))
}

async fn models() -> Response<Body> {
    let owner = "opencode-cloud (simulated)";
    let model = json!({ "id": MODEL, "object": "model", "created": 0, "owned_by": owner });
    json_answer(&json!({ "object": "list", "data": [model] }))
}

async fn healthy() -> Response<Body> {
    json_answer(&json!({ "status": "ok", "model": MODEL }))
}

async fn unknown() -> Response<Body> {
    error(
        StatusCode::NOT_FOUND,
        "no such route: there are /v1/chat/completions, /v1/responses, /v1/messages, \
         /v1beta/models/NAME:streamGenerateContent, /model/NAME/converse-stream, /v1/models, /healthz, \
         /sim/scripts, /sim/gates/NAME, /sim/limits, /sim/requests and /sim/counts",
    )
}

async fn wrong_method() -> Response<Body> {
    error(StatusCode::METHOD_NOT_ALLOWED, "this route does not have that method")
}

async fn list_scripts(State(model): State<Model>) -> Response<Body> {
    json_answer(&json!({ "scripts": model.desk.waiting() }))
}

async fn replace_scripts(
    State(model): State<Model>,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    put_scripts(&model, body, true)
}

async fn add_scripts(
    State(model): State<Model>,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    put_scripts(&model, body, false)
}

fn put_scripts(
    model: &Model,
    body: Result<Bytes, BytesRejection>,
    replace: bool,
) -> Response<Body> {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    match script::parse(&body).and_then(|scripts| model.desk.add(scripts, replace)) {
        Ok(waiting) => json_answer(&json!({ "scripts": waiting })),
        Err(problem) => error(StatusCode::BAD_REQUEST, &problem.to_string()),
    }
}

async fn clear_scripts(State(model): State<Model>) -> Response<Body> {
    model.desk.clear();
    json_answer(&json!({ "scripts": 0 }))
}

async fn open_gate(State(model): State<Model>, Path(name): Path<String>) -> Response<Body> {
    gate_answer(model.desk.set_gate(&name, true), &name, true)
}

async fn close_gate(State(model): State<Model>, Path(name): Path<String>) -> Response<Body> {
    gate_answer(model.desk.set_gate(&name, false), &name, false)
}

async fn clear_gates(State(model): State<Model>) -> Response<Body> {
    model.desk.clear_gates();
    json_answer(&json!({ "gates": 0 }))
}

fn gate_answer(done: Result<(), ScriptError>, name: &str, open: bool) -> Response<Body> {
    match done {
        Ok(()) => json_answer(&json!({ "gate": name, "open": open })),
        Err(problem) => error(StatusCode::BAD_REQUEST, &problem.to_string()),
    }
}

async fn list_limits(State(model): State<Model>) -> Response<Body> {
    json_answer(&json!({ "limits": model.limits.all() }))
}

async fn replace_limits(
    State(model): State<Model>,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    let limits: BTreeMap<String, TokenLimits> = match serde_json::from_slice(&body) {
        Ok(limits) => limits,
        Err(problem) => {
            let problem = format!(
                "send the limits of models by name, such as {{\"*\": {{\"context\": 40000}}}}: {problem}"
            );
            return error(StatusCode::BAD_REQUEST, &problem);
        }
    };
    match model.limits.replace(limits) {
        Ok(()) => list_limits(State(model)).await,
        Err(problem) => error(StatusCode::BAD_REQUEST, &problem.to_string()),
    }
}

async fn clear_limits(State(model): State<Model>) -> Response<Body> {
    match model.limits.replace(BTreeMap::new()) {
        Ok(()) => list_limits(State(model)).await,
        Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, &problem.to_string()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RequestsQuery {
    after: u64,
    #[serde(rename = "match")]
    matching: String,
    limit: usize,
}

impl Default for RequestsQuery {
    fn default() -> Self {
        Self { after: 0, matching: String::new(), limit: MAX_RECORDS_PER_PAGE }
    }
}

async fn list_requests(
    State(model): State<Model>,
    query: Result<Query<RequestsQuery>, QueryRejection>,
) -> Response<Body> {
    match query {
        Ok(Query(query)) => {
            let limit = query.limit.min(MAX_RECORDS_PER_PAGE);
            let requests = model.log.records(query.after, &query.matching, limit);
            json_answer(&json!({ "requests": requests }))
        }
        Err(rejection) => error(rejection.status(), &rejection.body_text()),
    }
}

async fn clear_requests(State(model): State<Model>) -> Response<Body> {
    model.log.clear();
    json_answer(&json!({ "requests": [] }))
}

async fn counts(State(model): State<Model>) -> Response<Body> {
    json_answer(&model.log.counts())
}

fn json_answer(body: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec(body) {
        Ok(bytes) => complete::respond(StatusCode::OK, "application/json", Body::from(bytes)),
        Err(problem) => error(StatusCode::INTERNAL_SERVER_ERROR, &problem.to_string()),
    }
}
