//! The words of projections that no event has: the columns `role`, `kind`, `status` and `finish`.

use crate::words;
use crate::{Control, PromptAdmitted};

words! {
    /// Whose a message is.
    pub enum MessageRole {
        /// A prompt.
        User = "user",
        /// The answer of one Provider Turn.
        Assistant = "assistant",
        /// A text of ours that the model saw.
        Notice = "notice",
        /// A Conversation Checkpoint.
        Checkpoint = "checkpoint",
    }
}

words! {
    /// The kind of a part of a message.
    pub enum PartKind {
        /// Text.
        Text = "text",
        /// Reasoning of the model.
        Reasoning = "reasoning",
        /// A tool call.
        Tool = "tool",
        /// A call that the provider ran; its text is JSON.
        HostedCall = "hosted-call",
        /// The outcome of one; its text is JSON.
        HostedResult = "hosted-result",
    }
}

words! {
    /// The kind of an input.
    pub enum InputKind {
        /// A user's prompt.
        Prompt = "prompt",
        /// A prompt that no user wrote.
        Synthetic = "synthetic",
        /// A Compaction.
        Compaction = "compaction",
        /// A Move.
        Move = "move",
        /// A Revert.
        Revert = "revert",
        /// The undoing of a Revert.
        Unrevert = "unrevert",
    }
}

impl InputKind {
    /// Of a prompt.
    #[must_use]
    pub fn of_prompt(prompt: &PromptAdmitted) -> Self {
        if prompt.synthetic.is_some() { Self::Synthetic } else { Self::Prompt }
    }

    /// Of a control.
    #[must_use]
    pub fn of_control(control: &Control) -> Self {
        match control {
            Control::Compaction => Self::Compaction,
            Control::Move { .. } => Self::Move,
            Control::Revert { .. } => Self::Revert,
            Control::Unrevert => Self::Unrevert,
        }
    }

    /// Whether it is an action rather than text.
    #[must_use]
    pub fn is_control(self) -> bool {
        match self {
            Self::Prompt | Self::Synthetic => false,
            Self::Compaction | Self::Move | Self::Revert | Self::Unrevert => true,
        }
    }
}

words! {
    /// Where an input stands.
    pub enum InputStatus {
        /// It waits.
        Admitted = "admitted",
        /// It is history, or was acted on.
        Promoted = "promoted",
        /// It was taken back.
        Cancelled = "cancelled",
    }
}

words! {
    /// The purpose of the requests of a turn.
    pub enum TurnKind {
        /// A turn of the conversation.
        Turn = "turn",
        /// A summary that replaces the older part of it.
        Compaction = "compaction",
        /// A title.
        Title = "title",
    }
}

words! {
    /// How far a turn has come.
    pub enum TurnStatus {
        /// It runs.
        Open = "open",
        /// Its reply is whole.
        Replied = "replied",
        /// It is over, with all its calls.
        Settled = "settled",
    }
}

words! {
    /// Why an answer ended: a reason of the provider's, or one of ours.
    pub enum Finish {
        /// The model was done.
        Stop = "stop",
        /// The limit on tokens was reached.
        Length = "length",
        /// The model wants the results of its calls.
        ToolCalls = "tool-calls",
        /// The provider withheld the rest.
        ContentFilter = "content-filter",
        /// The provider failed, or we did.
        Error = "error",
        /// The provider gave no reason that we know.
        Unknown = "unknown",
        /// Somebody stopped it.
        Interrupted = "interrupted",
        /// Its stream broke after visible output.
        Cut = "cut",
    }
}

words! {
    /// How an ask stands.
    pub enum AskStatus {
        /// It waits for an answer.
        Pending = "pending",
        /// It has its answer.
        Answered = "answered",
        /// Its call was settled without an answer.
        Withdrawn = "withdrawn",
    }
}
