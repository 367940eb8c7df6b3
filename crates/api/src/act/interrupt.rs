use domain::{OrgId, Seq, SessionId, SessionRef};
use serde::{Deserialize, Serialize};
use store::Interrupted;

use super::announce::announce;
use crate::ApiState;
use crate::error::ApiError;

/// A request to interrupt a session. With `resume`, its steering inputs go on afterwards.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AbortRequest {
    resume: Option<bool>,
}

/// The effect of an interrupt.
#[derive(Debug, Serialize)]
pub(crate) struct InterruptedView {
    /// Whether there was something to interrupt.
    pub(crate) interrupted: bool,
    /// Whether something goes on; `None` unless the request set `resume`.
    #[serde(skip_serializing_if = "Option::is_none")]
    resumed: Option<bool>,
}

/// Commits an interrupt, then hints at it.
pub(crate) async fn interrupt(
    state: &ApiState,
    org: OrgId,
    session: SessionId,
) -> Result<InterruptedView, ApiError> {
    let now = state.clock().now_ms();
    match state.store().interrupt(org, session.clone(), now).await? {
        Interrupted::Applied { seq, location } => {
            interrupted(state, &SessionRef { org, location, session }, seq);
            Ok(InterruptedView { interrupted: true, resumed: None })
        }
        Interrupted::Idle => Ok(InterruptedView { interrupted: false, resumed: None }),
    }
}

fn interrupted(state: &ApiState, at: &SessionRef, seq: Seq) {
    state.waker().interrupt(at.clone());
    state.waker().committed(at, seq);
    state.feeds().touch(at);
}

/// Interrupts the session. With `resume`, its steering inputs and the next control go on.
pub(crate) async fn aborted(
    state: &ApiState,
    org: OrgId,
    session: SessionId,
    request: &AbortRequest,
) -> Result<InterruptedView, ApiError> {
    if !request.resume.unwrap_or(false) {
        return interrupt(state, org, session).await;
    }
    let now = state.clock().now_ms();
    let done = state.store().interrupt_and_resume(org, session.clone(), now).await?;
    let at = SessionRef { org, location: done.location, session };
    if let Some(seq) = done.interrupt {
        interrupted(state, &at, seq);
    }
    if let Some(seq) = done.wake {
        announce(state, &at, seq, true);
    }
    Ok(InterruptedView {
        interrupted: done.interrupt.is_some(),
        resumed: Some(done.wake.is_some()),
    })
}
