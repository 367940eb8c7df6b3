//! An answer and its bytes on the wire: the frames of a stream, or one JSON object. Pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::MODEL;

/// Arguments are streamed in fragments of at most this many bytes.
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
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.prompt_tokens += other.prompt_tokens;
        self.completion_tokens += other.completion_tokens;
        self.total_tokens += other.total_tokens;
    }
}

/// What to answer, before it has ids.
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

/// One delta per word.
pub(crate) fn prose(text: &str) -> Vec<String> {
    text.split_inclusive(' ').map(str::to_owned).collect()
}

/// `w0 w1 w2 …`, one delta per word.
pub(crate) fn words(count: u32) -> Vec<String> {
    (0..count).map(|n| if n == 0 { "w0".to_owned() } else { format!(" w{n}") }).collect()
}

/// A complete answer.
pub(crate) struct Answer {
    id: String,
    draft: Draft,
    finish_reason: String,
    pub(crate) usage: Usage,
}

impl Answer {
    /// Ids come from the request's hash, so the same body gives the same answer.
    pub(crate) fn new(mut draft: Draft, sha256: &[u8; 32], body_bytes: usize) -> Self {
        let hash = hex::encode(&sha256[..12]);
        for (index, call) in draft.calls.iter_mut().enumerate() {
            call.id.get_or_insert_with(|| format!("call_{}_{index}", &hash[..16]));
        }
        let spoken = draft.reasoning.iter().chain(&draft.text).map(String::len);
        let called = draft.calls.iter().map(|call| call.name.len() + call.arguments.len());
        let answer_bytes: usize = spoken.chain(called).sum();
        let usage = usage(body_bytes, answer_bytes);
        let reason = if draft.calls.is_empty() { "stop" } else { "tool_calls" };
        let finish_reason = draft.finish_reason.take().unwrap_or_else(|| reason.to_owned());
        Self { id: format!("chatcmpl-sim-{hash}"), draft, finish_reason, usage }
    }

    /// The answer as one JSON object.
    pub(crate) fn whole(&self) -> Bytes {
        let text = self.draft.text.concat();
        let message = WholeMessage {
            role: "assistant",
            content: (!text.is_empty() || self.draft.calls.is_empty()).then_some(text),
            reasoning_content: some_text(self.draft.reasoning.concat()),
            tool_calls: self.draft.calls.iter().map(WireCall::whole).collect(),
        };
        json(&Envelope {
            id: &self.id,
            object: "chat.completion",
            created: 0,
            model: MODEL,
            system_fingerprint: MODEL,
            choices: &[Choice {
                index: 0,
                message: Some(message),
                delta: None,
                finish_reason: Some(&self.finish_reason),
            }],
            usage: Some(self.usage),
        })
        .into()
    }

    /// The answer as the frames of a stream.
    pub(crate) fn frames(self, include_usage: bool) -> Frames {
        let mut frames = vec![Frame::Role];
        frames.extend(self.draft.reasoning.into_iter().map(Frame::Reasoning));
        frames.extend(self.draft.text.into_iter().map(Frame::Text));
        for (index, call) in self.draft.calls.into_iter().enumerate() {
            let id = call.id.unwrap_or_default();
            frames.push(Frame::CallStart { index, id, name: call.name });
            let fragments = fragments(&call.arguments);
            frames.extend(fragments.map(|part| Frame::CallArguments { index, part }));
        }
        let until_finish = frames.len();
        frames.push(Frame::Finish(self.finish_reason));
        frames.extend(include_usage.then_some(Frame::Usage(self.usage)));
        frames.push(Frame::Done);
        Frames { id: self.id, frames: frames.into_iter(), until_finish }
    }
}

fn usage(body_bytes: usize, answer_bytes: usize) -> Usage {
    let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
    let (prompt_tokens, completion_tokens) = (tokens(body_bytes), tokens(answer_bytes));
    Usage { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens }
}

/// At least two fragments where there are two characters, so that clients must join them.
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

/// One event of a stream.
pub(crate) enum Frame {
    Role,
    Reasoning(String),
    Text(String),
    CallStart { index: usize, id: String, name: String },
    CallArguments { index: usize, part: String },
    Finish(String),
    Usage(Usage),
    Done,
}

/// The frames of one answer, encoded when they are sent.
pub(crate) struct Frames {
    id: String,
    frames: std::vec::IntoIter<Frame>,
    /// How many frames come before the finish.
    pub(crate) until_finish: usize,
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        self.frames.next()
    }
}

impl Frames {
    /// The server-sent event of `frame`.
    pub(crate) fn encode(&self, frame: &Frame) -> Bytes {
        let (delta, finish_reason) = match frame {
            Frame::Role => {
                (Delta { role: Some("assistant"), content: Some(""), ..Delta::default() }, None)
            }
            Frame::Reasoning(text) => {
                (Delta { reasoning_content: Some(text), ..Delta::default() }, None)
            }
            Frame::Text(text) => (Delta { content: Some(text), ..Delta::default() }, None),
            Frame::CallStart { index, id, name } => {
                let call = WireCall::part(*index, Some(id), Some(name), "");
                (Delta { tool_calls: Some([call]), ..Delta::default() }, None)
            }
            Frame::CallArguments { index, part } => {
                let call = WireCall::part(*index, None, None, part);
                (Delta { tool_calls: Some([call]), ..Delta::default() }, None)
            }
            Frame::Finish(reason) => (Delta::default(), Some(reason.as_str())),
            Frame::Usage(usage) => return self.event(&[], Some(*usage)),
            Frame::Done => return Bytes::from_static(b"data: [DONE]\n\n"),
        };
        self.event(&[Choice { index: 0, message: None, delta: Some(delta), finish_reason }], None)
    }

    fn event(&self, choices: &[Choice<'_>], usage: Option<Usage>) -> Bytes {
        let chunk = json(&Envelope {
            id: &self.id,
            object: "chat.completion.chunk",
            created: 0,
            model: MODEL,
            system_fingerprint: MODEL,
            choices,
            usage,
        });
        let mut event = Vec::with_capacity(chunk.len() + 8);
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&chunk);
        event.extend_from_slice(b"\n\n");
        event.into()
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'static str,
    system_fingerprint: &'static str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<WholeMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<Delta<'a>>,
    finish_reason: Option<&'a str>,
}

#[derive(Serialize)]
struct WholeMessage<'a> {
    role: &'static str,
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<WireCall<'a>>,
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[WireCall<'a>; 1]>,
}

#[derive(Serialize)]
struct WireCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: WireFunction<'a>,
}

#[derive(Serialize)]
struct WireFunction<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

impl<'a> WireCall<'a> {
    fn whole(call: &'a DraftCall) -> Self {
        let function = WireFunction { name: Some(&call.name), arguments: &call.arguments };
        Self { index: None, id: call.id.as_deref(), kind: Some("function"), function }
    }

    /// A part of a streamed call; its first part has an id.
    fn part(index: usize, id: Option<&'a str>, name: Option<&'a str>, arguments: &'a str) -> Self {
        let kind = id.map(|_| "function");
        Self { index: Some(index), id, kind, function: WireFunction { name, arguments } }
    }
}

fn some_text(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings and numbers always serialise")
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

    #[test]
    fn a_frame_is_a_labelled_event() {
        let draft = Draft { text: words(1), ..Draft::default() };
        let frames = Answer::new(draft, &[1; 32], 5).frames(false);
        let event = frames.encode(&Frame::Text("a\"b".to_owned()));
        let expected = concat!(
            r#"data: {"id":"chatcmpl-sim-010101010101010101010101","object":"chat.completion.chunk","#,
            r#""created":0,"model":"simulated","system_fingerprint":"simulated","choices":[{"index":0,"#,
            r#""delta":{"content":"a\"b"},"finish_reason":null}]}"#,
            "\n\n"
        );
        assert_eq!(event, expected);
    }
}
