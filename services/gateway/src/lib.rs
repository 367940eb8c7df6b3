//! The gateway role: the API on a listener, and an orderly end.
//!
//! ```text
//! clients ──HTTP──▶ listener ──▶ api::router          stop: not ready ─▶ streams end ─▶ requests finish
//! ```
//!
//! Absent on purpose: every route; those are in `api`.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use api::{ApiParts, ApiState, router};
use axum::serve::ListenerExt;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;

const LISTENER: TaskKind = TaskKind::new("gateway listener", OnError::StopRole, OnCancel::Wait);

/// How a gateway ends.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// How long `/readyz` has said 503 before streams end: time for a load balancer to notice.
    pub notice: Duration,
    /// How long requests that are under way may take to finish.
    pub grace: Duration,
}

impl Default for GatewayOptions {
    /// No notice (there is no load balancer in front of `up`), 5 s of grace.
    fn default() -> Self {
        Self { notice: Duration::ZERO, grace: Duration::from_secs(5) }
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
    let app = router(state.clone());
    let stop = group.token();
    let listener = listener.tap_io(|stream| {
        // Live text is many small writes: none may wait for the answer to the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
    });
    group.spawn(LISTENER, async move {
        axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned()).await
    });
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
