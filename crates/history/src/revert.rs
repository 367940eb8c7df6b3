//! The states that a Revert can restore.

use std::sync::Arc;

use domain::{MessageId, RevertStaged, RevertStaging, RevertedTo, Seq, TurnId, TurnUsage};

use crate::{EpochState, View};

/// The state of a request before a message began. A Revert restores it without a fold from the start.
#[derive(Debug, Clone)]
pub struct Savepoint {
    /// The event with which the message began.
    pub seq: Seq,
    /// The message.
    pub message: MessageId,
    /// The turn that writes the message, if one does.
    pub(crate) turn: Option<TurnId>,
    /// The length of the conversation.
    pub(crate) at: usize,
    pub(crate) view: View,
    pub(crate) epoch: Option<Arc<EpochState>>,
    pub(crate) last_usage: Option<(TurnUsage, usize)>,
    pub(crate) last_prompt: Option<MessageId>,
    pub(crate) first_prompt: Option<(MessageId, usize)>,
    /// Whether its summary and its epoch were given up, so that a Revert cannot restore it.
    pub(crate) is_given_up: bool,
}

impl Savepoint {
    /// Returns the context that the model had last received.
    #[must_use]
    pub fn back(&self) -> RevertedTo {
        RevertedTo {
            epoch: self.epoch.as_ref().map(|epoch| epoch.number),
            snapshot: self.epoch.as_ref().map(|epoch| epoch.snapshot.clone()),
        }
    }
}

/// A Revert that is neither cleared nor committed.
#[derive(Debug, Clone, PartialEq)]
pub enum Reverting {
    /// Files are being restored.
    Staging(Arc<RevertStaging>),
    /// The session is back before the boundary message.
    Staged(Arc<RevertStaged>),
}
