//! The state of a run, derived from the log alone. Pure.

use domain::{DrainOutcome, InterruptTarget, MessageId, SessionError, SessionEvent, TurnId};
use serde::Serialize;

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunOutcome {
    /// The session answered.
    Completed,
    /// It stopped on an error.
    Failed,
    /// Somebody stopped it.
    Interrupted,
}

impl RunOutcome {
    /// Returns the exit code of `run`: 0, 1 or 130.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Interrupted => 130,
        }
    }
}

impl From<DrainOutcome> for RunOutcome {
    fn from(outcome: DrainOutcome) -> Self {
        match outcome {
            DrainOutcome::Completed => Self::Completed,
            DrainOutcome::Failed => Self::Failed,
            DrainOutcome::Interrupted => Self::Interrupted,
        }
    }
}

/// The progress of our prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Its admission has not been seen yet.
    Sent,
    Admitted,
    Promoted,
    Ended(RunOutcome),
}

/// The path of one prompt through a session that others may use too.
#[derive(Debug)]
pub struct RunState {
    message: MessageId,
    progress: Progress,
    was_promoted: bool,
    /// How a drain ended that may have left our prompt behind.
    doubt: Option<RunOutcome>,
    /// Why it failed.
    reason: Option<SessionError>,
    turns: Vec<TurnId>,
}

impl RunState {
    /// Starts to wait for the prompt with this id.
    #[must_use]
    pub fn new(message: MessageId) -> Self {
        Self {
            message,
            progress: Progress::Sent,
            was_promoted: false,
            doubt: None,
            reason: None,
            turns: Vec::new(),
        }
    }

    /// Applies the next event of the log.
    ///
    /// The run is over with the first `drain.ended` after our promotion. Before the promotion, a drain that fails or is
    /// interrupted may have parked our prompt or not, and so may an interrupt of an idle session: see
    /// [`RunState::doubt`].
    pub fn observe(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::PromptAdmitted(admitted) if admitted.message == self.message => {
                self.progress = Progress::Admitted;
            }
            SessionEvent::PromptPromoted(promoted) if promoted.message == self.message => {
                self.progress = Progress::Promoted;
                self.was_promoted = true;
            }
            SessionEvent::TurnStarted(started) if self.is_ours() => {
                self.turns.push(started.turn.clone());
            }
            SessionEvent::DrainEnded(ended) => match (self.progress, ended.outcome) {
                (Progress::Promoted, outcome) => {
                    self.progress = Progress::Ended(outcome.into());
                    self.reason.clone_from(&ended.error);
                }
                (
                    Progress::Admitted,
                    outcome @ (DrainOutcome::Failed | DrainOutcome::Interrupted),
                ) => {
                    self.doubt = Some(outcome.into());
                    self.reason.clone_from(&ended.error);
                }
                (Progress::Admitted, DrainOutcome::Completed)
                | (Progress::Sent | Progress::Ended(_), _) => {}
            },
            SessionEvent::InterruptRequested(asked) => {
                if asked.target == InterruptTarget::Parked {
                    match self.progress {
                        Progress::Admitted => self.doubt = Some(RunOutcome::Interrupted),
                        Progress::Promoted => {
                            self.progress = Progress::Ended(RunOutcome::Interrupted);
                        }
                        Progress::Sent | Progress::Ended(_) => {}
                    }
                }
            }
            SessionEvent::SessionCreated(_)
            | SessionEvent::PromptAdmitted(_)
            | SessionEvent::PromptPromoted(_)
            | SessionEvent::EpochStarted(_)
            | SessionEvent::ContextUpdated(_)
            | SessionEvent::TurnStarted(_)
            | SessionEvent::AttemptStarted(_)
            | SessionEvent::AttemptEnded(_)
            | SessionEvent::RetryScheduled(_)
            | SessionEvent::TextCheckpointed(_)
            | SessionEvent::ToolCalled(_)
            | SessionEvent::ToolAsked(_)
            | SessionEvent::ToolAnswered(_)
            | SessionEvent::ToolStarted(_)
            | SessionEvent::ToolSettled(_)
            | SessionEvent::TurnReplied(_)
            | SessionEvent::TurnSettled(_)
            | SessionEvent::NoticeRecorded(_)
            | SessionEvent::SessionRenamed(_)
            | SessionEvent::SessionArchived(_)
            | SessionEvent::SessionDescribed(_)
            | SessionEvent::EntrySet(_)
            | SessionEvent::EntryRemoved(_)
            | SessionEvent::ControlAdmitted(_)
            | SessionEvent::ControlDelivered(_)
            | SessionEvent::InputCancelled(_)
            | SessionEvent::DeliveryChanged(_)
            | SessionEvent::WakeRequested(_)
            | SessionEvent::CompactionStarted(_)
            | SessionEvent::CompactionReminded(_)
            | SessionEvent::CompactionEnded(_)
            | SessionEvent::TitleStarted(_)
            | SessionEvent::TitleEnded(_)
            | SessionEvent::SessionMoved(_)
            | SessionEvent::SessionForked(_)
            | SessionEvent::WorkspaceSnapshotted(_)
            | SessionEvent::WorkspaceRestored(_)
            | SessionEvent::RevertStaging(_)
            | SessionEvent::RevertStaged(_)
            | SessionEvent::RevertCleared(_)
            | SessionEvent::RevertCommitted(_) => {}
        }
    }

    /// Returns whether the current events belong to this run: our prompt is promoted and its drain runs.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        matches!(self.progress, Progress::Promoted)
    }

    /// Returns whether the log has our prompt.
    #[must_use]
    pub fn was_admitted(&self) -> bool {
        !matches!(self.progress, Progress::Sent)
    }

    /// Returns whether our prompt was promoted into the history.
    #[must_use]
    pub fn was_promoted(&self) -> bool {
        self.was_promoted
    }

    /// Returns the end of the run; `None` while it continues.
    #[must_use]
    pub fn outcome(&self) -> Option<RunOutcome> {
        match self.progress {
            Progress::Ended(outcome) => Some(outcome),
            Progress::Sent | Progress::Admitted | Progress::Promoted => None,
        }
    }

    /// Returns how the run has ended if the session is idle now: work before it failed, and our prompt waits. Says so
    /// once.
    pub fn doubt(&mut self) -> Option<RunOutcome> {
        self.doubt.take().filter(|_| self.progress == Progress::Admitted)
    }

    /// Returns why our work failed, or the work before it.
    #[must_use]
    pub fn reason(&self) -> Option<&SessionError> {
        self.reason.as_ref()
    }

    /// Returns why work ended before our prompt was started; `None` if it was.
    #[must_use]
    pub fn reason_before(&self) -> Option<&SessionError> {
        self.reason.as_ref().filter(|_| !self.was_promoted)
    }

    /// Returns whether our prompt waits in the inbox, since work before it ended: a limit of cost is reached, or the files
    /// are not there. It can go on once that is over.
    #[must_use]
    pub fn is_left_waiting(&self) -> bool {
        self.was_admitted() && !self.was_promoted
    }

    /// Ends the run, though the log does not say so.
    pub fn end(&mut self, outcome: RunOutcome) {
        self.progress = Progress::Ended(outcome);
    }

    /// Returns the turns of this run, in order.
    #[must_use]
    pub fn turns(&self) -> &[TurnId] {
        &self.turns
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(kind: &str, data: &serde_json::Value) -> SessionEvent {
        SessionEvent::read(kind, 1, &data.to_string()).expect("an event")
    }

    fn admitted(message: &str) -> SessionEvent {
        event(
            "prompt.admitted",
            &json!({"message": message, "delivery": "steer", "parts": [], "wake": true, "digest": ""}),
        )
    }

    fn promoted(message: &str) -> SessionEvent {
        let model = json!({"provider": "p", "model": "m"});
        event(
            "prompt.promoted",
            &json!({"message": message, "parts": [], "agent": "build", "model": model, "admitted": 1}),
        )
    }

    fn turn(id: &str) -> SessionEvent {
        let model = json!({"provider": "p", "model": "m"});
        event(
            "turn.started",
            &json!({"turn": id, "message": "msg_a", "parent": "msg_1", "agent": "build",
                    "model": model, "epoch": 1, "step": 1}),
        )
    }

    fn ended(outcome: &str) -> SessionEvent {
        event("drain.ended", &json!({"outcome": outcome}))
    }

    fn interrupt(target: &serde_json::Value) -> SessionEvent {
        event("interrupt.requested", &json!({"target": target}))
    }

    fn after(events: &[SessionEvent]) -> (Option<RunOutcome>, Vec<String>) {
        let mut state = RunState::new("msg_1".parse().expect("an id"));
        events.iter().for_each(|event| state.observe(event));
        (state.outcome(), state.turns().iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_run_ends_with_the_drain_that_promoted_its_prompt_and_has_its_turns() {
        let events = [
            turn("trn_before"),
            ended("failed"),
            admitted("msg_1"),
            promoted("msg_1"),
            turn("trn_1"),
            turn("trn_2"),
            ended("completed"),
            turn("trn_after"),
            ended("failed"),
        ];
        let turns = vec!["trn_1".to_owned(), "trn_2".to_owned()];
        assert_eq!(after(&events), (Some(RunOutcome::Completed), turns.clone()));
        assert_eq!(after(&events[..6]), (None, turns));
    }

    #[test]
    fn prompts_of_others_do_not_end_or_fill_a_run() {
        let events = [admitted("msg_2"), promoted("msg_2"), turn("trn_2"), ended("completed")];
        assert_eq!(after(&events), (None, vec![]));
        let waits = [admitted("msg_1"), turn("trn_2"), ended("completed")];
        assert_eq!(after(&waits), (None, vec![]));
    }

    // Check heldout-3: a spending limit said nothing in `run`, which removed the session with its prompt.
    #[test]
    fn a_limit_says_why_and_leaves_the_prompt_waiting() {
        let error = SessionError {
            code: "limit.spending".to_owned().into(),
            message: "the monthly limit is reached".into(),
        };
        let outcome = DrainOutcome::Failed;
        let reached = domain::DrainEnded { outcome, error: Some(error.clone()) }.into();
        let mut state = RunState::new("msg_1".parse().expect("an id"));
        assert!(!state.is_left_waiting() && state.reason_before().is_none(), "not even admitted");
        for event in [admitted("msg_1"), reached] {
            state.observe(&event);
        }
        assert_eq!(state.doubt(), Some(RunOutcome::Failed));
        state.end(RunOutcome::Failed);
        assert_eq!(state.reason_before(), Some(&error));
        assert!(state.is_left_waiting());
        state.observe(&promoted("msg_1"));
        assert!(!state.is_left_waiting() && state.reason_before().is_none(), "it went on");
    }

    #[test]
    fn a_run_knows_why_its_own_work_failed() {
        let error = json!({"code": "model.unknown", "message": "there is no provider `foo`"});
        let failed = event("drain.ended", &json!({"outcome": "failed", "error": error}));
        let mut state = RunState::new("msg_1".parse().expect("an id"));
        for event in [admitted("msg_1"), promoted("msg_1"), failed] {
            state.observe(&event);
        }
        assert_eq!(state.outcome(), Some(RunOutcome::Failed));
        let code = state.reason().map(|reason| reason.code.as_str());
        assert_eq!((code, state.reason_before()), (Some("model.unknown"), None));
    }

    // Finding core-3 M7: a prompt that came after the interrupt of other work was given up, and ran.
    #[test]
    fn an_interrupt_before_the_promotion_asks_whether_it_parked() {
        let parked = json!({"type": "parked"});
        let doubt = |events: &[SessionEvent]| {
            let mut state = RunState::new("msg_1".parse().expect("an id"));
            events.iter().for_each(|event| state.observe(event));
            (state.outcome(), state.doubt())
        };
        let asked = (None, Some(RunOutcome::Interrupted));
        assert_eq!(doubt(&[interrupt(&parked)]), (None, None));
        assert_eq!(doubt(&[admitted("msg_1"), interrupt(&parked)]), asked);
        let of_another = [
            turn("trn_2"),
            admitted("msg_1"),
            interrupt(&json!({"type": "turn", "turn": "trn_2"})),
            ended("interrupted"),
        ];
        assert_eq!(doubt(&of_another), asked);
        assert_eq!(doubt(&of_another[..3]), (None, None));
    }

    // Finding conformance queue: a queued prompt runs after work that failed, unless that has parked it.
    #[test]
    fn a_failure_before_the_promotion_asks_whether_work_goes_on() {
        let mut state = RunState::new("msg_1".parse().expect("an id"));
        let events = [admitted("msg_1"), ended("failed")];
        events.iter().for_each(|event| state.observe(event));
        assert_eq!((state.outcome(), state.doubt()), (None, Some(RunOutcome::Failed)));
        assert_eq!(state.doubt(), None, "asked once");
        state.observe(&promoted("msg_1"));
        state.observe(&ended("completed"));
        assert_eq!((state.outcome(), state.doubt()), (Some(RunOutcome::Completed), None));
        state.end(RunOutcome::Failed);
        assert_eq!(state.outcome(), Some(RunOutcome::Failed));
    }
}
