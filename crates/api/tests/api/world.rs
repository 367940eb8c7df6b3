//! A database with two organisations, and gateways on it.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use api::{
    ApiParts, ApiSettings, ApiState, ModelList, Origins, Site, SpoolSettings, differing_messages,
    router,
};
use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use blobs::Blobs;
use bytes::Bytes;
use checkouts::Checkouts;
use credentials::{Credentials, CredentialsParts, MasterKeys};
use domain::{Clock, FencingToken, Incarnation, ModelRef, OrgId, SystemClock};
use egress::{Egress, Rules};
use futures::StreamExt;
use http::{Request, Response, StatusCode};
use placement_api::{
    Heartbeat, HeartbeatReply, Lease, PlaceRequest, Placed, Placement, PlacementError, Worker,
};
use sandbox::{End, HiddenPaths, Network, Outcome, Output, Sandbox, SandboxError};
use serde_json::Value;
use signals::{InProcess, Signals};
use store::{SessionFilter, Store, StoreOptions};
use tasks::{CancellationToken, TaskGroup};
use testkit::TestDatabase;
use tokio::runtime::Handle;
use tower::ServiceExt;

/// A placement that assigns everything to one worker, and remembers the requests.
pub(crate) struct OneWorker {
    pub(crate) incarnation: Incarnation,
    pub(crate) asked: Mutex<Vec<PlaceRequest>>,
}

#[async_trait]
impl Placement for OneWorker {
    async fn heartbeat(&self, _: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        Err(PlacementError::NoWorker)
    }

    async fn place(&self, request: PlaceRequest) -> Result<Placed, PlacementError> {
        let location = request.location.clone();
        self.asked.lock().expect("no panic under it").push(request);
        let worker = Worker {
            incarnation: self.incarnation,
            node: "test".into(),
            url: "http://127.0.0.1:1".into(),
            slots: 1,
        };
        Ok(Placed { worker, lease: Lease { location, token: FencingToken(1) } })
    }
}

/// Runs commands as they are: a repository that got something run would get it here.
struct NoWalls;

#[async_trait]
impl Sandbox for NoWalls {
    async fn run(
        &self,
        command: sandbox::Command,
        _: &CancellationToken,
    ) -> Result<Outcome, SandboxError> {
        let ran = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .envs(command.env)
            .current_dir(&command.directory)
            .output()
            .await
            .expect("the program is there");
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        let (total_bytes, line_breaks) = (text.len() as u64, text.matches('\n').count() as u64);
        let output = Output {
            head: text,
            tail: String::new(),
            total_bytes,
            line_breaks,
            file: None,
            lost_bytes: 0,
            file_error: None,
        };
        Ok(Outcome {
            end: End::Exited(ran.status.code().unwrap_or(-1)),
            output,
            duration: std::time::Duration::ZERO,
            leftovers: 0,
            limits: Vec::new(),
            network: Network::Host,
            refused: Vec::new(),
            notes: Vec::new(),
        })
    }
}

pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) signals: Arc<InProcess>,
    pub(crate) placement: Arc<OneWorker>,
    pub(crate) tasks: TaskGroup,
    pub(crate) org: OrgId,
    /// A stranger's organisation.
    pub(crate) theirs: OrgId,
    /// The organisation's key, and a stranger's.
    pub(crate) key: String,
    pub(crate) stranger: String,
    pub(crate) directory: tempfile::TempDir,
    /// The blobs that workers and gateways share.
    pub(crate) blobs: Blobs,
    secrets_key: String,
    /// The addresses that organisations may send the service to.
    pub(crate) rules: Rules,
    blob_folder: tempfile::TempDir,
    pub(crate) database: TestDatabase,
}

impl World {
    pub(crate) async fn new() -> Result<Self> {
        let database = testkit::database().await?;
        let store = Store::connect(&StoreOptions::new(database.store_url()))?;
        let now = SystemClock::new().now_ms();
        let theirs = OrgId::random();
        let mut keys = Vec::new();
        for (org, name) in [(OrgId::FIRST, "ours"), (theirs, "theirs")] {
            store.ensure_organisation(org, name.into(), now).await?;
            let (key, row) = auth::generate_key(name);
            store.create_key(org, row, now).await?;
            keys.push(key);
        }
        let stranger = keys.pop().context("two keys")?;
        let key = keys.pop().context("two keys")?;
        let incarnation = Incarnation::random();
        let folder = tempfile::tempdir()?;
        Ok(Self {
            store,
            signals: Arc::new(InProcess::new()),
            placement: Arc::new(OneWorker { incarnation, asked: Mutex::default() }),
            tasks: TaskGroup::root("test"),
            org: OrgId::FIRST,
            theirs,
            key,
            stranger,
            directory: tempfile::tempdir()?,
            blobs: Blobs::in_folder(folder.path())?,
            secrets_key: MasterKeys::generate("k1"),
            rules: Rules::everything(),
            blob_folder: folder,
            database,
        })
    }

    pub(crate) fn settings() -> ApiSettings {
        ApiSettings {
            origins: Origins(vec!["https://code.example.com".parse().expect("an origin")]),
            allow_local_paths: true,
            default_directory: None,
            default_model: ModelRef::new("simulated", "echo").into(),
            default_agent: "build".into(),
            site: Site::new("http://127.0.0.1:4096".parse().expect("a URL"), Vec::new(), "test"),
            version: "0.0.0-test".into(),
            simulated: true,
            hold: std::time::Duration::from_secs(120),
            upload_quota: u64::MAX,
        }
    }

    /// Starts a gateway with its own signals.
    pub(crate) fn gateway_on(&self, signals: Arc<dyn Signals>) -> (Router, ApiState) {
        let parts = ApiParts { signals, ..self.parts() };
        let state = ApiState::start(parts);
        (router(state.clone()), state)
    }

    /// Returns where uploads wait.
    pub(crate) fn spools(&self) -> SpoolSettings {
        let folder = self.blob_folder.path().join("uploads");
        let spools = SpoolSettings { folder, most_bytes: 8 << 30, room: Arc::new(|_| None) };
        spools.empty_folder().expect("a folder");
        spools
    }

    /// Returns the parts of a gateway.
    pub(crate) fn parts(&self) -> ApiParts {
        ApiParts {
            store: self.store.clone(),
            signals: self.signals.clone(),
            placement: self.placement.clone(),
            blobs: Some(self.blobs.clone()),
            checkouts: Some(self.checkouts()),
            credentials: self.credentials(),
            models: ModelList::default(),
            clock: Arc::new(SystemClock::new()),
            tasks: self.tasks.child("gateway"),
            settings: Self::settings(),
            spools: self.spools(),
        }
    }

    /// Returns what looks into directories of this machine, with a sandbox that keeps nothing apart.
    pub(crate) fn checkouts(&self) -> Checkouts {
        let hidden = HiddenPaths::new([self.directory.path().join("hidden")]);
        Checkouts::new(hidden, Some(Arc::new(NoWalls)), true)
    }

    /// Returns credentials sealed with the key that all gateways share.
    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::new(CredentialsParts {
            store: self.store.clone(),
            keys: Some(MasterKeys::parse(&self.secrets_key).expect("a key")),
            egress: Egress::new(&self.rules.clone().into()).expect("a client"),
            catalog: None,
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Runs statements as the superuser, for rows that no role of ours writes so.
    pub(crate) async fn tamper(&self, statements: &str) -> Result<()> {
        self.database.tamper(statements.to_owned()).await
    }

    /// Returns the URL of the database as stores use it.
    pub(crate) fn database_url(&self) -> String {
        self.database.store_url()
    }

    pub(crate) fn gateway(&self) -> Router {
        self.gateway_on(self.signals.clone()).0
    }

    pub(crate) fn path(&self) -> String {
        let path = self.directory.path().canonicalize().expect("it is there");
        path.to_str().expect("a plain path").to_owned()
    }
}

impl Drop for World {
    /// Proves for every session of a test that passed: events fold into exactly the messages that its rows have.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let check = async {
            let store = Store::connect(&StoreOptions::new(self.database.store_url()))?;
            for row in store.sessions(self.org, SessionFilter::default(), 1_000).await?.rows {
                let id = row.at.session;
                let differing = differing_messages(&store, self.org, &id).await?;
                ensure!(differing.is_empty(), "{id}: {differing:?} fold otherwise than their rows");
            }
            store.close().await; // the database is dropped next
            Ok(())
        };
        let checked = tokio::task::block_in_place(|| Handle::current().block_on(check));
        checked.expect("the messages of the log are those of the rows");
    }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
}

pub(crate) fn request(method: &str, path: &str, key: &str, body: Option<&Value>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if !key.is_empty() {
        builder = builder.header("authorization", format!("Bearer {key}"));
    }
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    builder.body(body).expect("a request")
}

pub(crate) async fn json(response: Response<Body>) -> Value {
    let bytes =
        axum::body::to_bytes(response.into_body(), 64 << 20).await.expect("the body arrives");
    if bytes.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(&bytes).expect("the body is JSON")
}

/// Makes one call, and returns status and body.
pub(crate) async fn call(
    router: &Router,
    method: &str,
    path: &str,
    key: &str,
    body: Option<Value>,
) -> (StatusCode, Value) {
    let response = send(router, request(method, path, key, body.as_ref())).await;
    (response.status(), json(response).await)
}

/// Makes a call that must succeed, and returns its body.
pub(crate) async fn ok(
    router: &Router,
    method: &str,
    path: &str,
    key: &str,
    body: Option<Value>,
) -> Value {
    let (status, body) = call(router, method, path, key, body).await;
    assert!(status.is_success(), "{method} {path}: {status} {body}");
    body
}

/// One frame of server-sent events.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Sse {
    pub(crate) id: Option<i64>,
    /// The incarnation in the frame's id.
    pub(crate) incarnation: Option<String>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

/// A reader of server-sent events.
pub(crate) struct SseReader {
    stream: std::pin::Pin<Box<dyn futures::Stream<Item = Result<Bytes, axum::Error>> + Send>>,
    rest: String,
}

impl SseReader {
    pub(crate) fn new(response: Response<Body>) -> Self {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert_eq!(response.headers()["cache-control"], "no-cache, no-transform");
        Self { stream: Box::pin(response.into_body().into_data_stream()), rest: String::new() }
    }

    /// Returns the next frame with data; `None` at the end of the stream. It is one that the documents have.
    pub(crate) async fn next(&mut self) -> Option<Sse> {
        loop {
            while let Some((frame, rest)) = self.rest.split_once("\n\n") {
                let mut sse = Sse::default();
                let mut has_data = false;
                for line in frame.lines() {
                    match line.split_once(": ") {
                        Some(("id", id)) => {
                            let (seq, of) = id.split_once('.').expect("a number of a session");
                            sse.id = Some(seq.parse().expect("a number"));
                            sse.incarnation = Some(of.to_owned());
                        }
                        Some(("event", event)) => sse.event = event.to_owned(),
                        Some(("data", data)) => {
                            has_data = true;
                            sse.data = serde_json::from_str(data).expect("data is JSON");
                        }
                        _ => {}
                    }
                }
                self.rest = rest.to_owned();
                if has_data {
                    let checked = crate::openapi::check_sent(&sse.event, &sse.data);
                    checked.expect("the documents say what is sent");
                    return Some(sse);
                }
            }
            let bytes = self.stream.next().await?.expect("the stream goes on");
            self.rest.push_str(std::str::from_utf8(&bytes).expect("frames are UTF-8"));
        }
    }

    /// Returns all frames up to and including the first for which `is_last` holds.
    pub(crate) async fn until(&mut self, is_last: impl Fn(&Sse) -> bool) -> Vec<Sse> {
        let mut frames = Vec::new();
        let patience = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
        loop {
            let next = tokio::time::timeout_at(patience, self.next()).await;
            let frame = match next {
                Ok(Some(frame)) => frame,
                Ok(None) => panic!("the stream ended after {frames:#?}"),
                Err(_) => panic!("what was waited for did not come in time, but {frames:#?}"),
            };
            let done = is_last(&frame);
            frames.push(frame);
            if done {
                return frames;
            }
        }
    }
}
