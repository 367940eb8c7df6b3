use std::collections::HashMap;
use std::sync::Arc;

use domain::{MessageId, RecordedEvent};
use store::MessageRow;

use super::change::Change;
use super::conversation::Conversation;

/// All messages of a log, as its rows must have them.
#[derive(Debug, Default)]
pub(crate) struct MessageFold {
    conversation: Conversation,
    messages: HashMap<MessageId, Arc<MessageRow>>,
}

impl MessageFold {
    /// Applies the next event of the log.
    pub(crate) fn apply(&mut self, event: &RecordedEvent) {
        for change in self.conversation.apply(event) {
            match change {
                Change::Message(message)
                | Change::Call(message, _)
                | Change::Parts(message, _)
                | Change::Checkpoint(message)
                | Change::Settled(message, _) => {
                    self.messages.insert(message.id.clone(), message);
                }
                Change::Removed(message) => drop(self.messages.remove(&message)),
                Change::Reverted(from) => self.messages.retain(|_, message| message.seq < from),
                // No row has an admitted prompt or live text, and the others are about no message.
                Change::Created
                | Change::Session
                | Change::Admitted(_)
                | Change::Text(_)
                | Change::Output(..)
                | Change::Asked(..)
                | Change::Answered(..)
                | Change::Status(_)
                | Change::Failed(_)
                | Change::Notice(_)
                | Change::Compacted
                | Change::Files => {}
            }
        }
    }

    /// Returns the messages, in no order.
    pub(crate) fn into_messages(self) -> impl Iterator<Item = Arc<MessageRow>> {
        self.messages.into_values()
    }
}
