//! Why a stream could not be read.

use crate::error::{ErrorReason, ProviderError, truncate};
use crate::sse::FrameTooLarge;

/// A stream that is no whole answer. The decoder that returned it must not be used on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It ended without a final frame: what came is not the whole answer.
    #[error("the stream ended before the answer did")]
    Truncated,
    /// A frame is not what the protocol says.
    #[error("the stream breaks its protocol: {message}")]
    Malformed {
        /// What is wrong, bounded.
        message: String,
    },
    /// What came was changed on its way: a checksum says so, or what came before was good. Another try may be whole.
    #[error("the answer was damaged on its way: {message}")]
    Damaged {
        /// What is wrong, bounded.
        message: String,
    },
    /// A bound on what we keep was passed.
    #[error("the stream holds more than {max} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        max: usize,
    },
    /// The provider reported an error in the stream.
    #[error(transparent)]
    Provider(#[from] ProviderError),
}

impl DecodeError {
    /// A malformed frame, with what is wrong about it.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(truncate(&message, ProviderError::MAX_MESSAGE_BYTES).len());
        Self::Malformed { message }
    }

    /// The same after frames that were good: a server that speaks the protocol does not stop speaking it.
    #[must_use]
    pub fn after_good_frames(self) -> Self {
        match self {
            Self::Malformed { message } => Self::Damaged { message },
            Self::Truncated | Self::Damaged { .. } | Self::TooLarge { .. } | Self::Provider(_) => {
                self
            }
        }
    }

    /// The typed reason.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        match self {
            Self::Truncated | Self::Damaged { .. } => {
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
