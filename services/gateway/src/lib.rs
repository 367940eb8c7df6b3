//! The gateway role: the API and the console on a listener, and an orderly shutdown.
//!
//! ```text
//! clients ──HTTP, TLS──▶ listener ─┬▶ api::router     stop: not ready ─▶ streams end ─▶ requests finish
//!                                  └▶ console::router
//! ```
//!
//! Absent on purpose: every route; those are in `api` and `console`.

mod listener;
mod paced_body;
mod proxies;
mod socket;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use api::{ApiParts, ApiState, router};
use axum::extract::Request;
use axum::middleware::map_request;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;
use tower_http::timeout::RequestBodyTimeoutLayer;

use self::paced_body::PacedBody;

pub use listener::ListenerLimits;
pub use proxies::{
    ProxyHeader, ProxyNetwork, ProxyNetworkError, TrustedProxies, UnknownProxyHeader,
};
pub use socket::SocketLimits;
pub use tls::{LOOK, Tls, TlsError, TlsOptions};

const LISTENER: TaskKind = TaskKind::new("gateway listener", OnError::StopRole, OnCancel::Wait);
const CERTIFICATE: TaskKind = TaskKind::new("certificate", OnError::Log, OnCancel::Abort);

/// The settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How long `/readyz` answers 503 before streams end, so that a load balancer notices.
    pub notice: Duration,
    /// How long running requests may take to finish.
    pub grace: Duration,
    /// The limits on its clients.
    pub limits: ListenerLimits,
    /// The proxies whose word about a client's address counts.
    pub proxies: TrustedProxies,
}

impl Default for GatewayOptions {
    /// Returns no notice (`up` has no load balancer in front of it) and 5 s of grace.
    fn default() -> Self {
        let limits = ListenerLimits::default();
        Self {
            notice: Duration::ZERO,
            grace: Duration::from_secs(5),
            limits,
            proxies: TrustedProxies::default(),
        }
    }
}

/// A running gateway.
pub struct Gateway {
    address: SocketAddr,
    scheme: &'static str,
    state: ApiState,
    listener: TaskGroup,
    options: GatewayOptions,
}

/// Serves the API on `listener` in the group of `parts`, with `tls` if it is given.
///
/// # Errors
/// When the listener has no address any more, or the library has no TLS.
pub fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    options: GatewayOptions,
    parts: ApiParts,
) -> io::Result<Gateway> {
    let address = listener.local_addr()?;
    let group = parts.tasks.child("listener");
    let state = ApiState::start(parts);
    let limits = options.limits;
    // A path that both have would stop us here.
    let app = router(state.clone()).merge(console::router());
    let app = app
        .layer(RequestBodyTimeoutLayer::new(limits.body))
        .layer(map_request(async |request: Request| request.map(PacedBody::wrap)));
    let (stop, connections) = (group.token(), group.clone());
    let acceptor = tls.as_ref().map(Tls::acceptor).transpose().map_err(io::Error::other)?;
    let scheme = if acceptor.is_some() { "https" } else { "http" };
    let proxies = options.proxies.clone();
    let served = listener::serve(listener, acceptor, app, limits, proxies, connections, stop);
    group.spawn(LISTENER, served);
    if let Some(tls) = tls {
        group.spawn(CERTIFICATE, tls.follow());
    }
    Ok(Gateway { address, scheme, state, listener: group, options })
}

impl Gateway {
    /// Returns the gateway's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Shuts down: becomes unready, then tells streams to reconnect elsewhere, then waits for running requests.
    pub async fn shutdown(self) {
        self.state.stop_being_ready();
        tokio::time::sleep(self.options.notice).await;
        self.state.end_streams();
        self.listener.shutdown(self.options.grace).await;
    }
}
