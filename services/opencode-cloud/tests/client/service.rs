//! A service that replays a scripted log, like a gateway.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use client::ClientOptions;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

pub(crate) const SESSION: &str = "ses_1";
pub(crate) const KEY: &str = "oc_a_key_for_tests_only";

/// One step of a connection to the log. After the last step it stays open in silence.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A durable event: its seq, kind and payload. `$MSG` becomes the prompt's id.
    Event(i64, &'static str, Value),
    /// Live text of `prt_1`: offset and text.
    Delta(u64, &'static str),
    /// A frame as it is.
    Raw(&'static str),
    /// Waits until the prompt is admitted.
    Prompt,
    /// Waits until the session is interrupted.
    Abort,
    /// Breaks the connection.
    Cut,
    /// Ends the stream cleanly.
    End,
}

/// The requests that the service got.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// `METHOD path?query`, except for the log.
    pub(crate) calls: Vec<String>,
    /// The `Last-Event-ID` of each connection to the log.
    pub(crate) resumed_after: Vec<String>,
    /// Bodies of the prompts, refused ones included.
    pub(crate) prompts: Vec<Value>,
    /// Bodies of the requests for projects.
    pub(crate) projects: Vec<Value>,
    /// Bodies of the requests for new sessions.
    pub(crate) created: Vec<Value>,
}

struct Inner {
    connections: Mutex<VecDeque<Vec<Step>>>,
    /// The statuses for the next prompts.
    refusals: Mutex<VecDeque<u16>>,
    /// The calls that were already refused once; `None` refuses none.
    stumbled: Option<Mutex<HashSet<String>>>,
    seen: Mutex<Seen>,
    /// Whether it says that sessions may work in directories of this machine; `None` says it to nobody.
    local_paths: Mutex<Option<bool>>,
    prompted: watch::Sender<Option<String>>,
    aborted: watch::Sender<bool>,
}

#[derive(Clone)]
pub(crate) struct Service {
    inner: Arc<Inner>,
    pub(crate) url: String,
}

impl Service {
    pub(crate) async fn start(connections: Vec<Vec<Step>>) -> Self {
        Self::refusing(&[], connections).await
    }

    /// Like [`Service::start`], but answers the first prompts with these statuses.
    pub(crate) async fn refusing(refusals: &[u16], connections: Vec<Vec<Step>>) -> Self {
        Self::serve(refusals, None, connections).await
    }

    /// Like [`Service::start`], but answers the first of each call with 503, as if its database had just come back.
    pub(crate) async fn stumbling(connections: Vec<Vec<Step>>) -> Self {
        Self::serve(&[], Some(Mutex::default()), connections).await
    }

    async fn serve(
        refusals: &[u16],
        stumbled: Option<Mutex<HashSet<String>>>,
        connections: Vec<Vec<Step>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let inner = Arc::new(Inner {
            connections: Mutex::new(connections.into()),
            refusals: Mutex::new(refusals.iter().copied().collect()),
            stumbled,
            seen: Mutex::default(),
            local_paths: Mutex::new(Some(true)),
            prompted: watch::Sender::new(None),
            aborted: watch::Sender::new(false),
        });
        let router = Router::new().fallback(answer).with_state(inner.clone());
        #[expect(clippy::disallowed_methods, reason = "a test's server ends with its runtime")]
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { inner, url }
    }

    pub(crate) fn options(&self) -> ClientOptions {
        ClientOptions { url: Some(self.url.clone()), key: Some(KEY.into()) }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.inner.seen.lock().expect("no test panics while it looks")
    }

    /// Says this from now on about directories of this machine, or refuses to say it.
    pub(crate) fn say_of_paths(&self, local_paths: Option<bool>) {
        *lock(&self.inner.local_paths) = local_paths;
    }

    /// Waits until the service has the prompt.
    pub(crate) async fn prompted(&self) {
        let mut prompted = self.inner.prompted.subscribe();
        prompted.wait_for(Option::is_some).await.expect("the service lives");
    }
}

async fn answer(
    State(inner): State<Arc<Inner>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if uri.path() == "/healthz" {
        return StatusCode::OK.into_response();
    }
    let key = headers.get("authorization").and_then(|value| value.to_str().ok());
    if key != Some(&format!("Bearer {KEY}")) {
        return refusal(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", "no such key");
    }
    let path = uri.path();
    let call = format!("{method} {path}");
    if inner.stumbled.as_ref().is_some_and(|stumbled| lock(stumbled).insert(call)) {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "not now");
    }
    if path == "/platform/session/ses_1/log"
        && uri.query().is_some_and(|q| q.contains("follow=true"))
    {
        let after = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        lock(&inner.seen).resumed_after.push(after.unwrap_or("-").to_owned());
        return log(&inner);
    }
    lock(&inner.seen).calls.push(format!("{method} {uri}"));
    if let Some(answer) = changed(&method, path, &body) {
        return answer;
    }
    match (method.as_str(), path) {
        ("POST", "/project/init") => {
            let asked: Value = serde_json::from_slice(&body).expect("a JSON body");
            lock(&inner.seen).projects.push(asked);
            Json(json!({"id": "prj_1"})).into_response()
        }
        ("GET", "/platform/me") => match *lock(&inner.local_paths) {
            Some(local_paths) => Json(json!({"local_paths": local_paths})).into_response(),
            None => refusal(StatusCode::FORBIDDEN, "FORBIDDEN", "this needs `me.read`"),
        },
        ("GET", "/config") => Json(json!({"model": "sim/simulated"})).into_response(),
        ("POST", "/project/prj_1/session") => {
            let asked: Value = serde_json::from_slice(&body).expect("a JSON body");
            lock(&inner.seen).created.push(asked);
            Json(session()).into_response()
        }
        ("GET", "/platform/model") => Json(json!({ "default": "sim/simulated", "models": [
            { "id": "sim/simulated", "variants": ["high"] },
        ] }))
        .into_response(),
        ("GET", "/platform/session/ses_1") => Json(session()).into_response(),
        // The same session by a longer id, of which `archived` lists know.
        ("GET", "/platform/session/ses_longer") => Json(session()).into_response(),
        ("GET", "/platform/session")
            if uri.query().is_some_and(|q| q.contains("archived=true")) =>
        {
            let mut longer = session();
            longer["id"] = json!("ses_longer");
            Json([session(), longer]).into_response()
        }
        ("GET", "/platform/session") => {
            let query = uri.query().unwrap_or_default();
            let is_elsewhere = query.contains("directory=") && !query.contains("directory=%2Fsrv");
            Json(if is_elsewhere { vec![] } else { vec![session()] }).into_response()
        }
        ("GET", "/platform/session/ses_1/log") => {
            let first = json!({"seq": 1, "id": "evt_1", "time": 1, "type": "drain.ended",
                               "data": {"outcome": "completed"}});
            let is_start = uri.query().is_some_and(|query| query.contains("after=0"));
            Json(if is_start { vec![first] } else { vec![] }).into_response()
        }
        ("POST", "/platform/session/ses_1/message") => {
            let prompt: Value = serde_json::from_slice(&body).expect("a JSON body");
            let id = prompt["messageID"].as_str().expect("an id").to_owned();
            lock(&inner.seen).prompts.push(prompt);
            if let Some(status) = lock(&inner.refusals).pop_front() {
                let status = StatusCode::from_u16(status).expect("a status");
                return refusal(status, "UNAVAILABLE", "not now");
            }
            inner.prompted.send_replace(Some(id));
            Json(json!({"info": {}, "parts": []})).into_response()
        }
        ("POST", "/platform/session/ses_1/abort") => {
            inner.aborted.send_replace(true);
            let resumed = body.windows(4).any(|bytes| bytes == b"true");
            Json(json!({"interrupted": true, "resumed": resumed})).into_response()
        }
        ("GET", "/platform/explain/trn_1") if uri.query() == Some("body=true") => {
            "{\"exact\": \"bytes\" }".into_response()
        }
        ("GET", "/platform/explain/trn_2") => {
            refusal(StatusCode::CONFLICT, "CONFLICT", "encoder changed")
        }
        ("POST", "/platform/session/ses_1/rebuild") => Json(json!({
            "session": SESSION, "exact": false, "events": 3, "missing": ["m: 1"], "added": [],
        }))
        .into_response(),
        ("GET", "/platform/check") => Json(json!([])).into_response(),
        _ => refusal(StatusCode::NOT_FOUND, "NOT_FOUND", "not found"),
    }
}

/// Returns the answers to calls that change a session.
fn changed(method: &Method, path: &str, body: &Bytes) -> Option<Response> {
    let below = path.strip_prefix("/platform/session/ses_1")?;
    let used = |input| json!({"tokens": {"input": input, "output": 2}, "cost": 0.5});
    let answer = match (method.as_str(), below) {
        ("PATCH", "") => {
            let asked: Value = serde_json::from_slice(body).expect("a JSON body");
            let mut renamed = session();
            renamed["title"] = asked["title"].clone();
            renamed
        }
        ("POST", "/compact") => {
            json!({"id": "msg_c", "seq": 2, "delivery": "queue", "first": true})
        }
        ("GET", "/inbox") => json!([{"id": "msg_c", "kind": "compaction", "delivery": "queue",
            "seq": 2, "time": {"created": 1}}]),
        ("PATCH", "/inbox/msg_c") => json!({"id": "msg_c", "delivery": "steer"}),
        ("POST", "/resume") => json!({"resumed": true}),
        ("POST", "/wait") => json!({"busy": true, "outcome": null, "seq": 3}),
        ("GET", "/children") => json!([session()]),
        ("GET", "/usage") => json!({"session": used(1), "tree": used(3), "sessions": 2}),
        ("GET", "/context") => json!({"plan": {"a": 1}}),
        ("POST", "/fork") => {
            let asked: Value = serde_json::from_slice(body).expect("a JSON body");
            let mut fork = session();
            fork["id"] = asked["id"].clone();
            fork["directory"] =
                json!(if asked["files"] == "copy" { "/workspace/own" } else { "/srv" });
            fork
        }
        ("POST", "/move") => json!({"id": "msg_m", "seq": 2, "delivery": "steer", "first": true}),
        ("POST", "/revert") => {
            let asked: Value = serde_json::from_slice(body).expect("a JSON body");
            assert!(asked["id"].as_str().is_some_and(|id| id.starts_with("msg_")), "{asked}");
            let files = if asked["files"] == true { json!([{"file": "a.txt"}]) } else { json!([]) };
            let mut reverted = session();
            reverted["revert"] = json!({"messageID": asked["messageID"], "files": files});
            reverted
        }
        ("POST", "/unrevert" | "/revert/commit") => session(),
        ("GET", "/diff") => json!({"files": [{"file": "a.txt", "status": "added", "additions": 2,
            "deletions": 0, "patch": "+++ b/a.txt"}], "more": 0}),
        ("DELETE", "" | "/inbox/msg_c" | "/context/plan") | ("PUT", "/context/plan") => {
            return Some(StatusCode::NO_CONTENT.into_response());
        }
        _ => return None,
    };
    Some(Json(answer).into_response())
}

fn session() -> Value {
    json!({
        "id": SESSION, "projectID": "prj_1", "directory": "/srv", "title": "A title", "agent": "build",
        "busy": false, "seq": 0, "time": {"created": 1, "updated": 2},
        "tokens": {"input": 0, "output": 0},
    })
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({"error": {"code": code, "message": message}, "request_id": "r1"});
    (status, Json(body)).into_response()
}

fn log(inner: &Arc<Inner>) -> Response {
    let steps = lock(&inner.connections).pop_front();
    let steps = stream::iter(steps.unwrap_or_default()).chain(stream::pending());
    let inner = inner.clone();
    let frames = steps
        .take_while(|step| futures::future::ready(!matches!(step, Step::End)))
        .then(move |step| play(inner.clone(), step));
    // The client must see a broken connection, so the body fails.
    let frames = frames.map(|frame| frame.ok_or_else(|| io::Error::other("cut")));
    ([("content-type", "text/event-stream")], Body::from_stream(frames)).into_response()
}

/// Returns the bytes of a step; `None` breaks the connection.
async fn play(inner: Arc<Inner>, step: Step) -> Option<String> {
    let message = inner.prompted.borrow().clone().unwrap_or_default();
    Some(match step {
        Step::Event(seq, kind, data) => {
            let event = json!({"seq": seq, "id": format!("evt_{seq}"), "time": 1, "type": kind, "data": data});
            let event = event.to_string().replace("$MSG", &message);
            format!("id: {seq}\nevent: {kind}\ndata: {event}\n\n")
        }
        Step::Delta(offset, text) => {
            let delta = json!({"message": "msg_a", "part": "prt_1", "kind": "text", "offset": offset, "text": text});
            format!("event: delta\ndata: {delta}\n\n")
        }
        Step::Raw(frame) => frame.to_owned(),
        Step::Prompt => {
            let mut prompted = inner.prompted.subscribe();
            prompted.wait_for(Option::is_some).await.expect("the sender lives");
            ": ping\n\n".to_owned()
        }
        Step::Abort => {
            let mut aborted = inner.aborted.subscribe();
            aborted.wait_for(|aborted| *aborted).await.expect("the sender lives");
            ": ping\n\n".to_owned()
        }
        Step::Cut | Step::End => {
            for _ in 0..8 {
                tokio::task::yield_now().await; // earlier steps must be sent first
            }
            return None;
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no handler panics")
}
