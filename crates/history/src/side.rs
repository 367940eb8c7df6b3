use std::sync::Arc;

use domain::{
    AttemptId, CompactionReminded, CompactionStarted, Pricing, SessionEvent, TitleStarted, TurnId,
    TurnUsage,
};
use llm_protocol::{Message, Part};

/// An open request beside the conversation: a Compaction's or a title's.
#[derive(Debug, Clone)]
pub struct Side<T> {
    /// Its start.
    pub started: Arc<T>,
    /// The attempt that has not ended.
    pub attempt: Option<AttemptId>,
    /// The number of wire requests so far.
    pub attempts: i32,
    /// The prices of the last wire request.
    pub pricing: Option<Arc<Pricing>>,
    /// The usage of its ended attempts.
    pub usage: TurnUsage,
}

/// A Compaction that has not ended.
#[derive(Debug, Clone)]
pub struct OpenCompaction {
    /// Its requests.
    pub side: Side<CompactionStarted>,
    /// The reminder, if its answer was no summary.
    pub reminded: Option<Arc<CompactionReminded>>,
}

impl OpenCompaction {
    /// Adds the request for the summary after the conversation, and the reminder if the answer was no summary.
    pub(crate) fn ask(&self, messages: &mut Vec<Message>) {
        messages.push(Message::user(self.side.started.prompt.clone()));
        if let Some(reminded) = &self.reminded {
            messages.push(Message::assistant(vec![Part::text(reminded.draft.clone())]));
            messages.push(Message::user(reminded.reminder.clone()));
        }
    }
}

/// A title that is being made.
pub type OpenTitle = Side<TitleStarted>;

impl<T> Side<T> {
    pub(crate) fn new(started: T) -> Self {
        let usage = TurnUsage::default();
        Self { started: Arc::new(started), attempt: None, attempts: 0, pricing: None, usage }
    }

    /// Applies an event of its own attempt.
    pub(crate) fn apply(&mut self, event: &SessionEvent) {
        #[expect(clippy::wildcard_enum_match_arm, reason = "only these are about its attempts")]
        match event {
            SessionEvent::AttemptStarted(started) => {
                self.attempt = Some(started.attempt.clone());
                self.attempts = started.ordinal;
                self.pricing = started.pricing.clone().map(Arc::new);
            }
            SessionEvent::AttemptEnded(ended) => {
                self.attempt = None;
                if let Some(used) = ended.usage {
                    self.usage = self.usage.plus(used);
                }
            }
            _ => {}
        }
    }
}

/// Returns the turn in an attempt's event.
pub(crate) fn turn_of(event: &SessionEvent) -> Option<&TurnId> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others name none, or are of a turn")]
    match event {
        SessionEvent::AttemptStarted(started) => Some(&started.turn),
        SessionEvent::AttemptEnded(ended) => Some(&ended.turn),
        SessionEvent::RetryScheduled(retry) => Some(&retry.turn),
        _ => None,
    }
}
