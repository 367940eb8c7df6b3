//! What a Revert goes back to.

use std::sync::Arc;

use domain::{MessageId, RevertStaged, RevertStaging, RevertedTo, Seq, TurnId, TurnUsage};

use crate::{EpochState, View};

/// What a request showed before a message began: a Revert goes back to it without a fold from the start.
#[derive(Debug, Clone)]
pub struct Savepoint {
    /// The event with which the message began.
    pub seq: Seq,
    /// The message.
    pub message: MessageId,
    /// The turn that writes it, when one does.
    pub(crate) turn: Option<TurnId>,
    /// How long the conversation was.
    pub(crate) at: usize,
    pub(crate) view: View,
    pub(crate) epoch: Option<Arc<EpochState>>,
    pub(crate) last_usage: Option<(TurnUsage, usize)>,
    pub(crate) last_prompt: Option<MessageId>,
    pub(crate) first_prompt: Option<(MessageId, usize)>,
}

impl Savepoint {
    /// What the model had last been told of its context.
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
    /// Files are being put back.
    Staging(Arc<RevertStaging>),
    /// The session stands before the boundary message.
    Staged(Arc<RevertStaged>),
}
