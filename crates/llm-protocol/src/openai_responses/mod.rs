//! The OpenAI responses protocol.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses> and its streaming events
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>), and the recordings in `tests/recordings`.
//!
//! ```text
//! message(s) ─input→ items ─encode→ body │ frames ─decode→ items ─state→ providerMetadata ─input→ items
//! ```
//! State that goes back: the encrypted content and id of reasoning, the phase of a message, and the items of tools
//! that the provider ran, verbatim. Ids of messages and calls do not: to a server that stores nothing they are unknown.

mod calls;
mod decode;
mod encode;
mod frame;
mod hosted;
mod input;
mod item;
mod parts;

pub use decode::Decoder;
pub use encode::encode;
pub(crate) use encode::encode_for;

use crate::framing::Framing;
use crate::state::StateOwner;

/// The version of the bytes that [`encode`] writes; see [`crate::openai_chat::WIRE_VERSION`].
/// `tests/encode_openai_responses.rs` fails when bytes change under the same version.
pub const WIRE_VERSION: u32 = 1;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "openai-responses";

pub(crate) const STATE_KEY: &str = "openai";
pub(crate) const FRAMING: Framing = Framing::Sse;
pub(crate) const BASE_PATH: &str = "/v1";

pub(crate) fn path(_model: &str) -> String {
    "responses".to_owned()
}

pub(crate) fn decoder(owner: StateOwner) -> Decoder {
    Decoder::new(owner)
}
