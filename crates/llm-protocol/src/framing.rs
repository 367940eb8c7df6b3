//! Cuts the bytes of an answer into the texts that a [`crate::Decoder`] takes.

use crate::decode_error::DecodeError;
use crate::{aws_event_stream, sse};

/// The framing of a protocol's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events: a frame is an event's data.
    Sse,
    /// AWS's binary event stream: a frame is `{"<event type>":<payload>}`.
    AwsEventStream,
}

/// Cuts the bytes of one answer into frames. Any split of the bytes gives the same frames.
#[derive(Debug)]
pub enum Framer {
    /// A framer for server-sent events.
    Sse(sse::Framer),
    /// A framer for AWS's messages.
    AwsEventStream(aws_event_stream::Framer),
}

impl Framing {
    /// Makes a framer that refuses frames longer than `max_frame_bytes`.
    #[must_use]
    pub fn framer(self, max_frame_bytes: usize) -> Framer {
        match self {
            Self::Sse => Framer::Sse(sse::Framer::new(max_frame_bytes)),
            Self::AwsEventStream => {
                Framer::AwsEventStream(aws_event_stream::Framer::new(max_frame_bytes))
            }
        }
    }

    /// Returns the stream's media type, for the `accept` header.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Sse => "text/event-stream",
            Self::AwsEventStream => "application/vnd.amazon.eventstream",
        }
    }
}

impl Framer {
    /// Takes the next bytes and returns the frames that they complete, in order.
    ///
    /// # Errors
    /// A frame is too large or broken; drop the framer.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
        let mut frames = Vec::new();
        self.push_into(bytes, &mut frames)?;
        Ok(frames)
    }

    /// Does the same as [`Framer::push`] but appends to `frames`, which keeps the complete frames that came
    /// before an error.
    ///
    /// # Errors
    /// The same as [`Framer::push`].
    pub fn push_into(&mut self, bytes: &[u8], frames: &mut Vec<String>) -> Result<(), DecodeError> {
        match self {
            Self::Sse(framer) => Ok(framer.push_into(bytes, frames)?),
            Self::AwsEventStream(framer) => framer.push_into(bytes, frames),
        }
    }

    /// Ends a stream whose connection was closed properly, and returns the frames that are whole without their mark of
    /// the end.
    #[must_use]
    pub fn end_stream(&mut self) -> Vec<String> {
        match self {
            Self::Sse(framer) => framer.end_stream(),
            Self::AwsEventStream(_) => Vec::new(), // its messages have a length
        }
    }
}
