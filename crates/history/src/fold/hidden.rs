//! Gives up the texts of messages that a Compaction, an epoch or a Revert has hidden, so that the memory of a fold does not
//! grow with its log.
//!
//! Invariant: no request shows a message whose text was given up. Only a Revert shows hidden messages again, so a fold
//! that lacks texts is replaced by a whole one before a Revert is decided or folded.

use std::fmt;

use domain::Control;

use crate::{Conversation, History, View, weight};

/// The count of texts that a fold has given up, and the view that hid them.
#[derive(Clone, Default)]
pub(crate) struct GivenUp {
    /// The number of messages without their contents, and of savepoints without what they would restore.
    texts: usize,
    /// The view that hid them.
    hidden_by: View,
}

/// Shows the count only: two folds that lack the same texts are equal, whichever views they have looked at.
impl fmt::Debug for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GivenUp").field(&self.texts).finish()
    }
}

impl Conversation {
    /// Gives up the contents of messages that the view hides, but not that of the message `but`.
    fn give_up_hidden(&mut self, view: &View, but: Option<usize>) {
        for (at, message) in self.messages.iter_mut().enumerate() {
            if message.content.is_empty() || Some(at) == but || view.shows(at, message) {
                continue;
            }
            self.bytes -= weight::message(message);
            message.content = Vec::new();
            self.bytes += weight::message(message);
            self.given_up.texts += 1;
        }
    }

    /// Returns whether the view shows a message whose text was given up.
    pub(crate) fn is_torn(&self, view: &View) -> bool {
        self.given_up.texts > 0
            && view.since(self, 0).any(|(_, message)| message.content.is_empty())
    }
}

impl History {
    /// Gives up the texts of messages that no request shows any more, except of the first prompt, which a title is made
    /// of. So are summaries and baselines that only a Revert would restore. Nothing is given up while a Revert waits or is
    /// not final. Must not be called between a [`Mark`](crate::Mark) and a return to it.
    pub fn give_up_hidden(&mut self) {
        let view = &self.state.view;
        if self.conversation.given_up.hidden_by == *view || self.may_show_hidden() {
            return;
        }
        self.conversation.given_up.hidden_by = view.clone();
        let first_prompt = self.state.first_prompt.as_ref().map(|(_, at)| *at);
        self.conversation.give_up_hidden(view, first_prompt);
        for savepoint in &mut self.savepoints {
            if savepoint.view.checkpoint.is_some() && savepoint.view.checkpoint != view.checkpoint {
                savepoint.view.checkpoint = None;
                savepoint.epoch = None;
                savepoint.is_given_up = true;
                self.conversation.given_up.texts += 1;
            }
        }
    }

    /// Returns whether the fold lacks texts that its next decisions or requests may need. Then the log must be folded again
    /// from its beginning.
    #[must_use]
    pub fn lacks_texts(&self) -> bool {
        self.conversation.given_up.texts > 0 && (self.state.is_torn || self.may_show_hidden())
    }

    /// Returns whether a Revert waits, or is neither cleared nor committed.
    fn may_show_hidden(&self) -> bool {
        let is_revert = |control: &Control| matches!(control, Control::Revert { .. });
        self.state.revert.is_some()
            || self.state.controls.iter().any(|waiting| is_revert(&waiting.control))
    }
}
