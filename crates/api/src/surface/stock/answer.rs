//! Waits until the session's log says that the work on a prompt has ended.

use std::sync::Arc;

use domain::{
    DrainOutcome, InterruptTarget, MessageId, RecordedEvent, Seq, SessionError, SessionEvent,
    SessionId, SessionRef,
};
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderValue};
use store::{Admission, AdmittedPrompt, MessageRow};

use crate::ApiState;
use crate::act::{AdmitRequest, WaitStep, admit, home, relearn};
use crate::error::ApiError;
use crate::fold::Conversation;
use crate::follow::{Cursor, HoldGuard, Step, Want};
use crate::homes::Home;
use crate::principal::Principal;
use crate::shares::Share;
use crate::view::{MessageView, SessionContext, as_stock, message};

/// The end of the work on a prompt.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The assistant's last message.
    With(Arc<MessageRow>),
    /// The reason why there is no message.
    Without(String),
}

/// The state of the work on one prompt, as its events tell it. Pure.
#[derive(Debug)]
struct Awaited {
    message: MessageId,
    promoted: bool,
    /// Whether a turn has begun since then.
    begun: bool,
    conversation: Conversation,
}

impl Awaited {
    fn new(message: MessageId) -> Self {
        Self { message, promoted: false, begun: false, conversation: Conversation::default() }
    }

    fn note(&mut self, event: &RecordedEvent) -> WaitStep<Ended> {
        let without = |why: &str| Ended::Without(why.to_owned());
        self.conversation.apply(event);
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these say how work goes on")]
        match &event.event {
            SessionEvent::PromptPromoted(promoted) if promoted.message == self.message => {
                self.promoted = true;
            }
            SessionEvent::TurnStarted(_) if self.promoted => self.begun = true,
            SessionEvent::InterruptRequested(interrupt)
                if interrupt.target == InterruptTarget::Parked && !self.promoted =>
            {
                // Somebody may have woken the session for it at once.
                return WaitStep::EndedIfParked(without("interrupted before the work began"));
            }
            SessionEvent::InputCancelled(cancelled) if cancelled.message == self.message => {
                return WaitStep::Ended(without("the prompt was cancelled"));
            }
            SessionEvent::DrainEnded(end) => {
                let last = self.conversation.newest().filter(|_| self.begun);
                let ended = match (last, &end.error, end.outcome) {
                    (Some(last), ..) => Ended::With(last.clone()),
                    (None, Some(SessionError { message, .. }), _) => without(message),
                    (None, None, DrainOutcome::Interrupted) => {
                        without("interrupted before the assistant answered")
                    }
                    (None, None, DrainOutcome::Completed | DrainOutcome::Failed) => {
                        without("the work ended before the assistant answered")
                    }
                };
                // A drain that ends in any way leaves awake prompts that it has not promoted to the next drain.
                return if self.promoted {
                    WaitStep::Ended(ended)
                } else {
                    WaitStep::EndedIfParked(ended)
                };
            }
            _ => {}
        }
        WaitStep::Open
    }
}

/// The kind of client that sent a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// A released OpenCode client. It shows events from its stream, and stops listening when it gets its answer.
    Released,
    /// Any other client, such as an SDK. It reads the answer.
    Other,
}

impl Client {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let agent = headers.get(USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
        if agent.starts_with(b"opencode/") { Self::Released } else { Self::Other }
    }
}

/// A request that waits for the answer to its prompt. It joined the session's log before it admitted the prompt.
pub(crate) struct Held {
    awaited: Awaited,
    log: Cursor,
    session: SessionId,
    home: Arc<Home>,
    /// Set for a released client only.
    hold: Option<HoldGuard>,
    _share: Share,
}

impl Held {
    /// Admits a prompt. Joins the session's log first, so that nothing has to be read again.
    pub(crate) async fn admit(
        state: &ApiState,
        principal: &Principal,
        session: SessionId,
        request: AdmitRequest,
        client: Client,
    ) -> Result<Self, ApiError> {
        let org = principal.org;
        let share = state.waits().take(principal)?;
        let mut home = home(state, org, &session).await?;
        let mut at = SessionRef { org, location: home.location.clone(), session };
        let mut log = follow(state, &at).await?;
        let mut hold =
            (client == Client::Released).then(|| state.feeds().hold(&at, log.joined_at()));
        let admitted = admit(state, principal, at.session.clone(), request).await?;
        let is_old = admitted.admission == Admission::First && admitted.seq <= log.joined_at();
        if is_old || admitted.location != at.location {
            // The session has moved, or was deleted and created again, since we learnt its home or joined its log; or the
            // database came back without the newest events.
            state.hub().end_longer(&at).await;
            home = relearn(state, org, &at.session).await?;
            at.location = home.location.clone();
            log = follow(state, &at).await?;
            hold = hold.map(|_| state.feeds().hold(&at, Seq(admitted.seq.0 - 1)));
        }
        Ok(Self::new(&admitted, log, at.session, home, hold, share))
    }

    fn new(
        admitted: &AdmittedPrompt,
        log: Cursor,
        session: SessionId,
        home: Arc<Home>,
        hold: Option<HoldGuard>,
        share: Share,
    ) -> Self {
        let awaited = Awaited::new(admitted.prompt.message.clone());
        Self { awaited, log: log.after(admitted.seq), session, home, hold, _share: share }
    }

    /// Returns the assistant's last message once the work on the prompt has ended. Builds it from events.
    pub(crate) async fn answer(mut self, state: ApiState) -> Result<MessageView, ApiError> {
        loop {
            let event = match self.log.next().await? {
                Step::Event(event) => event,
                Step::Delta(_) | Step::Output(_) => continue,
                Step::Gone => {
                    return Err(state.no_more_events());
                }
                Step::WentBack => return Err(ApiError::went_back()),
            };
            let step = self.awaited.note(&event);
            let ended = step.end(&state, self.log.session(), &self.awaited.message).await?;
            let Some(ended) = ended else { continue };
            if self.hold.is_some() {
                state.feeds().have_told(self.log.session(), event.seq).await;
            }
            return match ended {
                Ended::With(row) => {
                    // An assistant's message names its own agent and model.
                    let context = SessionContext {
                        session: self.session,
                        directory: self.home.directory.clone(),
                        agent: state.settings().default_agent.clone(),
                        model: state.settings().default_model.get(),
                    };
                    Ok(as_stock(&context, message(&context, &row)))
                }
                Ended::Without(why) => Err(ApiError::Conflict(why)),
            };
        }
    }
}

async fn follow(state: &ApiState, at: &SessionRef) -> Result<Cursor, ApiError> {
    Cursor::join(state.hub(), state.store(), at.clone(), Want::Events).await
}

#[cfg(test)]
mod tests {
    use domain::{
        DrainEnded, InputCancelled, InterruptRequested, ModelRef, PromptPromoted, TurnOutcome,
        TurnSettled, TurnStarted, TurnUsage,
    };

    use super::*;

    #[test]
    fn only_a_released_client_is_one() {
        let client = |agent: &str| {
            let agent = HeaderValue::from_str(agent).expect("a header");
            Client::of(&HeaderMap::from_iter([(USER_AGENT, agent)]))
        };
        assert_eq!(client("opencode/1.18.33"), Client::Released);
        assert_eq!(client("my-opencode/1"), Client::Other);
        assert_eq!(Client::of(&HeaderMap::new()), Client::Other);
    }

    fn awaited() -> Awaited {
        Awaited::new("msg_u".parse().expect("an id"))
    }

    fn recorded(event: impl Into<SessionEvent>) -> RecordedEvent {
        let id = "evt_a".parse().expect("an id");
        RecordedEvent { seq: Seq(1), id, time: 1, claim: None, event: event.into() }
    }

    fn model() -> ModelRef {
        ModelRef::new("p", "m")
    }

    fn promoted(message: &str) -> RecordedEvent {
        recorded(PromptPromoted {
            message: message.parse().expect("an id"),
            parts: Vec::new(),
            agent: "build".into(),
            model: model(),
            admitted: 0,
            synthetic: None,
        })
    }

    fn turn(message: &str) -> RecordedEvent {
        recorded(TurnStarted {
            turn: "trn_a".parse().expect("an id"),
            message: message.parse().expect("an id"),
            parent: "msg_u".parse().expect("an id"),
            agent: "build".into(),
            model: model(),
            epoch: 1,
            step: 1,
            notice: None,
        })
    }

    fn ended(outcome: DrainOutcome) -> RecordedEvent {
        recorded(DrainEnded { outcome, error: None })
    }

    #[test]
    fn the_answer_is_the_last_message_of_the_drain_that_promoted_the_prompt() {
        let mut awaited = awaited();
        for event in [turn("msg_0"), promoted("msg_u"), turn("msg_1"), turn("msg_2")] {
            assert_eq!(awaited.note(&event), WaitStep::Open);
        }
        let last = awaited.note(&ended(DrainOutcome::Completed));
        assert!(matches!(last, WaitStep::Ended(Ended::With(row)) if row.id.as_str() == "msg_2"));
    }

    #[test]
    fn a_turn_that_was_lost_or_too_large_is_no_answer() {
        let mut awaited = awaited();
        awaited.note(&promoted("msg_u"));
        awaited.note(&turn("msg_1"));
        let lost = recorded(TurnSettled {
            turn: "trn_a".parse().expect("an id"),
            message: "msg_1".parse().expect("an id"),
            outcome: TurnOutcome::Lost,
            usage: TurnUsage::default(),
            error: None,
        });
        assert_eq!(awaited.note(&lost), WaitStep::Open);
        let end = awaited.note(&ended(DrainOutcome::Failed));
        assert!(matches!(end, WaitStep::Ended(Ended::Without(_))));
    }

    // Finding core-3 M7: a drain that failed or was interrupted was taken for the end of a prompt that waited.
    #[test]
    fn no_end_of_a_drain_ends_a_prompt_that_it_left() {
        for outcome in [DrainOutcome::Completed, DrainOutcome::Failed, DrainOutcome::Interrupted] {
            let mut awaited = awaited();
            let left = awaited.note(&ended(outcome));
            assert!(matches!(left, WaitStep::EndedIfParked(Ended::Without(_))), "{left:?}");
            for event in [promoted("msg_u"), turn("msg_1")] {
                assert_eq!(awaited.note(&event), WaitStep::Open);
            }
            let end = awaited.note(&ended(outcome));
            assert!(matches!(end, WaitStep::Ended(Ended::With(_))), "{end:?}");
        }
    }

    #[test]
    fn a_cancelled_prompt_is_not_waited_for() {
        let message = "msg_u".parse().expect("an id");
        let cancelled = recorded(InputCancelled { message });
        assert!(matches!(awaited().note(&cancelled), WaitStep::Ended(Ended::Without(_))));
    }

    #[test]
    fn a_parked_prompt_is_not_waited_for() {
        let parked = recorded(InterruptRequested { by: None, target: InterruptTarget::Parked });
        assert!(matches!(awaited().note(&parked), WaitStep::EndedIfParked(Ended::Without(_))));
    }
}
