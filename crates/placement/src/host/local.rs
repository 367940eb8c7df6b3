use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use placement_api::{
    Heartbeat, HeartbeatReply, HttpPlacement, PlaceRequest, Placed, Placement, PlacementError,
};

use super::Host;
use super::leader::{Leading, Refused};

/// The same limit as over HTTP: see [`HttpPlacement`].
const BEAT_TIME: Duration = Duration::from_millis(400);
const PLACE_TIME: Duration = Duration::from_secs(2);
/// The pause before a member without a known leader looks again.
const PAUSE: Duration = Duration::from_millis(25);

/// [`Placement`] in the process of a member: direct while it leads, over HTTP to the leader otherwise.
/// Cheap to clone.
#[derive(Clone)]
pub struct LocalPlacement {
    host: Arc<Host>,
    /// The client to the other members; rebuilt when the members change.
    others: Arc<Mutex<Option<Others>>>,
}

impl LocalPlacement {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        Self { host, others: Arc::default() }
    }

    /// Returns a client of the other members, if there are any.
    fn others(&self) -> Option<Arc<HttpPlacement>> {
        let metrics = self.host.metrics();
        let nodes = metrics.membership_config.nodes();
        let urls: Vec<String> = nodes
            .filter(|(id, _)| **id != self.host.id)
            .map(|(_, node)| node.addr.clone())
            .collect();
        if urls.is_empty() {
            return None;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if others.as_ref().is_none_or(|others| others.urls != urls) {
            let client = HttpPlacement::new(urls.clone(), self.host.secret.clone());
            *others = Some(Others { urls, client: Arc::new(client) });
        }
        others.as_ref().map(|others| others.client.clone())
    }

    /// Waits until this member leads or knows the leader.
    async fn way(&self) -> Way {
        loop {
            if let Some(leading) = self.host.leading() {
                return Way::Here(leading);
            }
            if self.host.leader_url().is_some()
                && let Some(others) = self.others()
            {
                return Way::There(others);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

struct Others {
    urls: Vec<String>,
    client: Arc<HttpPlacement>,
}

enum Way {
    Here(Arc<Leading>),
    There(Arc<HttpPlacement>),
}

async fn within<T>(
    limit: Duration,
    tries: impl Future<Output = Result<T, PlacementError>>,
) -> Result<T, PlacementError> {
    tokio::time::timeout(limit, tries).await.unwrap_or_else(|_| {
        let reason = "this placement group has no leader right now".to_owned();
        Err(PlacementError::Unreachable { reason })
    })
}

#[async_trait]
impl Placement for LocalPlacement {
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        let tries = async {
            loop {
                match self.way().await {
                    Way::There(others) => return others.heartbeat(beat).await,
                    Way::Here(leading) => match leading.heartbeat(&self.host, &beat).await {
                        Ok(reply) => return Ok(reply),
                        Err(Refused::Answer(error)) => return Err(error),
                        Err(Refused::NotLeader) => tokio::time::sleep(PAUSE).await,
                    },
                }
            }
        };
        within(BEAT_TIME, tries).await
    }

    async fn place(&self, request: PlaceRequest) -> Result<Placed, PlacementError> {
        let tries = async {
            loop {
                match self.way().await {
                    Way::There(others) => return others.place(request).await,
                    Way::Here(leading) => match leading.place(&self.host, &request).await {
                        Ok(placed) => return Ok(placed),
                        Err(Refused::Answer(error)) => return Err(error),
                        Err(Refused::NotLeader) => tokio::time::sleep(PAUSE).await,
                    },
                }
            }
        };
        within(PLACE_TIME, tries).await
    }
}
