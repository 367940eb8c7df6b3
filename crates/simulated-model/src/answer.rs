//! An answer, and the frames of its stream in every protocol. Pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::{Protocol, Writer};

/// The most bytes in one streamed fragment of arguments.
const FRAGMENT_BYTES: usize = 1024;

/// Tokens of one answer, as the simulated model counts them: a token is four bytes, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// A quarter of the request body's bytes.
    pub prompt_tokens: u64,
    /// A quarter of the answer's bytes: text, reasoning, tool names and arguments.
    pub completion_tokens: u64,
    /// The sum of both.
    pub total_tokens: u64,
    /// Prompt tokens that an earlier request has put into the cache. Never in chat completions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    /// Prompt tokens that this request's marks put into the cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.total_tokens += other.total_tokens;
        self.cache_read_tokens += other.cache_read_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
    }
}

/// The content of an answer, before it has ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) reasoning: Vec<String>,
    pub(crate) text: Vec<String>,
    pub(crate) calls: Vec<DraftCall>,
    pub(crate) finish_reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraftCall {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) id: Option<String>,
}

/// Splits a text into one delta per word.
pub(crate) fn prose(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

/// Returns `w0 w1 w2 …`, one delta per word.
pub(crate) fn words(count: u32) -> Vec<String> {
    (0..count).map(|n| if n == 0 { "w0".to_owned() } else { format!(" w{n}") }).collect()
}

/// A complete answer.
pub(crate) struct Answer {
    pub(crate) id: String,
    pub(crate) draft: Draft,
    pub(crate) finish_reason: String,
    pub(crate) usage: Usage,
    /// The usage to report instead, if a script sets one.
    pub(crate) told_usage: Option<Value>,
    /// The tokens of the completion that are reasoning.
    pub(crate) reasoning_tokens: u64,
}

impl Answer {
    /// Gives the draft ids made from the request's hash, so that the same body gives the same answer.
    pub(crate) fn new(mut draft: Draft, sha256: &[u8; 32], body_bytes: usize) -> Self {
        let hash = hex::encode(&sha256[..12]);
        for (index, call) in draft.calls.iter_mut().enumerate() {
            call.id.get_or_insert_with(|| format!("call_{}_{index}", &hash[..16]));
        }
        let reasoning_bytes: usize = draft.reasoning.iter().map(String::len).sum();
        let text_bytes: usize = draft.text.iter().map(String::len).sum();
        let called = draft.calls.iter().map(|call| call.name.len() + call.arguments.len());
        let answer_bytes = reasoning_bytes + text_bytes + called.sum::<usize>();
        let usage = usage(body_bytes, answer_bytes);
        let reason = if draft.calls.is_empty() { "stop" } else { "tool_calls" };
        let finish_reason = draft.finish_reason.take().unwrap_or_else(|| reason.to_owned());
        let id = format!("chatcmpl-sim-{hash}");
        let reasoning_tokens = tokens(reasoning_bytes);
        Self { id, draft, finish_reason, usage, told_usage: None, reasoning_tokens }
    }

    /// Returns the frames of the answer's stream. Chat only sends usage to clients that ask for it.
    pub(crate) fn frames(self, protocol: Protocol, include_usage: bool) -> Frames {
        let writer = protocol.writer(&self);
        let usage = self.told_usage.map_or(ToldUsage::Counted(self.usage), ToldUsage::Scripted);
        let mut frames = vec![Frame::Role];
        frames.extend(self.draft.reasoning.into_iter().map(Frame::Reasoning));
        frames.extend(self.draft.text.into_iter().map(Frame::Text));
        for (index, call) in self.draft.calls.into_iter().enumerate() {
            if !protocol.streams_arguments() {
                frames.push(Frame::CallArguments { index, part: call.arguments });
                continue;
            }
            let id = call.id.unwrap_or_default();
            frames.push(Frame::CallStart { index, id, name: call.name });
            let fragments = fragments(&call.arguments);
            frames.extend(fragments.map(|part| Frame::CallArguments { index, part }));
        }
        let until_finish = frames.len();
        if protocol.finishes_apart() {
            frames.push(Frame::Finish(self.finish_reason));
        }
        let is_chat = protocol == Protocol::Chat;
        let usage_at_end = usage.counted().filter(|_| !is_chat);
        frames.extend((is_chat && include_usage).then_some(Frame::Usage(usage)));
        frames.push(Frame::Done);
        Frames { writer, frames: frames.into_iter(), until_finish, usage_at_end }
    }
}

/// Returns the tokens of so many bytes: a token is four bytes, rounded up.
pub(crate) fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

fn usage(body_bytes: usize, answer_bytes: usize) -> Usage {
    let (prompt_tokens, completion_tokens) = (tokens(body_bytes), tokens(answer_bytes));
    let total_tokens = prompt_tokens + completion_tokens;
    Usage { prompt_tokens, completion_tokens, total_tokens, ..Usage::default() }
}

/// Splits arguments of two or more characters into at least two fragments, so that clients must join them.
fn fragments(arguments: &str) -> impl Iterator<Item = String> {
    let size = arguments.len().div_ceil(2).clamp(1, FRAGMENT_BYTES);
    let mut rest = arguments;
    std::iter::from_fn(move || {
        let end = (size..rest.len()).find(|&at| rest.is_char_boundary(at)).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        rest = tail;
        (!part.is_empty()).then(|| part.to_owned())
    })
    .collect::<Vec<_>>()
    .into_iter()
}

/// The usage that an answer reports.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum ToldUsage {
    /// The counted usage.
    Counted(Usage),
    /// The usage of a script.
    Scripted(Value),
}

impl ToldUsage {
    pub(crate) fn counted(&self) -> Option<Usage> {
        match self {
            Self::Counted(usage) => Some(*usage),
            Self::Scripted(_) => None,
        }
    }
}

/// One step of a stream, which is one event of chat. Other protocols may need several events for it.
pub(crate) enum Frame {
    Role,
    Reasoning(String),
    Text(String),
    CallStart { index: usize, id: String, name: String },
    CallArguments { index: usize, part: String },
    Finish(String),
    Usage(ToldUsage),
    Done,
}

/// The frames of one answer, encoded when they are sent.
pub(crate) struct Frames {
    writer: Writer,
    frames: std::vec::IntoIter<Frame>,
    /// The number of frames before the finish.
    pub(crate) until_finish: usize,
    /// The usage in the last frame, if it has any.
    pub(crate) usage_at_end: Option<Usage>,
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        self.frames.next()
    }
}

impl Frames {
    /// Returns the bytes of the next frame.
    pub(crate) fn encode(&mut self, frame: &Frame) -> Bytes {
        self.writer.encode(frame)
    }
}

pub(crate) fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_join_to_the_arguments() {
        for text in ["", "{", "{}", "{\"a\":\"ééé\"}", &"é".repeat(3000)] {
            let parts: Vec<_> = fragments(text).collect();
            assert_eq!(parts.concat(), text);
            assert!(text.chars().count() < 2 || parts.len() >= 2);
        }
    }
}
