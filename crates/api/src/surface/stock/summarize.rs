//! Compacts a session for a stock client, and waits for the end.

use axum::Json;
use axum::extract::{Path, State};
use domain::{
    DrainOutcome, InterruptTarget, MessageId, RecordedEvent, SessionEvent, SideOutcome, TurnId,
};

use crate::ApiState;
use crate::act::{CompactRequest, WaitStep, admit_compaction};
use crate::error::ApiError;
use crate::follow::{Cursor, Step, Want};
use crate::surface::at::At;
use crate::surface::extract::{Body, CanPrompt};

/// The state of a requested compaction, as its events tell it. Pure.
#[derive(Debug)]
struct Awaited {
    input: MessageId,
    turn: Option<TurnId>,
    /// The result of the newest Compaction for this request. Another one may follow at once: for the next piece of
    /// the conversation, or with a smaller request.
    ended: Option<Result<(), String>>,
}

impl Awaited {
    /// Returns the result, once this event or an earlier one says so.
    fn note(&mut self, event: &RecordedEvent) -> WaitStep<Result<(), String>> {
        let not = |why: &str| Err(why.to_owned());
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say what became of it")]
        match &event.event {
            SessionEvent::CompactionStarted(started)
                if started.input.as_ref() == Some(&self.input) =>
            {
                self.turn = Some(started.turn.clone());
                self.ended = None;
                WaitStep::Open
            }
            SessionEvent::CompactionEnded(ended) if self.turn.as_ref() == Some(&ended.turn) => {
                self.ended = Some(match (ended.outcome, &ended.error) {
                    (SideOutcome::Completed, _) => Ok(()),
                    (_, Some(error)) => not(&error.message),
                    (SideOutcome::Failed, None) => not("the compaction failed"),
                    (SideOutcome::Cancelled, None) => not("the compaction was cancelled"),
                    (SideOutcome::Lost, None) => not("the compaction's worker died; ask again"),
                });
                WaitStep::Open
            }
            // These events come between two Compactions of one request.
            SessionEvent::EpochStarted(_) | SessionEvent::NoticeRecorded(_) => WaitStep::Open,
            _ if self.ended.is_some() => self.ended.take().map_or(WaitStep::Open, WaitStep::Ended),
            SessionEvent::InputCancelled(cancelled) if cancelled.message == self.input => {
                WaitStep::Ended(not("the compaction was cancelled"))
            }
            SessionEvent::InterruptRequested(interrupt)
                if interrupt.target == InterruptTarget::Parked && self.turn.is_none() =>
            {
                let why = "interrupted before the compaction began; it still waits";
                WaitStep::EndedIfParked(not(why))
            }
            // A drain that ends in any way leaves awake inputs that it has not taken to the next one.
            SessionEvent::DrainEnded(end) if end.outcome == DrainOutcome::Completed => {
                WaitStep::Open
            }
            SessionEvent::DrainEnded(end) => {
                let stopped = "the work was stopped before the compaction began; it still waits";
                let why = end.error.as_ref().map_or(stopped, |error| error.message.as_str());
                WaitStep::EndedIfParked(not(why))
            }
            _ => WaitStep::Open,
        }
    }
}

/// Compacts the session. The request is held until that is done. The session chooses the model.
pub(crate) async fn post(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(_): Body<serde_json::Value>,
) -> Result<Json<bool>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let (hub, store) = (state.hub(), state.store());
    let log = Cursor::join(hub, store, row.at.clone(), Want::Events).await?;
    let request = CompactRequest::default();
    let admitted = admit_compaction(&state, &row, request).await?;
    let mut log = log.after(admitted.seq);
    let mut awaited = Awaited { input: admitted.control.message, turn: None, ended: None };
    loop {
        match log.next().await? {
            Step::Event(event) => {
                let step = awaited.note(&event);
                match step.end(&state, log.session(), &awaited.input).await? {
                    Some(Ok(())) => return Ok(Json(true)),
                    Some(Err(why)) => return Err(ApiError::Conflict(why)),
                    None => {}
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
        CompactionEnded, CompactionReason, CompactionStarted, DrainEnded, InputCancelled,
        InterruptRequested, ModelRef, Seq, TurnUsage,
    };

    use super::*;

    fn recorded(event: impl Into<SessionEvent>) -> RecordedEvent {
        let id = "evt_a".parse().expect("an id");
        RecordedEvent { seq: Seq(1), id, time: 1, claim: None, event: event.into() }
    }

    fn awaited() -> Awaited {
        Awaited { input: "msg_c".parse().expect("an id"), turn: None, ended: None }
    }

    fn started(input: &str, turn: &str) -> RecordedEvent {
        recorded(CompactionStarted {
            turn: turn.parse().expect("an id"),
            message: "msg_k".parse().expect("an id"),
            reason: CompactionReason::Manual,
            input: Some(input.parse().expect("an id")),
            continuing: false,
            agent: "build".into(),
            model: ModelRef::new("p", "m"),
            epoch: 1,
            prompt: String::new(),
            keep_from: Seq(1),
            cause: None,
            scope: domain::SummaryScope::default(),
        })
    }

    fn ended(turn: &str, outcome: SideOutcome) -> RecordedEvent {
        recorded(CompactionEnded {
            turn: turn.parse().expect("an id"),
            message: "msg_k".parse().expect("an id"),
            outcome,
            checkpoint: None,
            usage: TurnUsage::default(),
            error: None,
        })
    }

    #[test]
    fn it_is_done_when_the_compaction_of_this_request_is() {
        let mut awaited = awaited();
        for event in [
            started("msg_other", "trn_a"),
            ended("trn_a", SideOutcome::Completed),
            recorded(DrainEnded { outcome: DrainOutcome::Completed, error: None }),
            started("msg_c", "trn_b"),
        ] {
            assert_eq!(awaited.note(&event), WaitStep::Open);
        }
        assert_eq!(awaited.note(&ended("trn_b", SideOutcome::Completed)), WaitStep::Open);
        let over = recorded(DrainEnded { outcome: DrainOutcome::Completed, error: None });
        assert_eq!(awaited.note(&over), WaitStep::Ended(Ok(())));
    }

    #[test]
    fn it_is_done_when_its_last_piece_is() {
        let mut awaited = awaited();
        for event in [
            started("msg_c", "trn_a"),
            ended("trn_a", SideOutcome::Failed),
            started("msg_c", "trn_b"),
            ended("trn_b", SideOutcome::Completed),
            started("msg_c", "trn_c"),
            ended("trn_c", SideOutcome::Completed),
        ] {
            assert_eq!(awaited.note(&event), WaitStep::Open);
        }
        let over = recorded(DrainEnded { outcome: DrainOutcome::Completed, error: None });
        assert_eq!(awaited.note(&over), WaitStep::Ended(Ok(())));
    }

    #[test]
    fn what_stops_it_before_its_end_is_told() {
        let parked = recorded(InterruptRequested { by: None, target: InterruptTarget::Parked });
        let cancelled = recorded(InputCancelled { message: "msg_c".parse().expect("an id") });
        let over = recorded(DrainEnded { outcome: DrainOutcome::Interrupted, error: None });
        // Finding core-3 M7: the interrupt may be older than the request, and then it still runs.
        for event in [parked, over] {
            assert!(matches!(awaited().note(&event), WaitStep::EndedIfParked(Err(_))), "{event:?}");
        }
        assert!(matches!(awaited().note(&cancelled), WaitStep::Ended(Err(_))));
        let mut begun = awaited();
        begun.note(&started("msg_c", "trn_b"));
        assert_eq!(begun.note(&ended("trn_b", SideOutcome::Failed)), WaitStep::Open);
        let over = recorded(DrainEnded { outcome: DrainOutcome::Completed, error: None });
        assert!(matches!(begun.note(&over), WaitStep::Ended(Err(_))));
    }
}
