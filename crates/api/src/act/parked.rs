//! Tells whether an input that a drain has left behind still runs by itself.

use domain::{MessageId, SessionRef};
use store::{InputFate, StoreError};

use crate::ApiState;
use crate::error::ApiError;

/// The end of work that a request waits for, as an event says it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitStep<T> {
    /// The work goes on.
    Open,
    /// The work has ended.
    Ended(T),
    /// The work has ended if the input is parked. The event does not say: a drain ends without the inputs that wait for
    /// the next one, whatever its outcome. See [`is_parked`].
    EndedIfParked(T),
}

/// Returns whether an input waits in the inbox and nothing will take it up by itself. The head says so: an input runs if
/// somebody has woken the session for it and nothing has parked that wake since.
pub(crate) async fn is_parked(
    state: &ApiState,
    at: &SessionRef,
    input: &MessageId,
) -> Result<bool, ApiError> {
    match state.store().input_fate(at.org, at.session.clone(), input.clone()).await {
        Ok(InputFate::Waiting { awake }) => Ok(!awake),
        // The events that the caller has not read yet say the rest.
        Ok(InputFate::Promoted | InputFate::Cancelled | InputFate::Reverted)
        | Err(StoreError::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl<T> WaitStep<T> {
    /// Returns the end of the work, after a look at the head if the event leaves that open.
    pub(crate) async fn end(
        self,
        state: &ApiState,
        at: &SessionRef,
        input: &MessageId,
    ) -> Result<Option<T>, ApiError> {
        match self {
            Self::Open => Ok(None),
            Self::Ended(end) => Ok(Some(end)),
            Self::EndedIfParked(end) => Ok(is_parked(state, at, input).await?.then_some(end)),
        }
    }
}
