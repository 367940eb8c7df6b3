//! A provider's stream that is read ahead during a write.

use std::collections::VecDeque;

use futures::StreamExt;
use llm_client::{LlmError, LlmStream};
use llm_protocol::LlmEvent;

/// The most events read ahead. A drain waits for Postgres for half a minute. Few providers send more in that time; a
/// stream that does has to wait.
const MOST: usize = 16_384;

/// A stream, and its events that were read but not handled yet.
pub(crate) struct Ahead {
    stream: LlmStream,
    read: VecDeque<Result<LlmEvent, LlmError>>,
    has_ended: bool,
}

impl Ahead {
    pub(crate) fn of(stream: LlmStream) -> Self {
        Self { stream, read: VecDeque::new(), has_ended: false }
    }

    /// Returns the next event; `None` at the stream's end. Dropping the call loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Result<LlmEvent, LlmError>> {
        match self.read.pop_front() {
            Some(event) => Some(event),
            None if self.has_ended => None,
            None => self.stream.next().await,
        }
    }

    /// Reads ahead while it is polled. It never ends, and dropping it loses nothing.
    pub(crate) async fn read_on(&mut self) {
        while !self.has_ended && self.read.len() < MOST {
            match self.stream.next().await {
                Some(event) => self.read.push_back(event),
                None => self.has_ended = true,
            }
        }
        std::future::pending().await
    }
}

/// Reads a stream ahead, if there is one.
pub(crate) async fn read_on(ahead: &mut Option<Ahead>) {
    match ahead {
        Some(ahead) => ahead.read_on().await,
        None => std::future::pending().await,
    }
}
