//! Stops what revoked keys and disabled people have admitted. Each gateway looks for such revocations; what it does is
//! harmless when two do it at once.

use std::convert::Infallible;
use std::time::Duration;

use domain::SessionRef;
use store::{AdmittedWork, InboxChange, Interrupted, Revocation, STILL_ADMITTED, StoreError};
use tasks::{OnCancel, OnError, TaskKind};
use tokio::time::MissedTickBehavior;

use super::announce::announce;
use crate::ApiState;

const STOP: TaskKind = TaskKind::new("stop revoked work", OnError::StopRole, OnCancel::Abort);
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Begins to look, until the gateway stops.
pub(crate) fn stop_revoked(state: &ApiState) {
    state.tasks().spawn(STOP, looks(state.clone()));
}

async fn looks(state: ApiState) -> Result<(), Infallible> {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = look(&state).await {
            tracing::debug!(%error, "revoked work is stopped later");
        }
    }
}

/// Stops the work of all revocations that are open. One ends when nothing is left, and no gateway can admit more for it.
async fn look(state: &ApiState) -> Result<(), StoreError> {
    for revocation in state.store().open_revocations().await? {
        let work = state.store().admitted_work(revocation.org, revocation.subject.clone()).await?;
        let is_done = work.is_empty();
        for work in work {
            stop(state, &revocation, work).await?;
        }
        let now = state.clock().now_ms();
        if is_done && now > revocation.at_ms + STILL_ADMITTED {
            state.store().end_revocation(revocation, now).await?;
        }
    }
    Ok(())
}

/// Cancels what waits, then interrupts what runs: the other way round the next input could begin in between.
async fn stop(
    state: &ApiState,
    revocation: &Revocation,
    work: AdmittedWork,
) -> Result<(), StoreError> {
    let (org, session) = (revocation.org, work.session);
    for input in work.waiting {
        let now = state.clock().now_ms();
        match state.store().cancel_input(org, session.clone(), input, now).await {
            Ok(InboxChange::Done { seq, location }) => {
                let at = SessionRef { org, location, session: session.clone() };
                announce(state, &at, seq, false);
            }
            Ok(InboxChange::Unchanged) | Err(StoreError::NotFound) => {} // it is not there any more
            Err(error) => return Err(error),
        }
    }
    if work.is_running {
        let now = state.clock().now_ms();
        match state.store().interrupt(org, session.clone(), None, now).await {
            Ok(Interrupted::Applied { seq, location }) => {
                let at = SessionRef { org, location, session };
                state.waker().interrupt(at.clone());
                announce(state, &at, seq, false);
            }
            Ok(Interrupted::Idle) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
