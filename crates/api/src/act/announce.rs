use domain::SessionRef;

use crate::ApiState;

/// Tells of a change of a session's log: its followers here and elsewhere, and its worker if it is to run.
pub(crate) fn announce(state: &ApiState, at: &SessionRef, seq: domain::Seq, wake: bool) {
    if wake {
        state.waker().wake(at.clone());
    }
    state.waker().committed(at, seq);
    state.feeds().touch(at);
}
