//! The OpenAI chat completions protocol, and what compatible servers make of it.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat> and the recordings in
//! `tests/recordings`. Each provider's quirk is a named function beside the code that meets it.

mod content;
mod decode;
mod details;
mod encode;
mod frame;
mod messages;
mod tool_calls;

pub use decode::Decoder;
pub use encode::encode;
pub(crate) use encode::encode_for;

use crate::framing::Framing;
use crate::state::StateOwner;

/// The version of the bytes that [`encode`] writes. Request bodies are hashed and rebuilt from rows later:
/// changing a byte that we send needs a new version, and the encoder of the old one stays as long as rows
/// refer to it. `tests/encode_openai_chat.rs` fails when bytes change under the same version.
pub const WIRE_VERSION: u32 = 1;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "openai-chat";

pub(crate) const STATE_KEY: &str = "openai";
pub(crate) const FRAMING: Framing = Framing::Sse;
pub(crate) const BASE_PATH: &str = "/v1";

pub(crate) fn path(_model: &str) -> String {
    "chat/completions".to_owned()
}

pub(crate) fn decoder(owner: StateOwner) -> Decoder {
    Decoder::for_owner(owner)
}
