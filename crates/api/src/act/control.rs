//! Admits controls, and waits until the session's log says how they ended.

use domain::{
    Control, ControlAdmitted, Delivery, DrainOutcome, InterruptTarget, MessageId, RecordedEvent,
    SessionError, SessionEvent, SessionId, SessionRef,
};
use sha2::{Digest, Sha256};
use store::{AdmittedControl, NewControl, SessionRow};
use tokio::time::{Instant, timeout_at};

use super::admit::ahead_of_us;
use super::announce::announce;
use super::parked::WaitStep;
use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{Cursor, Step, Want};

/// A control to admit.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) message: MessageId,
    pub(crate) delivery: Delivery,
    pub(crate) control: Control,
    pub(crate) wake: bool,
}

impl Asked {
    /// Admits the control. Once this returns, it cannot be lost.
    pub(crate) async fn admit(
        self,
        state: &ApiState,
        row: &SessionRow,
    ) -> Result<AdmittedControl, ApiError> {
        let now = state.clock().now_ms();
        ahead_of_us(&self.message, now)?;
        let digest = match &self.control {
            Control::Compaction => hex::encode(Sha256::digest(b"compaction")),
            control @ (Control::Move { .. } | Control::Revert { .. } | Control::Unrevert) => {
                let canonical = serde_json::to_vec(control).map_err(ApiError::internal)?;
                hex::encode(Sha256::digest(&canonical))
            }
        };
        let Self { message, delivery, control, wake } = self;
        let control = ControlAdmitted { message, delivery, control, wake, digest };
        let new = NewControl { session: row.at.session.clone(), control, now };
        let admitted = state.store().admit_control(row.at.org, new).await?;
        let at = SessionRef { location: admitted.location.clone(), ..row.at.clone() };
        announce(state, &at, admitted.seq, wake);
        Ok(admitted)
    }

    /// Admits the control and waits for its end, at most as long as the settings allow. Holds no database connection
    /// while it waits.
    ///
    /// # Errors
    /// The reason why the control failed; 503 when its end does not come in time.
    pub(crate) async fn done(self, state: &ApiState, row: &SessionRow) -> Result<(), ApiError> {
        // Join before the admission, so that nothing has to be read again.
        let log = Cursor::join(state.hub(), state.store(), row.at.clone(), Want::Events).await?;
        let awaited = Awaited::new(&self, row.at.session.clone());
        let admitted = self.admit(state, row).await?;
        acted(state, log.after(admitted.seq), awaited).await
    }
}

/// The state of a Move, a Revert or an Unrevert, as its events tell it. Pure.
#[derive(Debug)]
struct Awaited {
    session: SessionId,
    input: MessageId,
    /// Set for a Revert: it restores files after its delivery. The other controls are done with their delivery.
    goes_on: bool,
    delivered: bool,
}

impl Awaited {
    fn new(asked: &Asked, session: SessionId) -> Self {
        let goes_on = matches!(asked.control, Control::Revert { .. });
        Self { session, input: asked.message.clone(), goes_on, delivered: false }
    }

    /// Returns how the control ended, once this event or an earlier one says so.
    fn note(&mut self, event: &RecordedEvent) -> WaitStep<Result<(), ApiError>> {
        let refused = |error: &SessionError| Err(ApiError::refused(error.clone(), &self.session));
        let not = |why: &str| Err(ApiError::Conflict(why.to_owned()));
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say what became of it")]
        match &event.event {
            SessionEvent::ControlDelivered(delivered) if delivered.message == self.input => {
                match &delivered.error {
                    Some(error) => WaitStep::Ended(refused(error)),
                    None if self.goes_on => {
                        self.delivered = true;
                        WaitStep::Open
                    }
                    None => WaitStep::Ended(Ok(())),
                }
            }
            SessionEvent::RevertStaged(_) if self.delivered => WaitStep::Ended(Ok(())),
            SessionEvent::RevertCleared(cleared) if self.delivered => {
                WaitStep::Ended(cleared.error.as_ref().map_or(Ok(()), refused))
            }
            SessionEvent::InputCancelled(cancelled) if cancelled.message == self.input => {
                WaitStep::Ended(not("it was cancelled"))
            }
            SessionEvent::InterruptRequested(interrupt)
                if interrupt.target == InterruptTarget::Parked && !self.delivered =>
            {
                WaitStep::EndedIfParked(not("interrupted before it was taken up; it still waits"))
            }
            // A takeover finishes what was begun.
            SessionEvent::DrainEnded(end) if end.outcome == DrainOutcome::Completed => {
                WaitStep::Open
            }
            SessionEvent::DrainEnded(end) => {
                let stopped = || not("the work was stopped before it was done");
                let ended = end.error.as_ref().map_or_else(stopped, refused);
                // A drain that ends in any way leaves awake inputs that it has not taken to the next one.
                if self.delivered { WaitStep::Ended(ended) } else { WaitStep::EndedIfParked(ended) }
            }
            _ => WaitStep::Open,
        }
    }
}

async fn acted(state: &ApiState, mut log: Cursor, mut awaited: Awaited) -> Result<(), ApiError> {
    let until = Instant::now() + state.settings().hold;
    loop {
        let step = timeout_at(until, log.next()).await.map_err(|_| ApiError::Unavailable {
            message: "it still waits in the session's inbox: ask again with the same id",
            cause: None,
        })?;
        match step? {
            Step::Event(event) => {
                let step = awaited.note(&event);
                if let Some(ended) = step.end(state, log.session(), &awaited.input).await? {
                    return ended;
                }
            }
            Step::Delta(_) | Step::Output(_) => {}
            Step::Gone => {
                return Err(state.no_more_events());
            }
            Step::WentBack => return Err(ApiError::went_back()),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        ControlDelivered, DrainEnded, InputCancelled, InterruptRequested, RevertCleared,
        RevertStaged, RevertedTo, Seq,
    };

    use super::*;

    fn recorded(event: impl Into<SessionEvent>) -> RecordedEvent {
        let id = "evt_a".parse().expect("an id");
        RecordedEvent { seq: Seq(1), id, time: 1, claim: None, event: event.into() }
    }

    fn awaited(control: Control) -> Awaited {
        let asked = Asked {
            message: "msg_c".parse().expect("an id"),
            delivery: Delivery::Steer,
            control,
            wake: true,
        };
        Awaited::new(&asked, "ses_a".parse().expect("an id"))
    }

    fn revert() -> Awaited {
        awaited(Control::Revert { message: "msg_a".parse().expect("an id"), files: true })
    }

    fn delivered(message: &str, code: Option<&str>) -> RecordedEvent {
        let error =
            code.map(|code| SessionError { code: code.to_owned().into(), message: "why".into() });
        recorded(ControlDelivered { message: message.parse().expect("an id"), error })
    }

    fn staged() -> RecordedEvent {
        recorded(RevertStaged {
            message: "msg_a".parse().expect("an id"),
            from: Seq(1),
            original: None,
            paths: domain::RevertPaths::default(),
            files: Vec::new(),
            more: 0,
            left: Vec::new(),
            back: RevertedTo::default(),
        })
    }

    fn ended(outcome: DrainOutcome) -> RecordedEvent {
        recorded(DrainEnded { outcome, error: None })
    }

    #[test]
    fn a_revert_is_done_when_it_is_staged_and_not_by_anothers() {
        let mut revert = revert();
        for event in [
            staged(),
            delivered("msg_other", None),
            ended(DrainOutcome::Completed),
            staged(),
            delivered("msg_c", None),
            ended(DrainOutcome::Completed),
        ] {
            assert!(matches!(revert.note(&event), WaitStep::Open), "{event:?}");
        }
        assert!(matches!(revert.note(&staged()), WaitStep::Ended(Ok(()))));
    }

    #[test]
    fn what_is_done_as_it_is_delivered_is_not_waited_for_any_longer() {
        let mut unrevert = awaited(Control::Unrevert);
        let other = recorded(RevertCleared::default());
        assert!(matches!(unrevert.note(&other), WaitStep::Open));
        assert!(matches!(unrevert.note(&delivered("msg_c", None)), WaitStep::Ended(Ok(()))));
    }

    #[test]
    fn what_stops_it_is_told() {
        let told = |event: &RecordedEvent| match revert().note(event) {
            WaitStep::Ended(Err(error)) => error.failure().reason,
            other @ (WaitStep::Open | WaitStep::Ended(_) | WaitStep::EndedIfParked(_)) => {
                panic!("{event:?}: {other:?}")
            }
        };
        assert_eq!(
            told(&delivered("msg_c", Some("session.busy"))).as_deref(),
            Some("session.busy")
        );
        let code = "session.revert_across_move";
        assert_eq!(told(&delivered("msg_c", Some(code))).as_deref(), Some(code));
        assert_eq!(told(&delivered("msg_c", Some("session.message_unknown"))), None, "it is a 404");
        let cancelled = InputCancelled { message: "msg_c".parse().expect("an id") };
        assert_eq!(told(&recorded(cancelled)), None);
        // Finding core-3 M7: the interrupt may be older than the control, and then it still runs.
        let parked = InterruptRequested { by: None, target: InterruptTarget::Parked };
        for event in [recorded(parked), ended(DrainOutcome::Interrupted)] {
            let step = revert().note(&event);
            assert!(matches!(step, WaitStep::EndedIfParked(Err(_))), "{event:?}: {step:?}");
        }
        let mut begun = revert();
        assert!(matches!(begun.note(&delivered("msg_c", None)), WaitStep::Open));
        let error = SessionError {
            code: domain::ErrorCode::WorkspaceRestoreFailed.into(),
            message: "why".into(),
        };
        let cleared = recorded(RevertCleared { error: Some(error) });
        assert!(matches!(begun.note(&cleared), WaitStep::Ended(Err(ApiError::Refused(_)))));
    }
}
