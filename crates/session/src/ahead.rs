//! A provider's stream that is read on while a write is waited for.

use std::collections::VecDeque;

use futures::StreamExt;
use llm_client::{LlmError, LlmStream};
use llm_protocol::LlmEvent;

/// Events that are read ahead at most. A drain waits for Postgres for half a minute; few providers say more in it, and
/// one that does waits for us.
const MOST: usize = 16_384;

/// A stream, and what was read of it and is not taken in yet.
pub(crate) struct Ahead {
    stream: LlmStream,
    read: VecDeque<Result<LlmEvent, LlmError>>,
    has_ended: bool,
}

impl Ahead {
    pub(crate) fn of(stream: LlmStream) -> Self {
        Self { stream, read: VecDeque::new(), has_ended: false }
    }

    /// The next event; `None` at the stream's end. Dropped, it loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Result<LlmEvent, LlmError>> {
        match self.read.pop_front() {
            Some(event) => Some(event),
            None if self.has_ended => None,
            None => self.stream.next().await,
        }
    }

    /// Reads on, for as long as it is polled. It never ends, and loses nothing when it is dropped.
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

/// Reads a stream on, if there is one.
pub(crate) async fn read_on(ahead: &mut Option<Ahead>) {
    match ahead {
        Some(ahead) => ahead.read_on().await,
        None => std::future::pending().await,
    }
}
