//! A prompt that is sent again: its fate decides the answer.

use domain::SessionRef;
use store::{Admission, AdmittedPrompt, InboxChange, InputFate};

use super::announce::announce;
use crate::ApiState;
use crate::error::ApiError;

/// The advice about an id that was used before.
const ANOTHER_ID: &str = "to run it, send it with another `messageID`, or without one";

/// Answers for a prompt that was admitted before. One that was stored without a wake, and is sent again with one
/// (`wakes`), is woken, even if an interrupt has parked the session since.
///
/// # Errors
/// 409 for one that will never run: sending it again under its id changes nothing.
pub(super) async fn settle(
    state: &ApiState,
    at: &SessionRef,
    admitted: &mut AdmittedPrompt,
    wakes: bool,
) -> Result<(), ApiError> {
    if admitted.admission == Admission::First {
        return Ok(());
    }
    let id = &admitted.prompt.message;
    match state.store().input_fate(at.org, at.session.clone(), id.clone()).await? {
        InputFate::Cancelled => Err(ApiError::Conflict(format!(
            "the prompt {id} was cancelled before it ran; {ANOTHER_ID}"
        ))),
        InputFate::Reverted => {
            Err(ApiError::Conflict(format!("the prompt {id} was reverted; {ANOTHER_ID}")))
        }
        // One that was sent to run stays parked: its sender may only not know that it was taken.
        InputFate::Waiting { awake: false } if wakes && !admitted.prompt.wake => {
            let now = state.clock().now_ms();
            let woken = state.store().wake_session(at.org, at.session.clone(), now).await?;
            if let InboxChange::Done { seq, location } = woken {
                announce(state, &SessionRef { location, ..at.clone() }, seq, true);
                admitted.prompt.wake = true;
            }
            Ok(())
        }
        InputFate::Waiting { .. } | InputFate::Promoted => Ok(()),
    }
}
