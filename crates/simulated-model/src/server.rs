//! Listens, serves connections, and stops.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HeaderName, HeaderValue};
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;

use crate::complete::Model;
use crate::desk::Desk;
use crate::flow::SimulatedCut;
use crate::handle::Handle;
use crate::limits::{Limits, TokenLimits};
use crate::log::{Bounds, Log};
use crate::routes;

/// How long to wait when no connection can be accepted, e.g. for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen. There is no authentication: keep it on loopback. Default 127.0.0.1, any port.
    pub bind: SocketAddr,
    /// Whether the log keeps bodies. Default yes; without them hashes and counts remain.
    pub log_bodies: bool,
    /// How many requests the log keeps. Default 10,000.
    pub log_requests: usize,
    /// Bodies larger than this are not kept, in bytes. Default 256 KiB.
    pub log_body_bytes: usize,
    /// The newest bodies are kept up to this sum, in bytes. Default 64 MiB.
    pub log_total_body_bytes: usize,
    /// Larger requests are refused with 413, in bytes. Default 32 MiB.
    pub max_request_bytes: usize,
    /// How many tokens each model takes, by its name or [`ALL_MODELS`](crate::ALL_MODELS). Default none.
    pub limits: BTreeMap<String, TokenLimits>,
    /// More connections than this wait to be accepted. Default 16,384.
    pub max_connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            log_bodies: true,
            log_requests: 10_000,
            log_body_bytes: 256 * 1024,
            log_total_body_bytes: 64 * 1024 * 1024,
            max_request_bytes: 32 * 1024 * 1024,
            limits: BTreeMap::new(),
            max_connections: 16_384,
        }
    }
}

/// The simulated model. [`start`](Self::start) it.
#[derive(Debug)]
pub struct SimulatedModel;

impl SimulatedModel {
    /// Listens and serves in a task of its own, on the current tokio runtime. The error is of the
    /// bind: the port is taken, or is not this user's to take.
    pub async fn start(options: Options) -> io::Result<Running> {
        let listener = TcpListener::bind(options.bind).await?;
        let addr = listener.local_addr()?;
        let bounds = Bounds {
            requests: options.log_requests,
            body_bytes: options.log_body_bytes,
            total_body_bytes: if options.log_bodies { options.log_total_body_bytes } else { 0 },
        };
        let (log, desk) = (Arc::new(Log::new(bounds)), Arc::new(Desk::default()));
        let limits = Arc::new(Limits::new(options.limits));
        let model = Model { log, desk, limits, memory: Arc::default() };
        let router = routes::router(model.clone(), options.max_request_bytes);
        let stop = CancellationToken::new();
        let serving = serve(listener, router, options.max_connections, stop.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "owned by Running, which ends it on shutdown or drop; a test's server needs no supervisor"
        )]
        let task = tokio::spawn(serving);
        Ok(Running { addr, handle: Handle::new(model), stop: stop.drop_guard(), task })
    }
}

/// A server that runs until it is shut down or dropped.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Scripts it and tells what it was asked.
    pub handle: Handle,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Running {
    /// The base URL for clients of the protocol: `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.root_url())
    }

    /// The URL below which `/sim/…` is: `http://127.0.0.1:PORT`.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops listening and drops all connections, whatever they wait for. They are logged as if their
    /// clients had gone.
    pub async fn shutdown(self) {
        self.stop.disarm().cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the simulated model's server ended badly");
        }
    }
}

async fn serve(
    listener: TcpListener,
    router: Router,
    max_connections: usize,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next(), if !connections.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection of the simulated model ended badly");
                }
            }
            accepted = listener.accept(), if connections.len() < max_connections => match accepted {
                Ok((socket, _)) => {
                    connections.spawn(serve_connection(socket, router.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the simulated model cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    connections.shutdown().await;
}

/// Serves one connection. Hyper is used directly, since an axum handler cannot drop its connection.
async fn serve_connection(socket: TcpStream, router: Router) {
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let service = service_fn(move |request| answer(router.clone(), request));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(socket), service)
        .await;
    if let Err(error) = served {
        // Clients that go away and scripted cuts end here; the log of requests tells of both.
        tracing::debug!(%error, "connection closed");
    }
}

async fn answer(
    router: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, SimulatedCut> {
    let Ok(mut response) = router.oneshot(request.map(Body::new)).await;
    if let Some(cut) = response.extensions().get::<SimulatedCut>() {
        return Err(*cut);
    }
    let name = HeaderName::from_static("x-simulated-model");
    response.headers_mut().insert(name, HeaderValue::from_static("true"));
    Ok(response)
}
