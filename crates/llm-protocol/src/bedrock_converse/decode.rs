//! Frames in, neutral events out. Does no I/O and reads no clock.

use serde_json::{Value, json};

use crate::bedrock_converse::block::Blocks;
use crate::bedrock_converse::frame::{Delta, Exception, Frame};
use crate::classify::classify_in_stream;
use crate::decode_error::DecodeError;
use crate::error::truncate;
use crate::event::{FinishReason, LlmEvent, Usage};
use crate::state::StateOwner;
use crate::surrogates::Halves;

/// Turns the frames of one answer into events.
///
/// The answer ends with its `metadata`, which comes after `messageStop`. If the stream stops between the two,
/// the answer is whole but its usage is unknown.
#[derive(Debug)]
pub struct Decoder {
    blocks: Blocks,
    halves: Halves,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
    done: bool,
}

impl Decoder {
    pub(crate) fn new(owner: StateOwner) -> Self {
        let (blocks, halves) = (Blocks::new(owner), Halves::default());
        Self { blocks, halves, reason: None, usage: None, done: false }
    }

    /// Takes one event, as [`crate::Framing::AwsEventStream`] writes it.
    ///
    /// # Errors
    /// The provider reports an error, the frame is not JSON of this protocol, or a bound is exceeded.
    pub fn push(&mut self, frame: &str) -> Result<Vec<LlmEvent>, DecodeError> {
        let mut events = Vec::new();
        if self.done {
            return Ok(events);
        }
        let mut mended = None;
        let (frame, _) = self.halves.read(frame, &mut mended, parse, Frame::keeps_raw)?;
        match frame {
            Frame::Start(begun) => {
                if let Some(start) = begun.start {
                    self.blocks.start(begun.content_block_index, start, &mut events)?;
                }
            }
            Frame::Delta(more) => {
                if let Some(delta) = more.delta {
                    self.push_delta(more.content_block_index, delta, &mut events)?;
                }
            }
            Frame::Stop(block) => self.blocks.stop(block.content_block_index, &mut events),
            Frame::MessageStop(stop) => {
                let reason = stop.stop_reason.and_then(|word| FinishReason::from_word(&word));
                self.reason = Some(reason.unwrap_or(FinishReason::Unknown));
                self.blocks.stop_all(&mut events);
            }
            Frame::Metadata(metadata) => {
                let usage = metadata.usage.map(|usage| usage.into_usage());
                self.usage = usage.filter(|usage| *usage != Usage::default()).or(self.usage);
                self.done = self.reason.is_some();
            }
            Frame::Exception(name, exception) => return Err(failed(&name, exception)),
            Frame::Unknown => {}
        }
        Ok(events)
    }

    /// Returns whether the stream has announced its end. Later frames are ignored.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns whether the model has stopped: only counts may still come.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.reason.is_some()
    }

    /// Ends the stream: closes parts that began after the message stopped, and returns `StepFinish` and
    /// `Finish`.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the message did not stop.
    pub fn finish(mut self) -> Result<Vec<LlmEvent>, DecodeError> {
        let mut reason = self.reason.ok_or(DecodeError::Truncated)?;
        let mut events = Vec::new();
        self.blocks.stop_all(&mut events);
        if reason == FinishReason::Stop && self.blocks.wants_results() {
            reason = FinishReason::ToolCalls; // a forced call
        }
        let usage = self.usage;
        events.push(LlmEvent::StepFinish { reason, usage });
        events.push(LlmEvent::Finish { reason, usage });
        Ok(events)
    }

    fn push_delta(
        &mut self,
        index: u64,
        delta: Delta<'_>,
        events: &mut Vec<LlmEvent>,
    ) -> Result<(), DecodeError> {
        if let Some(text) = delta.text {
            self.blocks.text(index, text.into_string(), events);
        }
        if let Some(reasoning) = delta.reasoning_content {
            self.blocks.reasoning(index, reasoning, events)?;
        }
        if let Some(input) = delta.tool_use.and_then(|call| call.input) {
            self.blocks.arguments(index, input.into_string(), events)?;
        }
        if let Some(pieces) = delta.tool_result {
            self.blocks.result(index, &pieces)?;
        }
        Ok(())
    }
}

fn failed(name: &str, exception: Exception<'_>) -> DecodeError {
    let name = exception.code.map_or_else(|| name.to_owned(), |code| code.into_string());
    let message = exception.message.map(|message| message.into_string());
    let message = message.filter(|message| !message.is_empty()).unwrap_or_else(|| name.clone());
    classify_in_stream(&json!({ "type": name, "message": message })).into()
}

/// Parses a frame. JSON that is not an object is ignored; anything else unreadable is not this protocol.
fn parse(frame: &str) -> Result<Frame<'_>, DecodeError> {
    let error = match serde_json::from_str(frame) {
        Ok(frame) => return Ok(frame),
        Err(error) => error,
    };
    match serde_json::from_str(frame) {
        Ok(Value::Object(_)) | Err(_) => {
            Err(DecodeError::malformed(format!("{error} in frame: {}", truncate(frame, 256))))
        }
        Ok(_) => Ok(Frame::Unknown),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
