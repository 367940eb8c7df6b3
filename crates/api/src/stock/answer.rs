//! Waits for the work on a prompt to end, by its session's log.

use domain::{DrainOutcome, InterruptTarget, MessageId, SessionError, SessionEvent, TurnOutcome};
use store::{AdmittedPrompt, SessionRow};

use super::translate::as_stock;
use crate::ApiState;
use crate::error::ApiError;
use crate::follow::{Cursor, Step};
use crate::native::{context, one};
use crate::view::MessageView;

/// How the work on a prompt ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// With this message of the assistant.
    With(MessageId),
    /// Without any.
    Without(String),
}

/// What is known of the work on one prompt. Pure.
#[derive(Debug)]
struct Awaited {
    message: MessageId,
    promoted: bool,
    last: Option<MessageId>,
}

impl Awaited {
    fn note(&mut self, event: &SessionEvent) -> Option<Ended> {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say how work goes on")]
        match event {
            SessionEvent::PromptPromoted(promoted) if promoted.message == self.message => {
                self.promoted = true;
            }
            SessionEvent::TurnStarted(turn) if self.promoted => {
                self.last = Some(turn.message.clone());
            }
            SessionEvent::TurnSettled(turn)
                if turn.outcome == TurnOutcome::Lost
                    && self.last.as_ref() == Some(&turn.message) =>
            {
                self.last = None;
            }
            SessionEvent::InterruptRequested(interrupt)
                if interrupt.target == InterruptTarget::Parked && !self.promoted =>
            {
                return Some(Ended::Without("interrupted before the work began".to_owned()));
            }
            // A drain that ends has spent the wakes before its end: what it has not promoted stays put.
            SessionEvent::DrainEnded(end) => {
                return Some(match (self.last.take(), &end.error, end.outcome) {
                    (Some(message), ..) => Ended::With(message),
                    (None, Some(SessionError { message, .. }), _) => {
                        Ended::Without(message.clone())
                    }
                    (None, None, DrainOutcome::Interrupted) => {
                        Ended::Without("interrupted before the assistant answered".to_owned())
                    }
                    (None, None, DrainOutcome::Completed | DrainOutcome::Failed) => {
                        Ended::Without("the work ended before the assistant answered".to_owned())
                    }
                });
            }
            _ => {}
        }
        None
    }
}

/// The assistant's last message for an admitted prompt, once the work on it has ended.
pub(super) async fn answer(
    state: &ApiState,
    session: SessionRow,
    admitted: &AdmittedPrompt,
) -> Result<MessageView, ApiError> {
    let mut awaited =
        Awaited { message: admitted.prompt.message.clone(), promoted: false, last: None };
    let at = session.at.clone();
    let mut log = Cursor::open(state.hub(), state.store(), at, admitted.seq).await?;
    loop {
        let event = match log.next().await? {
            Step::Event(event) => event,
            Step::Delta(_) => continue,
            Step::Gone => {
                return Err(ApiError::Unavailable {
                    message: "the session was deleted or this gateway stops; the work goes on",
                    cause: None,
                });
            }
        };
        match awaited.note(&event.event) {
            Some(Ended::With(message)) => {
                let view = one(state, &session, message.as_str()).await?;
                return Ok(as_stock(&context(state, &session), view));
            }
            Some(Ended::Without(why)) => return Err(ApiError::Conflict(why)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{
        DrainEnded, InterruptRequested, ModelRef, PromptPromoted, TurnSettled, TurnStarted,
        TurnUsage,
    };

    use super::*;

    fn awaited() -> Awaited {
        Awaited { message: "msg_u".parse().expect("an id"), promoted: false, last: None }
    }

    fn model() -> ModelRef {
        ModelRef { provider: "p".into(), model: "m".into() }
    }

    fn promoted(message: &str) -> SessionEvent {
        SessionEvent::from(PromptPromoted {
            message: message.parse().expect("an id"),
            parts: Vec::new(),
            agent: "build".into(),
            model: model(),
            admitted: 0,
        })
    }

    fn turn(message: &str) -> SessionEvent {
        SessionEvent::from(TurnStarted {
            turn: "trn_a".parse().expect("an id"),
            message: message.parse().expect("an id"),
            parent: "msg_u".parse().expect("an id"),
            agent: "build".into(),
            model: model(),
            epoch: 1,
            step: 1,
        })
    }

    fn ended(outcome: DrainOutcome) -> SessionEvent {
        SessionEvent::from(DrainEnded { outcome, error: None })
    }

    #[test]
    fn the_answer_is_the_last_message_of_the_drain_that_promoted_the_prompt() {
        let mut awaited = awaited();
        for event in [turn("msg_0"), promoted("msg_u"), turn("msg_1"), turn("msg_2")] {
            assert_eq!(awaited.note(&event), None);
        }
        let last = Ended::With("msg_2".parse().expect("an id"));
        assert_eq!(awaited.note(&ended(DrainOutcome::Completed)), Some(last));
    }

    #[test]
    fn a_lost_turn_is_no_answer() {
        let mut awaited = awaited();
        awaited.note(&promoted("msg_u"));
        awaited.note(&turn("msg_1"));
        let lost = SessionEvent::from(TurnSettled {
            turn: "trn_a".parse().expect("an id"),
            message: "msg_1".parse().expect("an id"),
            outcome: TurnOutcome::Lost,
            usage: TurnUsage::default(),
            error: None,
        });
        assert_eq!(awaited.note(&lost), None);
        assert!(matches!(awaited.note(&ended(DrainOutcome::Failed)), Some(Ended::Without(_))));
    }

    #[test]
    fn a_parked_prompt_is_not_waited_for() {
        let parked = SessionEvent::from(InterruptRequested { target: InterruptTarget::Parked });
        assert!(matches!(awaited().note(&parked), Some(Ended::Without(_))));
        assert!(matches!(
            awaited().note(&ended(DrainOutcome::Interrupted)),
            Some(Ended::Without(_))
        ));
    }
}
