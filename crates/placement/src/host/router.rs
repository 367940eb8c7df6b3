use std::io::Cursor;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use placement_api::{Heartbeat, Member, NotLeader, PlaceRequest, PlacementError, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tasks::detached;

use super::Host;
use super::leader::{Leading, Refused};
use super::network::SentSnapshot;
use super::types::{RaftSnapshot, RaftTypes};

/// A heartbeat may give back 10,000 leases of some 150 bytes.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// 64 entries of 500 commands.
const MAX_APPEND_BYTES: usize = 64 * 1024 * 1024;
/// Some million leases.
const MAX_SNAPSHOT_BYTES: usize = 256 * 1024 * 1024;

/// The internal listener's routes. With a secret, every one of them wants it.
pub(crate) fn router(host: Arc<Host>) -> Router {
    Router::new()
        .route("/placement/heartbeat", post(heartbeat))
        .route("/placement/place", post(place))
        .route("/placement/status", get(status))
        .route("/placement/init", post(init))
        .route("/placement/members", post(add_member))
        .route("/placement/members/{id}/remove", post(remove_member))
        .route("/placement/nodes/{node}/drain", post(drain))
        .route("/placement/nodes/{node}/undrain", post(undrain))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .merge(
            Router::new()
                .route("/placement/raft/vote", post(vote))
                .route("/placement/raft/append", post(append))
                .layer(DefaultBodyLimit::max(MAX_APPEND_BYTES)),
        )
        .merge(
            Router::new()
                .route("/placement/raft/snapshot", post(snapshot))
                .layer(DefaultBodyLimit::max(MAX_SNAPSHOT_BYTES)),
        )
        .layer(from_fn_with_state(host.clone(), prove_secret))
        .with_state(host)
}

/// Compares in constant time, so that the secret cannot be guessed byte by byte.
async fn prove_secret(State(host): State<Arc<Host>>, request: Request, next: Next) -> Response {
    if let Some(secret) = &host.secret {
        let shown = request.headers().get(header::AUTHORIZATION);
        let shown = shown.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        if !shown.is_some_and(|shown| bool::from(shown.ct_eq(secret.as_bytes()))) {
            let error = json!({
                "code": "invalid",
                "reason": "the cluster secret is missing or wrong; set --cluster-secret",
            });
            return (StatusCode::UNAUTHORIZED, Json(error)).into_response();
        }
    }
    next.run(request).await
}

/// An answer, or where to ask instead.
fn answer<T: Serialize>(host: &Host, result: Result<T, Refused>) -> Response {
    let error = match result {
        Ok(answer) => return Json(answer).into_response(),
        Err(Refused::NotLeader) => {
            let elsewhere = NotLeader::new(host.leader_url());
            return (StatusCode::MISDIRECTED_REQUEST, Json(elsewhere)).into_response();
        }
        Err(Refused::Answer(error)) => error,
    };
    let status = match &error {
        PlacementError::Unreachable { .. } | PlacementError::NoWorker => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        PlacementError::Superseded => StatusCode::GONE,
        PlacementError::Invalid { .. } => StatusCode::BAD_REQUEST,
    };
    (status, Json(error)).into_response()
}

fn leading(host: &Host) -> Result<Arc<Leading>, Refused> {
    host.leading().ok_or(Refused::NotLeader)
}

async fn heartbeat(State(host): State<Arc<Host>>, Json(beat): Json<Heartbeat>) -> Response {
    let result = match leading(&host) {
        Ok(leading) => leading.heartbeat(&host, &beat).await,
        Err(refused) => Err(refused),
    };
    answer(&host, result)
}

async fn place(State(host): State<Arc<Host>>, Json(request): Json<PlaceRequest>) -> Response {
    let result = match leading(&host) {
        Ok(leading) => leading.place(&host, &request).await,
        Err(refused) => Err(refused),
    };
    answer(&host, result)
}

async fn status(State(host): State<Arc<Host>>) -> Json<Status> {
    Json(host.status())
}

#[derive(Deserialize)]
struct InitRequest {
    members: Vec<Member>,
}

async fn init(State(host): State<Arc<Host>>, Json(request): Json<InitRequest>) -> Response {
    let founded = host.found(&request.members).await;
    answer(&host, founded.map(|()| done()))
}

#[derive(Deserialize)]
struct AddMemberRequest {
    id: u64,
    url: String,
}

async fn add_member(
    State(host): State<Arc<Host>>,
    Json(request): Json<AddMemberRequest>,
) -> Response {
    // To its end, also when the client goes away: a member must not stay half joined.
    let added = match leading(&host) {
        Ok(_) => {
            let host = host.clone();
            detached(async move { host.add_member(request.id, &request.url).await }).await
        }
        Err(refused) => Err(refused),
    };
    answer(&host, added.map(|()| done()))
}

async fn remove_member(State(host): State<Arc<Host>>, Path(id): Path<u64>) -> Response {
    let removed = match leading(&host) {
        Ok(_) => host.remove_member(id).await,
        Err(refused) => Err(refused),
    };
    answer(&host, removed.map(|()| done()))
}

async fn drain(State(host): State<Arc<Host>>, Path(node): Path<String>) -> Response {
    set_drain(&host, node, true).await
}

async fn undrain(State(host): State<Arc<Host>>, Path(node): Path<String>) -> Response {
    set_drain(&host, node, false).await
}

async fn set_drain(host: &Host, node: String, on: bool) -> Response {
    let set = match leading(host) {
        Ok(leading) => leading.drain(node, on).await,
        Err(refused) => Err(refused),
    };
    answer(host, set.map(|()| done()))
}

fn done() -> Value {
    json!({})
}

/// A message between members, read without a content type: both sides are ours.
fn message<T: DeserializeOwned>(body: &Bytes) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| {
        tracing::warn!(%error, "a member's message cannot be read; do all have the same version?");
        (StatusCode::BAD_REQUEST, error.to_string())
    })
}

async fn append(
    State(host): State<Arc<Host>>,
    body: Bytes,
) -> Result<Response, (StatusCode, String)> {
    let message: AppendEntriesRequest<RaftTypes> = message(&body)?;
    Ok(Json(host.raft.append_entries(message).await).into_response())
}

async fn vote(
    State(host): State<Arc<Host>>,
    body: Bytes,
) -> Result<Response, (StatusCode, String)> {
    let message: VoteRequest<u64> = message(&body)?;
    Ok(Json(host.raft.vote(message).await).into_response())
}

async fn snapshot(
    State(host): State<Arc<Host>>,
    body: Bytes,
) -> Result<Response, (StatusCode, String)> {
    let SentSnapshot { vote, meta, state } = message(&body)?;
    let snapshot = RaftSnapshot { meta, snapshot: Box::new(Cursor::new(state.into_bytes())) };
    Ok(Json(host.raft.install_full_snapshot(vote, snapshot).await).into_response())
}
