//! The answer as it comes.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use llm_protocol::{Decoder, Delivery, ErrorReason, Framer, LlmEvent};

use crate::client::{redacted, request_id};
use crate::error::LlmError;
use crate::options::Options;
use crate::secret::Redactor;
use crate::transport::{TransportError, WireResponse};

/// How long the end of a body may lag behind the end of the answer. Only a connection whose body was read to its
/// end is used again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(10);

/// The events of one answer. It ends after `Finish` or the first error, and whatever came whole before an error
/// is given first. Dropping it aborts the request.
pub struct LlmStream {
    request_id: Option<String>,
    events: BoxStream<'static, Result<LlmEvent, LlmError>>,
}

impl LlmStream {
    pub(crate) fn new(reading: Reading) -> Self {
        let request_id = reading.request_id.clone();
        let events = stream::unfold(reading, |mut reading| async {
            let event = reading.next().await?;
            Some((event, reading))
        });
        Self { request_id, events: events.fuse().boxed() }
    }

    /// The provider's id of the request, for its support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

impl fmt::Debug for LlmStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmStream").field("request_id", &self.request_id).finish_non_exhaustive()
    }
}

impl Stream for LlmStream {
    type Item = Result<LlmEvent, LlmError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}

/// Reads chunks, cuts them into frames and decodes these.
pub(crate) struct Reading {
    body: BoxStream<'static, Result<Bytes, TransportError>>,
    framer: Framer,
    /// None once the answer is over.
    decoder: Option<Decoder>,
    ready: VecDeque<LlmEvent>,
    failed: Option<LlmError>,
    idle_timeout: Duration,
    bytes_left: usize,
    max_bytes: usize,
    redactor: Redactor,
    status: u16,
    request_id: Option<String>,
}

impl Reading {
    pub(crate) fn new(
        framer: Framer,
        decoder: Decoder,
        redactor: Redactor,
        options: &Options,
        response: WireResponse,
    ) -> Self {
        Self {
            body: response.body,
            framer,
            decoder: Some(decoder),
            ready: VecDeque::new(),
            failed: None,
            idle_timeout: options.idle_timeout,
            bytes_left: options.max_response_bytes,
            max_bytes: options.max_response_bytes,
            redactor,
            status: response.status.as_u16(),
            request_id: request_id(&response.headers),
        }
    }

    async fn next(&mut self) -> Option<Result<LlmEvent, LlmError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let decoder = self.decoder.take()?;
            if let Err(error) = self.read(decoder).await {
                self.failed = Some(self.complete(error));
            }
        }
    }

    /// Takes one chunk. The decoder is kept only while the answer goes on.
    async fn read(&mut self, mut decoder: Decoder) -> Result<(), LlmError> {
        let chunk = match tokio::time::timeout(self.idle_timeout, self.body.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => return self.end(decoder, None),
            Ok(Some(Err(error))) => return self.end(decoder, Some(error.into())),
            Err(_) => {
                let waited = format!("nothing more came for {:?}", self.idle_timeout);
                let error = LlmError::transport(Delivery::Accepted, &waited);
                return self.end(decoder, Some(error));
            }
        };
        self.count(chunk.len())?;
        for data in self.framer.push(&chunk)? {
            self.ready.extend(decoder.push(&data)?);
        }
        if decoder.is_done() {
            self.drain().await;
            return self.end(decoder, None);
        }
        self.decoder = Some(decoder);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), LlmError> {
        let left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            let message = format!("the answer exceeds {} bytes", self.max_bytes);
            LlmError::accepted(ErrorReason::InvalidOutput { incomplete_stream: false }, &message)
        })?;
        self.bytes_left = left;
        Ok(())
    }

    /// Reads the body to its end, if it is there already, so that its connection can serve again.
    async fn drain(&mut self) {
        let rest = async {
            while let Some(Ok(chunk)) = self.body.next().await {
                if self.count(chunk.len()).is_err() {
                    break;
                }
            }
        };
        // Late or broken: the connection is closed instead, nothing else is lost.
        let _late = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }

    /// Ends the answer. A body that breaks after the answer was whole does no harm; before, how it broke is more
    /// telling than that it is incomplete.
    fn end(&mut self, decoder: Decoder, cause: Option<LlmError>) -> Result<(), LlmError> {
        self.body = stream::empty().boxed();
        match decoder.finish() {
            Ok(events) => {
                self.ready.extend(events);
                Ok(())
            }
            Err(error) => Err(cause.unwrap_or_else(|| error.into())),
        }
    }

    fn complete(&mut self, mut error: LlmError) -> LlmError {
        self.body = stream::empty().boxed(); // an answer that failed is not read on
        error.status = Some(self.status);
        error.request_id = self.request_id.take();
        redacted(&self.redactor, error)
    }
}
