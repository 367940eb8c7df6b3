//! Reads server-sent events like a script: lines into frames.

use std::collections::VecDeque;
use std::pin::Pin;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt};
use serde_json::Value;

/// The largest frame, in bytes. None of our streams has a larger one.
const MAX_FRAME_BYTES: usize = 8 * 1024 * 1024;

/// One frame of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Its `id`, if it has one: a sequence number of the log.
    pub id: Option<i64>,
    /// Its `event`; empty if it has none.
    pub event: String,
    /// Its `data`.
    pub data: Value,
}

/// A stream of frames. Dropping it closes the connection.
pub struct Follow {
    body: Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>> + Send>>,
    text: Vec<u8>,
    frames: VecDeque<Frame>,
}

impl Follow {
    pub(crate) fn new(response: reqwest::Response) -> Self {
        let body = response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec()));
        Self { body: Box::pin(body), text: Vec::new(), frames: VecDeque::new() }
    }

    /// Returns the next frame; `None` when the stream has ended cleanly. Comments (pings) are skipped.
    ///
    /// # Errors
    /// When the connection breaks, or the stream is malformed.
    pub async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(Some(frame));
            }
            let Some(piece) = self.body.next().await else { return Ok(None) };
            self.text.extend(piece.context("the stream broke")?);
            anyhow::ensure!(self.text.len() <= MAX_FRAME_BYTES, "a frame has no end");
            while let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = self.text.drain(..end + 2).collect();
                self.frames.extend(parse(std::str::from_utf8(&frame)?)?);
            }
        }
    }
}

fn parse(text: &str) -> Result<Option<Frame>> {
    let (mut id, mut event, mut data) = (None, String::new(), String::new());
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", value)) => {
                // The number, and the incarnation of its session.
                id = Some(value.split_once('.').map_or(value, |(seq, _)| seq).parse()?);
            }
            Some(("event", value)) => event = value.to_owned(),
            Some(("data", value)) => data.push_str(value),
            _ => {}
        }
    }
    if data.is_empty() {
        return Ok(None);
    }
    let data = serde_json::from_str(&data).with_context(|| format!("no JSON: {data}"))?;
    Ok(Some(Frame { id, event, data }))
}
