//! The gateway role: the API on a listener, and an orderly end.
//!
//! ```text
//! clients ──HTTP──▶ listener ──▶ api::router          stop: not ready ─▶ streams end ─▶ requests finish
//! ```
//!
//! Absent on purpose: every route; those are in `api`.

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

/// How a gateway ends.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How long `/readyz` has said 503 before streams end: time for a load balancer to notice.
    pub notice: Duration,
    /// How long requests that are under way may take to finish.
    pub grace: Duration,
    /// What it bears of clients.
    pub limits: ListenerLimits,
}

impl Default for GatewayOptions {
    /// No notice (there is no load balancer in front of `up`), 5 s of grace.
    fn default() -> Self {
        let limits = ListenerLimits::default();
        Self { notice: Duration::ZERO, grace: Duration::from_secs(5), limits }
    }
}

/// A gateway that serves.
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
    let app = router(state.clone()).layer(RequestBodyTimeoutLayer::new(limits.body));
    let (stop, connections) = (group.token(), group.clone());
    group.spawn(LISTENER, listener::serve(listener, app, limits, connections, stop));
    Ok(Gateway { address, state, listener: group, options })
}

impl Gateway {
    /// Where it answers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops: not ready first, then streams are told to come back elsewhere, then what is under way
    /// finishes.
    pub async fn shutdown(self) {
        self.state.stop_being_ready();
        tokio::time::sleep(self.options.notice).await;
        self.state.end_streams();
        self.listener.shutdown(self.options.grace).await;
    }
}
