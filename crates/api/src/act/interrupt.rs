use domain::{Seq, SessionId, SessionRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::Interrupted;

use super::announce::announce;
use crate::ApiState;
use crate::error::ApiError;
use crate::principal::Principal;

/// A request to interrupt a session. With `resume`, its steering inputs go on afterwards.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct AbortRequest {
    resume: Option<bool>,
}

/// The effect of an interrupt.
#[derive(Debug, Serialize, JsonSchema)]
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
    principal: &Principal,
    session: SessionId,
) -> Result<InterruptedView, ApiError> {
    let (org, now) = (principal.org, state.clock().now_ms());
    let by = Some(principal.author.clone());
    match state.store().interrupt(org, session.clone(), by, now).await? {
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
    principal: &Principal,
    session: SessionId,
    request: &AbortRequest,
) -> Result<InterruptedView, ApiError> {
    if !request.resume.unwrap_or(false) {
        return interrupt(state, principal, session).await;
    }
    let (org, now) = (principal.org, state.clock().now_ms());
    let by = Some(principal.author.clone());
    let done = state.store().interrupt_and_resume(org, session.clone(), by, now).await?;
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
