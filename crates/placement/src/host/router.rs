use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use openraft::raft::{AppendEntriesRequest, VoteRequest};
use placement_api::{Heartbeat, Member, NotLeader, PASS_ON, PlaceRequest, PlacementError, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tasks::detached;

use super::Host;
use super::leader::{Leading, Refused};
use super::network::{FOLDER, SentSnapshot};
use super::types::{RaftSnapshot, RaftTypes};

/// The largest request, in bytes. A heartbeat may return 10,000 leases of about 150 bytes.
const MAX_REQUEST_BYTES: usize = 4 * 1024 * 1024;
/// The largest append message, in bytes: 64 entries of 500 commands.
const MAX_APPEND_BYTES: usize = 64 * 1024 * 1024;
/// The largest Raft snapshot, in bytes: about a million leases.
const MAX_SNAPSHOT_BYTES: usize = 256 * 1024 * 1024;

/// The leader's timeouts for calls that a follower passes on. The caller waits 400 ms for a heartbeat, and 2
/// s to place.
const PASS_BEAT: Duration = Duration::from_millis(250);
const PASS_PLACE: Duration = Duration::from_millis(1_500);

/// Returns the routes of the internal listener. If there is a secret, all of them require it.
pub(crate) fn router(host: Arc<Host>) -> Router {
    Router::new()
        .route("/placement/heartbeat", post(heartbeat))
        .route("/placement/place", post(place))
        .route("/placement/status", get(status))
        .route("/placement/secret", get(|| async { Json(done()) }))
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
                .layer(DefaultBodyLimit::max(MAX_APPEND_BYTES))
                .layer(from_fn_with_state(host.clone(), prove_folder)),
        )
        .merge(
            Router::new()
                .route("/placement/raft/snapshot", post(snapshot))
                .layer(DefaultBodyLimit::max(MAX_SNAPSHOT_BYTES))
                .layer(from_fn_with_state(host.clone(), prove_folder)),
        )
        .layer(from_fn(refuse_browsers))
        .layer(from_fn_with_state(host.clone(), prove_secret))
        .with_state(host)
}

/// Checks the secret. Compares in constant time, so that it cannot be guessed byte by byte.
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

/// Refuses requests of browsers: a web page can send some content types to any address. Members, workers and
/// gateways send JSON, without the headers that browsers add.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_browser =
        ["origin", "sec-fetch-site", "cookie"].iter().any(|name| headers.contains_key(*name));
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = kind.is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json")
    });
    let has_body = request.body().size_hint().upper() != Some(0);
    let reason = if is_browser {
        "this listener is for members, workers and gateways, not for browsers"
    } else if has_body && !is_json {
        "a body is sent as application/json"
    } else {
        return next.run(request).await;
    };
    let error = json!({ "code": "invalid", "reason": reason });
    let status =
        if is_browser { StatusCode::FORBIDDEN } else { StatusCode::UNSUPPORTED_MEDIA_TYPE };
    (status, Json(error)).into_response()
}

/// Answers, or names the leader to ask instead.
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

async fn heartbeat(
    State(host): State<Arc<Host>>,
    headers: HeaderMap,
    Json(beat): Json<Heartbeat>,
) -> Response {
    let result = match leading(&host) {
        Ok(leading) => leading.heartbeat(&host, &beat).await,
        Err(refused) => Err(refused),
    };
    answer_or_pass_on(&host, &headers, result, ("/placement/heartbeat", &beat, PASS_BEAT)).await
}

async fn place(
    State(host): State<Arc<Host>>,
    headers: HeaderMap,
    Json(request): Json<PlaceRequest>,
) -> Response {
    let result = match leading(&host) {
        Ok(leading) => leading.place(&host, &request).await,
        Err(refused) => Err(refused),
    };
    answer_or_pass_on(&host, &headers, result, ("/placement/place", &request, PASS_PLACE)).await
}

/// Answers. If another member leads and the caller cannot reach it, asks that member on the caller's behalf,
/// once: the passed-on call does not ask to be passed on again.
async fn answer_or_pass_on<T: Serialize>(
    host: &Host,
    headers: &HeaderMap,
    result: Result<T, Refused>,
    (path, call, limit): (&str, &(impl Serialize + Sync), Duration),
) -> Response {
    if matches!(result, Err(Refused::NotLeader))
        && headers.contains_key(PASS_ON)
        && let Some(leader) = host.leader_url()
    {
        match host.network.pass_on(&leader, path, call, limit).await {
            Ok((status, answer)) => {
                return (status, [(header::CONTENT_TYPE, "application/json")], answer)
                    .into_response();
            }
            Err(error) => tracing::debug!(%error, "the leader does not answer this member either"),
        }
    }
    answer(host, result)
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
    // Detached, so that it ends even if the client leaves: a member must not stay half joined.
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

/// Parses a message between members.
fn message<T: DeserializeOwned>(body: &Bytes) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| {
        tracing::warn!(%error, "a member's message cannot be read; do all have the same version?");
        (StatusCode::BAD_REQUEST, error.to_string())
    })
}

/// Refuses a message for another data folder than this member's. Its old folder was lost, or its number is in
/// use twice. Either way its votes and log are gone, so it must not count as if it remembered them.
async fn prove_folder(State(host): State<Arc<Host>>, request: Request, next: Next) -> Response {
    let meant = request.headers().get(FOLDER);
    if meant.is_none_or(|meant| meant.as_bytes() == host.folder.to_string().as_bytes()) {
        return next.run(request).await;
    }
    // A used folder belongs to its own group; then only this message is wrong.
    if host.raft.is_initialized().await.is_ok_and(|initialized| !initialized) {
        host.displaced.cancel();
    }
    let error = json!({
        "code": "invalid",
        "reason": format!("member {} has another data folder than the one that joined", host.id),
    });
    (StatusCode::CONFLICT, Json(error)).into_response()
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
