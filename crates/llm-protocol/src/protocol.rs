//! The wire protocols of models.

use serde::{Deserialize, Serialize};

use crate::anthropic_messages;
use crate::bedrock_converse;
use crate::decode_error::DecodeError;
use crate::dialect::Dialect;
use crate::event::LlmEvent;
use crate::framing::{Framer, Framing};
use crate::gemini;
use crate::openai_chat;
use crate::openai_responses;
use crate::request::LlmRequest;
use crate::state::StateOwner;
use body::{Source, Write};

pub(crate) mod body;

/// A protocol's description, from its module.
pub(crate) struct Spec {
    /// The stable id.
    pub(crate) id: &'static str,
    /// The version of its bytes.
    pub(crate) wire_version: u32,
    /// The default key of provider state.
    pub(crate) state_key: &'static str,
    /// How its streams are cut into frames.
    pub(crate) framing: Framing,
    /// The path to add to a base URL that has none.
    pub(crate) base_path: &'static str,
    /// Returns the request path for a model, below the base URL.
    pub(crate) path: fn(&str) -> String,
    /// Writes a body.
    pub(crate) write: Write,
}

/// Lists the protocols, one line each. Each module has `SPEC` and `Decoder`; nothing else names protocols.
macro_rules! protocols {
    ($($(#[$doc:meta])* $name:ident = $id:literal in $module:ident;)+) => {
        /// A wire protocol: how a request becomes a body and a stream becomes events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Protocol {
            $($(#[$doc])* #[serde(rename = $id)] $name,)+
        }

        impl Protocol {
            /// All protocols.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            fn spec(self) -> &'static Spec {
                match self { $(Self::$name => &$module::SPEC,)+ }
            }

            fn decoder_of(self, owner: StateOwner) -> Decoder {
                match self { $(Self::$name => Decoder::$name($module::Decoder::new(owner)),)+ }
            }
        }

        /// The decoder of any protocol.
        #[derive(Debug)]
        pub enum Decoder {
            $($(#[$doc])* $name($module::Decoder),)+
        }

        impl Decoder {
            /// Takes one frame (see [`Protocol::framing`]).
            ///
            /// # Errors
            /// Those of the protocol's decoder. The stream ends with an error.
            pub fn push(&mut self, frame: &str) -> Result<Vec<LlmEvent>, DecodeError> {
                match self { $(Self::$name(decoder) => decoder.push(frame),)+ }
            }

            /// Returns whether the stream has announced its end.
            #[must_use]
            pub fn is_done(&self) -> bool {
                match self { $(Self::$name(decoder) => decoder.is_done(),)+ }
            }

            /// Returns whether the model has stopped: only counts and the end of the stream may still come.
            #[must_use]
            pub fn has_stopped(&self) -> bool {
                match self { $(Self::$name(decoder) => decoder.has_stopped(),)+ }
            }

            /// Ends the stream.
            ///
            /// # Errors
            /// [`DecodeError::Truncated`] if the answer is incomplete.
            pub fn finish(self) -> Result<Vec<LlmEvent>, DecodeError> {
                match self { $(Self::$name(decoder) => decoder.finish(),)+ }
            }
        }
    };
}

protocols! {
    /// OpenAI chat completions and compatible servers.
    OpenAiChat = "openai-chat" in openai_chat;
    /// Amazon Bedrock's Converse API, over AWS's binary event stream.
    BedrockConverse = "bedrock-converse" in bedrock_converse;
    /// OpenAI responses and compatible servers.
    OpenAiResponses = "openai-responses" in openai_responses;
    /// Anthropic messages.
    AnthropicMessages = "anthropic-messages" in anthropic_messages;
    /// Gemini, of Google's Gemini API and of Vertex.
    Gemini = "gemini" in gemini;
}

impl Protocol {
    /// Returns the stable id, as in configuration, rows, logs and `providerOptions`.
    #[must_use]
    pub fn id(self) -> &'static str {
        self.spec().id
    }

    /// Returns the newest version of its bytes, which [`Protocol::encode`] writes.
    #[must_use]
    pub fn wire_version(self) -> u32 {
        self.spec().wire_version
    }

    /// Returns the default key of provider state (see [`Dialect::state_key`]).
    #[must_use]
    pub fn state_key(self) -> &'static str {
        self.spec().state_key
    }

    /// Returns how its streams are cut into frames.
    #[must_use]
    pub fn framing(self) -> Framing {
        self.spec().framing
    }

    /// Returns the path to add to a base URL that has none (`/v1`); empty if the protocol's paths begin at
    /// the root.
    #[must_use]
    pub fn base_path(self) -> &'static str {
        self.spec().base_path
    }

    /// Returns the request path for `model` below the base URL, percent-encoded. It may end with a query.
    #[must_use]
    pub fn path(self, model: &str) -> String {
        (self.spec().path)(model)
    }

    /// Returns the body to send. The same request and dialect give the same bytes in any build.
    #[must_use]
    pub fn encode_for(self, request: &LlmRequest, dialect: &Dialect) -> Vec<u8> {
        self.written(self.wire_version(), request, dialect)
    }

    /// Returns the body as an earlier build wrote it, by the wire version that is stored with it. `None` if
    /// no build of ours, or only a newer one, writes that version.
    #[must_use]
    pub fn encode_version(
        self,
        version: u32,
        request: &LlmRequest,
        dialect: &Dialect,
    ) -> Option<Vec<u8>> {
        (1..=self.wire_version())
            .contains(&version)
            .then(|| self.written(version, request, dialect))
    }

    fn written(self, version: u32, request: &LlmRequest, dialect: &Dialect) -> Vec<u8> {
        let owner = self.owner(&request.model, dialect);
        body::written(self.spec().write, Source { request, dialect, owner: &owner, version })
    }

    /// Returns the protocol with this id.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protocol| protocol.id() == id)
    }

    /// Returns the body to send to the protocol's owner.
    #[must_use]
    pub fn encode(self, request: &LlmRequest) -> Vec<u8> {
        self.encode_for(request, &Dialect::default())
    }

    /// Returns the owner of the provider state in an answer of `model`.
    #[must_use]
    pub fn owner(self, model: &str, dialect: &Dialect) -> StateOwner {
        StateOwner::new(dialect.state_key.as_deref().unwrap_or(self.state_key()), model)
    }

    /// Makes a decoder for one answer of `model`.
    #[must_use]
    pub fn decoder_for(self, model: &str, dialect: &Dialect) -> Decoder {
        self.decoder_of(self.owner(model, dialect))
    }

    /// Makes a decoder for one answer whose provider state is not needed.
    #[must_use]
    pub fn decoder(self) -> Decoder {
        self.decoder_for("", &Dialect::default())
    }

    /// Makes a framer for one answer.
    #[must_use]
    pub fn framer(self, max_frame_bytes: usize) -> Framer {
        self.framing().framer(max_frame_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_names_in_rows() {
        for protocol in Protocol::ALL {
            assert_eq!(Protocol::from_id(protocol.id()), Some(*protocol));
            assert_eq!(serde_json::to_string(protocol).unwrap(), format!("\"{}\"", protocol.id()));
        }
    }
}
