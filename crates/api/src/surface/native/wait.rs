//! Waits until a session has nothing to do.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use domain::SessionEvent;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::SessionRow;
use tokio::time::{Instant, timeout_at};

use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{Cursor, Step, Want};
use crate::surface::at::At;
use crate::surface::extract::{Body, CanRead};

/// The longest wait, and the default.
const LONGEST_SECONDS: u64 = 600;

#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct WaitRequest {
    seconds: Option<u64>,
}

/// The state of a session at the end of the wait.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitedView {
    /// Whether it still has work, because the time was up.
    busy: bool,
    /// The outcome of its last drain; `None` if it never had one.
    outcome: Option<String>,
    seq: i64,
}

impl From<SessionRow> for WaitedView {
    fn from(row: SessionRow) -> Self {
        Self { busy: row.busy, outcome: row.outcome, seq: row.seq.0 }
    }
}

/// Answers once nothing runs or is about to run, or when the requested time is up. An input that waits for a wake is
/// no work. Holds no database connection while it waits.
pub(crate) async fn wait(
    access: CanRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<WaitRequest>,
) -> Result<Json<WaitedView>, ApiError> {
    let seconds = request.seconds.unwrap_or(LONGEST_SECONDS).min(LONGEST_SECONDS);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut row = at.find(&state, access.org).await?;
    if !row.busy || seconds == 0 {
        return Ok(Json(row.into()));
    }
    let _share = state.waits().take(&access)?;
    let mut log = Cursor::join(state.hub(), state.store(), row.at.clone(), Want::Events).await?;
    // The work may have ended before the cursor joined.
    row = at.find(&state, access.org).await?;
    while row.busy {
        let event = match timeout_at(until, log.next()).await {
            Err(_) => break,
            Ok(Ok(Step::Event(event))) => event,
            Ok(Ok(Step::Delta(_) | Step::Output(_))) => continue,
            Ok(Ok(Step::Gone)) => {
                return Err(state.no_more_events());
            }
            Ok(Ok(Step::WentBack)) => return Err(ApiError::went_back()),
            Ok(Err(error)) => return Err(error),
        };
        if may_end_work(&event.event) {
            row = at.find(&state, access.org).await?;
        }
    }
    Ok(Json(row.into()))
}

/// Returns whether a session may have nothing to do after this event.
fn may_end_work(event: &SessionEvent) -> bool {
    matches!(
        event,
        SessionEvent::DrainEnded(_)
            | SessionEvent::InterruptRequested(_)
            | SessionEvent::InputCancelled(_)
    )
}
