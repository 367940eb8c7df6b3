//! The placement role: a member of the placement group, its sweep of the store, and its internal listener.
//!
//! ```text
//! workers, gateways, members ──HTTP──▶ internal listener ──▶ PlacementNode ──sweep──▶ store (oc_sched)
//! ```
//!
//! Absent on purpose: every rule; those are in `placement`.

use async_trait::async_trait;
use axum::Router;
use axum::routing::get;
use domain::{Generation, SessionRef};
use placement::{PlacementNode, ReadyWork, ReadyWorkError};
use store::Store;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;

const LISTENER: TaskKind = TaskKind::new("placement listener", OnError::StopRole, OnCancel::Wait);

/// The store's *ready* sessions, as placement's sweep asks for them.
pub struct StoreReadyWork(pub Store);

#[async_trait]
impl ReadyWork for StoreReadyWork {
    async fn unplaced(
        &self,
        after: Option<&SessionRef>,
        limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError> {
        let ready = self.0.ready_sessions(after.cloned(), i64::from(limit)).await?;
        Ok(ready.into_iter().map(|row| row.session).collect())
    }

    async fn generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        Ok(Some(self.0.cluster().await?.generation))
    }
}

/// Serves a member's internal routes, and `GET /healthz`, until the role stops.
pub fn serve(node: &PlacementNode, listener: TcpListener, role: &TaskGroup) {
    let router: Router = node.router().route("/healthz", get(|| async { "ok" }));
    let stop = role.token();
    role.spawn(LISTENER, async move {
        axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
    });
}
