//! The placement role: a member of the placement group, its sweep of the store, and its internal listener, whose probes
//! the other internal listeners have too.
//!
//! ```text
//! workers, gateways, members ──HTTP──▶ internal listener ──▶ PlacementNode ──sweep──▶ store (oc_sched)
//! ```
//!
//! Absent on purpose: every rule; those are in `placement`.

use async_trait::async_trait;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use domain::{FencingToken, Generation, LocationRef, SessionRef};
use placement::{PlacementNode, ReadyWork, ReadyWorkError};
use serde_json::json;
use store::Store;
use tasks::{OnCancel, OnError, TaskGroup, TaskKind};
use tokio::net::TcpListener;

const LISTENER: TaskKind = TaskKind::new("placement listener", OnError::StopRole, OnCancel::Wait);

/// The source of *ready* sessions for placement's sweep.
pub struct StoreReadyWork {
    /// The store.
    pub store: Store,
    /// A login as `oc_migrate`, to raise the generation for a group that is founded over fences of an earlier one.
    /// Without it such a group waits for an operator.
    pub migrate_url: Option<String>,
}

/// The fences of an earlier placement group outrank this new group's tokens.
#[derive(Debug, thiserror::Error)]
#[error(
    "workers of an earlier placement group have been here in generation {}, and the generation is {}: \
     their fences outrank every token of this new group; run `placement raise-generation`",
    found.0,
    generation.0
)]
struct Outranked {
    found: Generation,
    generation: Generation,
}

#[async_trait]
impl ReadyWork for StoreReadyWork {
    async fn unplaced(
        &self,
        after: Option<&LocationRef>,
        limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError> {
        let ready = self.store.ready_locations(after.cloned(), i64::from(limit)).await?;
        Ok(ready.into_iter().map(|row| row.session).collect())
    }

    async fn generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        Ok(Some(self.store.cluster().await?.generation))
    }

    async fn first_generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        let generation = self.store.cluster().await?.generation;
        let highest = self.store.highest_fence().await?;
        if highest == FencingToken(0) || highest.generation() < generation {
            return Ok(Some(generation));
        }
        let generation = match &self.migrate_url {
            Some(url) => Store::raise_generation(url).await?,
            None => generation,
        };
        let found = highest.generation();
        if found < generation {
            Ok(Some(generation))
        } else {
            Err(Outranked { found, generation }.into())
        }
    }
}

/// Returns the routes that probes of an internal listener ask: `GET /healthz`, which answers while the process runs, and
/// `GET /readyz`, which answers 503 with the reason while `why_unready` returns one. Neither needs the secret.
pub fn probe_routes(
    why_unready: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
) -> Router {
    let ready = move || {
        let why = why_unready();
        async move {
            match why {
                None => Json(json!({ "ready": true })).into_response(),
                Some(message) => {
                    let error = json!({ "error": { "code": "UNAVAILABLE", "message": message } });
                    (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
                }
            }
        }
    };
    Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready))
}

/// Serves a member's internal routes and its probes until the role stops.
pub fn serve(node: &PlacementNode, listener: TcpListener, role: &TaskGroup) {
    let readiness = node.readiness();
    let router = node.router().merge(probe_routes(move || readiness.why_unready()));
    let stop = role.token();
    role.spawn(LISTENER, async move {
        axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await
    });
}

#[cfg(test)]
mod tests {
    use domain::OrgId;
    use store::{LocationKind, StoreOptions};

    use super::*;

    // Finding ops B6: `/healthz` was all that a rollout could ask.
    #[tokio::test]
    async fn probes_tell_the_reason() -> anyhow::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let role = TaskGroup::root("test");
        let (reason, why) = tokio::sync::watch::channel(Some("the \"secret\" is wrong".to_owned()));
        let router = probe_routes(move || why.borrow().clone());
        role.spawn(LISTENER, async move { axum::serve(listener, router).await });
        let client = reqwest::Client::builder().no_proxy().build()?;
        let get = async |path: &str| {
            let answer = client.get(format!("{url}{path}")).send().await?;
            anyhow::Ok((answer.status().as_u16(), answer.text().await?))
        };
        assert_eq!(get("/healthz").await?.0, 200);
        let (status, body) = get("/readyz").await?;
        let told: serde_json::Value = serde_json::from_str(&body)?;
        assert_eq!((status, &told["error"]["message"]), (503, &json!("the \"secret\" is wrong")));
        reason.send_replace(None);
        assert_eq!(get("/readyz").await?, (200, r#"{"ready":true}"#.to_owned()));
        Ok(())
    }

    // Finding store 10: losing `up`'s placement folder stopped every Location that had been placed.
    #[tokio::test]
    async fn a_group_founded_over_fences_raises_the_generation() -> anyhow::Result<()> {
        let database = testkit::database().await?;
        let store = Store::connect(&StoreOptions::new(database.store_url()))?;
        let migrate_url = Some(database.url("oc_migrate"));
        let ready = |migrate_url| StoreReadyWork { store: store.clone(), migrate_url };
        let first = async |ready: StoreReadyWork| match ready.first_generation().await {
            Ok(generation) => Ok(generation),
            Err(error) => Err(error.to_string()),
        };
        let before = store.cluster().await?.generation;
        assert_eq!(first(ready(None)).await, Ok(Some(before)), "nobody has been here");

        let org = OrgId::FIRST;
        store.ensure_organisation(org, "tests".into(), 1).await?;
        let project = store.ensure_project(org, "a project".into(), 1).await?.id;
        let kind = LocationKind::Managed;
        let location = store.ensure_location(org, project, kind, "/workspace".into(), 1).await?.id;
        let token = FencingToken::new(before, 7).expect("in range");
        store.raise_fence(LocationRef { org, location }, token).await?;

        let waits = first(ready(None)).await.expect_err("outranked");
        assert!(waits.contains("placement raise-generation"), "{waits}");
        let raised = first(ready(migrate_url.clone())).await.expect("raised").expect("known");
        assert!(raised > before && FencingToken::new(raised, 1) > Some(token));
        assert_eq!(first(ready(migrate_url)).await, Ok(Some(raised)), "once is enough");
        Ok(())
    }
}
