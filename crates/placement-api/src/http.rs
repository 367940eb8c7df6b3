use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::caller::{Caller, Patience};
use crate::{
    Heartbeat, HeartbeatReply, PlaceRequest, Placed, Placement, PlacementError, SecretRefused,
};

/// A heartbeat must end before the next is due: [`crate::HEARTBEAT`].
const BEAT: Patience =
    Patience { each: Duration::from_millis(400), whole: Duration::from_millis(400) };
/// A prompt waits for this call. If it fails, the sweep finds the prompt.
const PLACE: Patience =
    Patience { each: Duration::from_millis(1_000), whole: Duration::from_millis(2_000) };

/// The longest wait for a proof of the secret: probes wait for it.
const PROOF: Duration = Duration::from_millis(500);

/// The most concurrent calls to place per client. More calls wait, within their own 2 s. After a failover a
/// gateway may have thousands; all at once, they would take the time that the leader needs to answer any.
const MAX_PLACING: usize = 64;

/// Placement over HTTP. Asks the last known leader first, then the other members while that request is under
/// way, and follows the leader that they name. If this process cannot reach the leader, another member passes
/// the call on.
///
/// Calls are bounded: a heartbeat to 400 ms, placing to 2 s. Cheap to share behind an `Arc`.
pub struct HttpPlacement {
    caller: Caller,
    placing: Semaphore,
    /// Whether the members refused the secret when one answered last.
    is_refused: AtomicBool,
}

impl HttpPlacement {
    /// Makes a client of the members whose internal listeners are at `peers`, such as `http://10.0.0.1:4301`.
    /// Connects on first use.
    #[must_use]
    pub fn new(peers: Vec<String>, secret: Option<String>) -> Self {
        let (placing, is_refused) = (Semaphore::new(MAX_PLACING), AtomicBool::new(false));
        Self { caller: Caller::new(peers, secret), placing, is_refused }
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

    async fn prove_secret(&self) -> Result<(), SecretRefused> {
        if let Some(is_accepted) = self.caller.prove_secret(PROOF).await {
            self.is_refused.store(!is_accepted, Ordering::Relaxed);
        }
        if self.is_refused.load(Ordering::Relaxed) { Err(SecretRefused) } else { Ok(()) }
    }
}
