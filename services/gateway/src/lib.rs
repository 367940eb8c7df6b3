//! The gateway role: the API and the console on a listener, and an orderly shutdown.
//!
//! ```text
//! clients ──HTTP──▶ listener ─┬▶ api::router          stop: not ready ─▶ streams end ─▶ requests finish
//!                             └▶ console::router
//! ```
//!
//! Absent on purpose: every route; those are in `api` and `console`.

mod listener;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use api::{ApiParts, ApiState, router};
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;
use tower_http::timeout::RequestBodyTimeoutLayer;

pub use listener::ListenerLimits;

const LISTENER: TaskKind = TaskKind::new("gateway listener", OnError::StopRole, OnCancel::Wait);

/// The settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How long `/readyz` answers 503 before streams end, so that a load balancer notices.
    pub notice: Duration,
    /// How long running requests may take to finish.
    pub grace: Duration,
    /// The limits on its clients.
    pub limits: ListenerLimits,
}

impl Default for GatewayOptions {
    /// Returns no notice (`up` has no load balancer in front of it) and 5 s of grace.
    fn default() -> Self {
        let limits = ListenerLimits::default();
        Self { notice: Duration::ZERO, grace: Duration::from_secs(5), limits }
    }
}

/// A running gateway.
pub struct Gateway {
    address: SocketAddr,
    state: ApiState,
    listener: TaskGroup,
    options: GatewayOptions,
}

/// Serves the API on `listener` in the group of `parts`.
///
/// # Errors
/// When the listener has no address any more.
pub fn serve(
    listener: TcpListener,
    options: GatewayOptions,
    parts: ApiParts,
) -> io::Result<Gateway> {
    let address = listener.local_addr()?;
    let group = parts.tasks.child("listener");
    let state = ApiState::start(parts);
    let limits = options.limits;
    // A path that both have would stop us here.
    let app = router(state.clone()).merge(console::router());
    let app = app.layer(RequestBodyTimeoutLayer::new(limits.body));
    let (stop, connections) = (group.token(), group.clone());
    group.spawn(LISTENER, listener::serve(listener, app, limits, connections, stop));
    Ok(Gateway { address, state, listener: group, options })
}

impl Gateway {
    /// Returns the gateway's URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Shuts down: becomes unready, then tells streams to reconnect elsewhere, then waits for running requests.
    pub async fn shutdown(self) {
        self.state.stop_being_ready();
        tokio::time::sleep(self.options.notice).await;
        self.state.end_streams();
        self.listener.shutdown(self.options.grace).await;
    }
}
