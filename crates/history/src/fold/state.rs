use domain::{MessageId, SessionEvent};

use super::State;
use crate::Conversation;
use crate::revert::Savepoint;
use crate::side::turn_of;

impl State {
    /// Returns the state that a Revert to before `message`, which begins now, would restore.
    pub(super) fn savepoint(&self, conversation: &Conversation, message: &MessageId) -> Savepoint {
        Savepoint {
            seq: self.seq,
            message: message.clone(),
            turn: None,
            at: conversation.messages.len(),
            view: self.view.clone(),
            epoch: self.epoch.clone(),
            last_usage: self.last_usage,
            last_prompt: self.last_prompt.clone(),
            first_prompt: self.first_prompt.clone(),
            is_given_up: false,
        }
    }

    /// Applies an event to the open turn, or to the request beside it that the event names.
    pub(super) fn apply_to_open(&mut self, event: &SessionEvent) {
        if let Some(turn) = turn_of(event) {
            if let Some(compaction) = &mut self.compacting
                && compaction.side.started.turn == *turn
            {
                return compaction.side.apply(event);
            }
            if let Some(title) = &mut self.titling
                && title.started.turn == *turn
            {
                return title.apply(event);
            }
        }
        if let Some(open) = &mut self.open {
            open.apply(event);
        }
    }
}
