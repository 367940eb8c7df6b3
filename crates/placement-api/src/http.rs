use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::caller::{Caller, Patience};
use crate::{Heartbeat, HeartbeatReply, PlaceRequest, Placed, Placement, PlacementError};

/// A heartbeat must be over before the next is due: [`crate::HEARTBEAT`].
const BEAT: Patience =
    Patience { each: Duration::from_millis(400), whole: Duration::from_millis(400) };
/// A prompt waits for this, and is found by the sweep anyway.
const PLACE: Patience =
    Patience { each: Duration::from_millis(1_000), whole: Duration::from_millis(2_000) };

/// Calls to place that one client has under way at once; more wait their turn, within their own 2 s. After
/// a failover a gateway may have thousands: all at once they would take from the leader the time that it
/// needs to answer any of them.
const MAX_PLACING: usize = 64;

/// Placement over HTTP: asks the last known leader first, then the other members while that one is under way, and
/// follows whom they name. A leader that this process cannot reach is asked through another member.
///
/// A call is bounded: a heartbeat 400 ms, placing 2 s. Cheap to share behind an `Arc`.
pub struct HttpPlacement {
    caller: Caller,
    placing: Semaphore,
}

impl HttpPlacement {
    /// A client of the members whose internal listeners answer at `peers`, such as
    /// `http://10.0.0.1:4301`. Connects when it is first used.
    #[must_use]
    pub fn new(peers: Vec<String>, secret: Option<String>) -> Self {
        Self { caller: Caller::new(peers, secret), placing: Semaphore::new(MAX_PLACING) }
    }
}

#[async_trait]
impl Placement for HttpPlacement {
    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply, PlacementError> {
        self.caller.lead("/placement/heartbeat", &beat, BEAT).await
    }

    async fn place(&self, request: PlaceRequest) -> Result<Placed, PlacementError> {
        let begun = Instant::now();
        let Ok(Ok(_turn)) = tokio::time::timeout(PLACE.whole, self.placing.acquire()).await else {
            return Err(PlacementError::Unreachable {
                reason: format!("{MAX_PLACING} calls to place were under way for 2 s"),
            });
        };
        let left = Patience { whole: PLACE.whole.saturating_sub(begun.elapsed()), ..PLACE };
        self.caller.lead("/placement/place", &request, left).await
    }
}
