//! The reasons why a stream could not be read.

use crate::error::{ErrorReason, ProviderError, truncate};
use crate::sse::FrameTooLarge;

/// A stream that is not a whole answer. The decoder that returned it must not be used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ended without a final frame, so the answer is incomplete.
    #[error("the stream ended before the answer did")]
    Truncated,
    /// A frame breaks the protocol.
    #[error("the stream breaks its protocol: {message}")]
    Malformed {
        /// The problem, bounded in length.
        message: String,
    },
    /// The answer was damaged in transit: its checksum is wrong, or good frames came before a bad one. A
    /// retry may succeed.
    #[error("the answer was damaged on its way: {message}")]
    Damaged {
        /// The problem, bounded in length.
        message: String,
    },
    /// The provider ended the answer with an error, such as a call that it could not read itself. A retry may succeed.
    #[error("the provider ended the answer with an error: {message}")]
    Failed {
        /// The provider's words, bounded in length.
        message: String,
    },
    /// The stream passed a bound on the data that we keep.
    #[error("the stream holds more than {max} {what}")]
    TooLarge {
        /// The thing that there is too much of.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The provider reported an error in the stream.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl DecodeError {
    /// Makes a malformed-frame error with this message.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(truncate(&message, ProviderError::MAX_MESSAGE_BYTES).len());
        Self::Malformed { message }
    }

    /// Makes the error of an answer that its provider ended with these words.
    pub(crate) fn failed(message: &str) -> Self {
        let message = truncate(message, ProviderError::MAX_MESSAGE_BYTES).to_owned();
        Self::Failed { message }
    }

    /// Turns a malformed frame after good ones into damage: a server that speaks the protocol does not stop
    /// speaking it.
    #[must_use]
    pub fn after_good_frames(self) -> Self {
        match self {
            Self::Malformed { message } => Self::Damaged { message },
            Self::Truncated
            | Self::Damaged { .. }
            | Self::Failed { .. }
            | Self::TooLarge { .. }
            | Self::Provider(_) => self,
        }
    }

    /// Returns the typed reason.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        match self {
            Self::Truncated | Self::Damaged { .. } | Self::Failed { .. } => {
                ErrorReason::InvalidOutput { incomplete_stream: true }
            }
            Self::Malformed { .. } | Self::TooLarge { .. } => {
                ErrorReason::InvalidOutput { incomplete_stream: false }
            }
            Self::Provider(error) => error.reason,
        }
    }
}

impl From<FrameTooLarge> for DecodeError {
    fn from(error: FrameTooLarge) -> Self {
        Self::TooLarge { what: "bytes in one event", max: error.max_frame_bytes }
    }
}
