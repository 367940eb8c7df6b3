//! The protocols that a model can be spoken to in.

use serde::{Deserialize, Serialize};

use crate::decode_error::DecodeError;
use crate::event::LlmEvent;
use crate::openai_chat;
use crate::request::LlmRequest;

/// A wire protocol: how a request becomes a body and a stream becomes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// OpenAI chat completions and what is compatible with it.
    #[serde(rename = "openai-chat")]
    OpenAiChat,
}

impl Protocol {
    /// The stable id: in configuration, rows, logs and `providerOptions`.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::OpenAiChat => openai_chat::ID,
        }
    }

    /// The version of the bytes that [`Protocol::encode`] writes.
    #[must_use]
    pub fn wire_version(self) -> u32 {
        match self {
            Self::OpenAiChat => openai_chat::WIRE_VERSION,
        }
    }

    /// The body to send; the same request gives the same bytes.
    #[must_use]
    pub fn encode(self, request: &LlmRequest) -> Vec<u8> {
        match self {
            Self::OpenAiChat => openai_chat::encode(request),
        }
    }

    /// A decoder for one answer.
    #[must_use]
    pub fn decoder(self) -> Decoder {
        match self {
            Self::OpenAiChat => Decoder::OpenAiChat(openai_chat::Decoder::new()),
        }
    }
}

/// The decoder of any protocol.
#[derive(Debug)]
pub enum Decoder {
    /// Of OpenAI chat.
    OpenAiChat(openai_chat::Decoder),
}

impl Decoder {
    /// Takes the data payload of one server-sent event.
    ///
    /// # Errors
    /// As the protocol's decoder says; the stream is over then.
    pub fn push(&mut self, data: &str) -> Result<Vec<LlmEvent>, DecodeError> {
        match self {
            Self::OpenAiChat(decoder) => decoder.push(data),
        }
    }

    /// Whether the stream has said that it is over.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match self {
            Self::OpenAiChat(decoder) => decoder.is_done(),
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if the answer is not whole.
    pub fn finish(self) -> Result<Vec<LlmEvent>, DecodeError> {
        match self {
            Self::OpenAiChat(decoder) => decoder.finish(),
        }
    }
}
