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

/// The pause after a failed accept, for example when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on. There is no authentication: keep it on loopback. Default 127.0.0.1, any port.
    pub bind: SocketAddr,
    /// Whether the log keeps bodies. Default yes; otherwise it keeps hashes and counts.
    pub log_bodies: bool,
    /// The number of requests in the log. Default 10,000.
    pub log_requests: usize,
    /// The largest body to keep, in bytes. Default 256 KiB.
    pub log_body_bytes: usize,
    /// The most bytes of all kept bodies; the newest are kept. Default 64 MiB.
    pub log_total_body_bytes: usize,
    /// The largest request, in bytes; larger ones get 413. Default 32 MiB.
    pub max_request_bytes: usize,
    /// The token limits of models, by name or [`ALL_MODELS`](crate::ALL_MODELS). Default none.
    pub limits: BTreeMap<String, TokenLimits>,
    /// The most connections; more wait to be accepted. Default 16,384.
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
    /// Listens, and serves in its own task on the current tokio runtime. Fails if the port is taken or not allowed
    /// for this user.
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
    /// The address that it listens on.
    pub addr: SocketAddr,
    /// Scripts it and reads its log.
    pub handle: Handle,
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns the base URL for clients of the protocol: `http://127.0.0.1:PORT/v1`.
    pub fn url(&self) -> String {
        format!("{}/v1", self.root_url())
    }

    /// Returns the URL above `/sim/…`: `http://127.0.0.1:PORT`.
    pub fn root_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Stops listening and drops all connections, whatever they wait for. The log records them as if their clients
    /// had disconnected.
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

/// Serves one connection. Uses hyper directly, since an axum handler cannot drop its connection.
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
        // Disconnected clients and scripted cuts end here. The log of requests records both.
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
