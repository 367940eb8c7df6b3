//! The protocols that the simulated model speaks. Each reads its bodies into the one [`Request`] and writes the same
//! frames in its own way.

mod anthropic;
mod bedrock;
pub(crate) mod chat;
mod gemini;
mod json;
mod refusal;
mod responses;
mod turns;

use bytes::Bytes;
use serde_json::Value;

use crate::answer::{Answer, Frame, Usage};
use crate::cache::Pieces;
use crate::request::Request;
use crate::signature::sign;

pub(crate) use refusal::{Refusal, TooLong};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    Chat,
    Responses,
    Anthropic,
    Gemini,
    Bedrock,
}

/// A request, with the pieces of its prompt that a cache may hold.
pub(crate) struct Read<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) pieces: Pieces,
}

impl Protocol {
    /// Returns the protocol's name, which signatures include.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
        }
    }

    /// Reads a body. `model` is the model in the path, for protocols that have it there. The error can be shown to
    /// the client.
    pub(crate) fn parse<'a>(self, body: &'a [u8], model: &str) -> Result<Read<'a>, String> {
        match self {
            Self::Chat => Ok(Read { request: chat::parse(body)?, pieces: Pieces::default() }),
            Self::Responses => responses::parse(&json::body(body)?),
            Self::Anthropic => anthropic::parse(&json::body(body)?),
            Self::Gemini => gemini::parse(&json::body(body)?, model),
            Self::Bedrock => bedrock::parse(&json::body(body)?, model),
        }
    }

    /// Returns the writer of `answer`.
    pub(crate) fn writer(self, answer: &Answer) -> Writer {
        match self {
            Self::Chat => Writer::Chat(chat::Writer::new(answer.id.clone())),
            Self::Responses => Writer::Responses(responses::Writer::new(Ending::of(answer))),
            Self::Anthropic => Writer::Anthropic(anthropic::Writer::new(Ending::of(answer))),
            Self::Gemini => {
                let calls = answer.draft.calls.iter();
                let calls = calls.map(|call| (call.id.clone(), call.name.clone())).collect();
                Writer::Gemini(gemini::Writer::new(Ending::of(answer), calls))
            }
            Self::Bedrock => Writer::Bedrock(bedrock::Writer::new(Ending::of(answer))),
        }
    }

    /// Returns the content type of its streams.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Chat | Self::Responses | Self::Anthropic | Self::Gemini => "text/event-stream",
            Self::Bedrock => "application/vnd.amazon.eventstream",
        }
    }

    /// Returns whether arguments come in fragments.
    pub(crate) fn streams_arguments(self) -> bool {
        match self {
            Self::Chat | Self::Responses | Self::Anthropic | Self::Bedrock => true,
            Self::Gemini => false,
        }
    }

    /// Returns whether the reason of the finish is a separate event before the last.
    pub(crate) fn finishes_apart(self) -> bool {
        match self {
            Self::Chat | Self::Anthropic | Self::Bedrock => true,
            Self::Responses | Self::Gemini => false,
        }
    }

    /// Returns whether the answer that a request allows counts towards the context, beside the prompt.
    pub(crate) fn counts_the_answer(self) -> bool {
        match self {
            Self::Chat | Self::Anthropic | Self::Bedrock => true,
            Self::Responses | Self::Gemini => false,
        }
    }

    /// Returns whether prompts without marks are cached.
    pub(crate) fn caches_unasked(self) -> bool {
        match self {
            Self::Responses | Self::Gemini => true,
            Self::Chat | Self::Anthropic | Self::Bedrock => false,
        }
    }

    /// Returns the signature that its calls require later, and the ids of those calls.
    pub(crate) fn signs(self, answer: &Answer) -> Option<(String, Vec<String>)> {
        let reasoning = answer.draft.reasoning.concat();
        if reasoning.is_empty() || self == Self::Chat {
            return None;
        }
        let ids = answer.draft.calls.iter().filter_map(|call| call.id.clone()).collect();
        Some((sign(self.id(), &reasoning), ids))
    }
}

/// The part of an answer that writers report at the end, or already at the start.
pub(crate) struct Ending {
    id: String,
    finish_reason: String,
    usage: Usage,
    told_usage: Option<Value>,
    reasoning_tokens: u64,
}

impl Ending {
    fn of(answer: &Answer) -> Self {
        let (id, finish_reason) = (answer.id.clone(), answer.finish_reason.clone());
        let reasoning_tokens = answer.reasoning_tokens;
        let told_usage = answer.told_usage.clone();
        Self { id, finish_reason, usage: answer.usage, told_usage, reasoning_tokens }
    }

    /// Returns a script's usage, otherwise the counted one.
    fn usage(&self, counted: Value) -> Value {
        self.told_usage.clone().unwrap_or(counted)
    }

    /// Returns the id with another protocol's prefix.
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.id.trim_start_matches("chatcmpl-"))
    }
}

/// A writer of one answer's frames.
pub(crate) enum Writer {
    Chat(chat::Writer),
    Responses(responses::Writer),
    Anthropic(anthropic::Writer),
    Gemini(gemini::Writer),
    Bedrock(bedrock::Writer),
}

impl Writer {
    /// Returns the bytes of the next frame.
    pub(crate) fn encode(&mut self, frame: &Frame) -> Bytes {
        match self {
            Self::Chat(writer) => writer.encode(frame),
            Self::Responses(writer) => writer.encode(frame),
            Self::Anthropic(writer) => writer.encode(frame),
            Self::Gemini(writer) => writer.encode(frame),
            Self::Bedrock(writer) => writer.encode(frame),
        }
    }
}
