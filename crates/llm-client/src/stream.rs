//! The stream of an answer's events.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use llm_protocol::{
    DecodeError, Decoder, Delivery, ErrorReason, FinishReason, Framer, LlmEvent, Protocol, Usage,
    classify_in_stream, stated_error, value_of,
};
use reqwest::header::HeaderMap;
use tokio::time::Instant;

use crate::client::{add_limit_wait, redacted, request_id};
use crate::error::LlmError;
use crate::secret::Redactor;
use crate::transport::{TransportError, WireResponse};
use crate::whole;

/// The longest wait for the end of a body after the end of the answer. Only a connection whose body was read
/// to its end can be used again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(10);

/// The longest wait for counts after the model has stopped. Some servers neither end their streams nor close the
/// connection.
const COUNTS_TIMEOUT: Duration = Duration::from_secs(4);

/// The events of one answer. It ends after `Finish` or the first error; events that came whole before an
/// error are yielded first. Dropping it aborts the request.
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

    /// Returns the provider's id of the request, for support cases.
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

/// The bounds of an answer, and the size of its request for estimates.
pub(crate) struct Bounds {
    /// The longest silence between two chunks.
    pub(crate) silence: Duration,
    /// The most bytes of the whole answer.
    pub(crate) max_bytes: usize,
    /// The bytes of the request, for estimates of usage.
    pub(crate) asked_bytes: usize,
}

/// The most bytes of a body without frames that are kept, because it may be an error or a whole answer.
const MAX_START_BYTES: usize = 16 * 1024 * 1024;
/// The bytes per token in an estimate, when the usage is unknown.
const BYTES_PER_TOKEN: usize = 4;

/// Reads chunks, cuts them into frames and decodes the frames.
pub(crate) struct Reading {
    protocol: Protocol,
    body: BoxStream<'static, Result<Bytes, TransportError>>,
    framer: Framer,
    /// `None` after the answer ended.
    decoder: Option<Decoder>,
    ready: VecDeque<LlmEvent>,
    failed: Option<LlmError>,
    bounds: Bounds,
    bytes_left: usize,
    /// The number of frames read.
    frames: usize,
    /// The start of a body that has no frame yet.
    start: Vec<u8>,
    /// The bytes that the model wrote.
    said_bytes: usize,
    /// The model has stopped, and the answer ends then whatever else comes.
    ends_at: Option<Instant>,
    /// The model said more after it had stopped: its server says that it stops with each piece.
    stops_often: bool,
    redactor: Redactor,
    status: u16,
    request_id: Option<String>,
}

impl Reading {
    pub(crate) fn new(
        protocol: Protocol,
        framer: Framer,
        decoder: Decoder,
        redactor: Redactor,
        bounds: Bounds,
        response: WireResponse,
    ) -> Self {
        Self {
            protocol,
            body: response.body,
            framer,
            decoder: Some(decoder),
            ready: VecDeque::new(),
            failed: None,
            bytes_left: bounds.max_bytes,
            bounds,
            frames: 0,
            start: Vec::new(),
            said_bytes: 0,
            ends_at: None,
            stops_often: false,
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

    /// Reads one chunk. Keeps the decoder only while the answer continues.
    async fn read(&mut self, mut decoder: Decoder) -> Result<(), LlmError> {
        let silence = Instant::now() + self.bounds.silence;
        let until = self.ends_at.map_or(silence, |ends_at| ends_at.min(silence));
        let chunk = match tokio::time::timeout_at(until, self.body.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => {
                self.decode_rest(&mut decoder)?;
                return self.end(decoder, None);
            }
            Ok(Some(Err(error))) => return self.end(decoder, Some(error.into())),
            Err(_) if self.ends_at.is_some() => return self.end(decoder, None),
            Err(_) => {
                let waited = format!("nothing more came for {:?}", self.bounds.silence);
                let error = LlmError::transport(Delivery::Accepted, &waited);
                return self.end(decoder, Some(error));
            }
        };
        self.count(chunk.len())?;
        if self.frames == 0 {
            let room = MAX_START_BYTES - self.start.len();
            self.start.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        let mut frames = Vec::new();
        let framed = self.framer.push_into(&chunk, &mut frames);
        self.decode_frames(&mut decoder, frames)?;
        framed.map_err(|error| self.broken(error))?;
        if decoder.is_done() {
            self.drain().await;
            return self.end(decoder, None);
        }
        if self.stops_often {
            self.ends_at = None;
        } else if decoder.has_stopped() {
            self.ends_at.get_or_insert_with(|| Instant::now() + COUNTS_TIMEOUT);
        }
        self.decoder = Some(decoder);
        Ok(())
    }

    fn decode_frames(
        &mut self,
        decoder: &mut Decoder,
        frames: Vec<String>,
    ) -> Result<(), LlmError> {
        for data in frames {
            let had_stopped = decoder.has_stopped();
            let events = decoder.push(&data).map_err(|error| {
                let mut error = self.broken(error);
                add_limit_wait(&mut error.reason, &HeaderMap::new(), &data);
                error
            })?;
            let said = events.iter().map(said_bytes).sum::<usize>();
            self.said_bytes += said;
            self.stops_often |= had_stopped && said > 0;
            self.ready.extend(events);
            self.frames += 1;
            self.start = Vec::new();
        }
        Ok(())
    }

    /// Decodes what a body holds at its proper end: a last event without its end, or a whole answer in place of a stream.
    fn decode_rest(&mut self, decoder: &mut Decoder) -> Result<(), LlmError> {
        let mut frames = self.framer.end_stream();
        if self.frames == 0
            && frames.is_empty()
            && let Some(events) = whole::make_events(self.protocol, &self.start)
        {
            self.framer.push_into(&events, &mut frames).map_err(|error| self.broken(error))?;
        }
        self.decode_frames(decoder, frames)
    }

    /// Converts a decoding error. After good frames, a bad one means damage, not another protocol.
    fn broken(&self, error: DecodeError) -> LlmError {
        if self.frames > 0 { error.after_good_frames().into() } else { error.into() }
    }

    fn count(&mut self, bytes: usize) -> Result<(), LlmError> {
        let left = self.bytes_left.checked_sub(bytes).ok_or_else(|| {
            let message = format!("the answer exceeds {} bytes", self.bounds.max_bytes);
            LlmError::accepted(ErrorReason::InvalidOutput { incomplete_stream: false }, &message)
        })?;
        self.bytes_left = left;
        Ok(())
    }

    /// Reads the body to its end if that is already there, so that the connection can be reused.
    async fn drain(&mut self) {
        let rest = async {
            while let Some(Ok(chunk)) = self.body.next().await {
                if self.count(chunk.len()).is_err() {
                    break;
                }
            }
        };
        // If the end is late or broken, the connection closes instead. Nothing else is lost.
        let _late = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }

    /// Ends the answer. A body that breaks after a whole answer does no harm. Before that, the cause of the
    /// break is a better error than "incomplete".
    fn end(&mut self, decoder: Decoder, cause: Option<LlmError>) -> Result<(), LlmError> {
        self.body = stream::empty().boxed();
        // The stream gave the finish reason but not its end. The rest is lost, such as the usage.
        let torn = !decoder.is_done();
        match decoder.finish() {
            Ok(mut events) => {
                self.said_bytes += events.iter().map(said_bytes).sum::<usize>();
                check_end(&events)?;
                self.check_said(&events)?;
                let estimated = torn.then(|| self.estimated());
                for event in &mut events {
                    if let LlmEvent::StepFinish { usage, .. } | LlmEvent::Finish { usage, .. } =
                        event
                    {
                        *usage = usage.or(estimated);
                    }
                }
                self.ready.extend(events);
                Ok(())
            }
            Err(error) => Err(cause.or_else(|| self.stated()).unwrap_or_else(|| error.into())),
        }
    }

    /// Refuses an answer without any output and with an unknown finish reason.
    fn check_said(&self, events: &[LlmEvent]) -> Result<(), LlmError> {
        let reason = events.iter().find_map(|event| {
            if let LlmEvent::Finish { reason, .. } = event { Some(*reason) } else { None }
        });
        let problem = match reason {
            _ if self.said_bytes > 0 => return Ok(()),
            Some(FinishReason::Unknown) => ErrorReason::InvalidOutput { incomplete_stream: true },
            Some(
                FinishReason::Stop
                | FinishReason::Length
                | FinishReason::ToolCalls
                | FinishReason::ContentFilter
                | FinishReason::Error,
            )
            | None => return Ok(()),
        };
        let message = "the answer is empty, and why the model stopped is not known";
        Err(LlmError::accepted(problem, message))
    }

    /// Estimates the usage of an answer whose count was lost.
    fn estimated(&self) -> Usage {
        let tokens =
            |bytes: usize| u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX);
        let (input_tokens, output_tokens) =
            (tokens(self.bounds.asked_bytes), tokens(self.said_bytes));
        let total_tokens = input_tokens.saturating_add(output_tokens);
        Usage { input_tokens, output_tokens, total_tokens, estimated: true, ..Usage::default() }
    }

    /// Returns the error in a body without frames: some servers send JSON with the media type of a stream.
    fn stated(&self) -> Option<LlmError> {
        let json = value_of(std::str::from_utf8(&self.start).ok()?).ok()?;
        let json = json.get(0).unwrap_or(&json); // Gemini wraps its error in a list of one
        let error = classify_in_stream(stated_error(json)?);
        Some(LlmError::accepted(error.reason, &error.message))
    }

    fn complete(&mut self, mut error: LlmError) -> LlmError {
        self.body = stream::empty().boxed(); // stop reading a failed answer
        error.status = Some(self.status);
        error.request_id = self.request_id.take();
        redacted(&self.redactor, error)
    }
}

/// Refuses an answer that the provider ended with an error. Another try may succeed; what came of this one is kept as that
/// of a stream that broke off.
fn check_end(events: &[LlmEvent]) -> Result<(), LlmError> {
    let is_failed =
        |event: &LlmEvent| matches!(event, LlmEvent::Finish { reason: FinishReason::Error, .. });
    if events.iter().any(is_failed) {
        let reason = ErrorReason::InvalidOutput { incomplete_stream: true };
        return Err(LlmError::accepted(reason, "the provider ended the answer with an error"));
    }
    Ok(())
}

/// Returns the number of bytes in an event that the model wrote.
fn said_bytes(event: &LlmEvent) -> usize {
    match event {
        LlmEvent::TextDelta { text, .. }
        | LlmEvent::ReasoningDelta { text, .. }
        | LlmEvent::ToolInputDelta { text, .. } => text.len(),
        LlmEvent::ToolInputStart { name, .. } => name.len(),
        LlmEvent::TextStart { .. }
        | LlmEvent::TextEnd { .. }
        | LlmEvent::ReasoningStart { .. }
        | LlmEvent::ReasoningEnd { .. }
        | LlmEvent::ToolInputEnd { .. }
        | LlmEvent::ToolCall(_)
        | LlmEvent::ToolResult(_)
        | LlmEvent::StepFinish { .. }
        | LlmEvent::Finish { .. } => 0,
    }
}
