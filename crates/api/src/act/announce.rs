use domain::SessionRef;

use crate::ApiState;

/// Announces a change of a session's log to its followers on all gateways, and wakes its worker if `wake` is set.
pub(crate) fn announce(state: &ApiState, at: &SessionRef, seq: domain::Seq, wake: bool) {
    if wake {
        state.waker().wake(at.clone());
    }
    state.waker().committed(at, seq);
    state.feeds().touch(at);
}
