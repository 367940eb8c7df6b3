//! The OpenAI responses protocol.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses> and its streaming events
//! (<https://platform.openai.com/docs/api-reference/responses-streaming>), and the recordings in `tests/recordings`.
//!
//! ```text
//! message(s) ─input→ items ─encode→ body │ frames ─decode→ items ─state→ providerMetadata ─input→ items
//! ```
//! State that goes back: the encrypted content and id of reasoning, the phase of a message, and, verbatim,
//! the items of hosted tools and others that the provider wants back. Ids of messages and calls do not go
//! back: a server that stores nothing does not know them.

mod calls;
mod decode;
mod encode;
mod frame;
mod hosted;
mod input;
mod item;
mod parts;

pub use decode::Decoder;

use crate::framing::Framing;
use crate::protocol::Spec;

/// The version of the written bytes; see [`crate::openai_chat::WIRE_VERSION`].
/// `tests/encode_openai_responses.rs` fails when bytes change under the same version.
///
/// - 1: a call's arguments are the model's text, even if it is not JSON.
/// - 2: arguments are one JSON object, as in the other protocols.
/// - 3: reasoning at the end of a message is left out.
pub const WIRE_VERSION: u32 = 3;

/// The last version that sent a call's arguments as the model wrote them.
const RAW_ARGUMENTS: u32 = 1;

/// The last version that sent reasoning that no item of its message follows.
const LONE_REASONING: u32 = 2;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "openai-responses";

pub(crate) const SPEC: Spec = Spec {
    id: ID,
    wire_version: WIRE_VERSION,
    state_key: "openai",
    framing: Framing::Sse,
    base_path: "/v1",
    path: |_| "responses".to_owned(),
    write: encode::write,
};
