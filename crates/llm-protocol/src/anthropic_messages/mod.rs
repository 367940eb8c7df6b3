//! The Anthropic messages protocol.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>, its streaming events
//! (<https://docs.anthropic.com/en/docs/build-with-claude/streaming>) and the recordings in `tests/recordings`.
//!
//! ```text
//! message(s) ─messages→ blocks ─encode→ body │ frames ─decode→ blocks ─state→ providerMetadata ─messages→ blocks
//! ```
//! State that goes back: the signature of reasoning, encrypted reasoning, and, verbatim, the blocks of hosted
//! tools and of conversation summaries.

mod block;
mod decode;
mod encode;
mod frame;
mod hosted;
mod messages;
mod options;

pub use decode::Decoder;

use crate::framing::Framing;
use crate::protocol::Spec;
use crate::state::StateOwner;

/// The version of the written bytes; see [`crate::openai_chat::WIRE_VERSION`].
/// `tests/encode_anthropic_messages.rs` fails when bytes change under the same version.
pub const WIRE_VERSION: u32 = 1;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "anthropic-messages";

const STATE_KEY: &str = "anthropic";

/// Returns whether the model is Anthropic's, on any host, and does not just speak their protocol.
fn is_anthropics(owner: &StateOwner) -> bool {
    owner.key() == STATE_KEY || owner.model().contains("claude")
}

pub(crate) const SPEC: Spec = Spec {
    id: ID,
    wire_version: WIRE_VERSION,
    state_key: STATE_KEY,
    framing: Framing::Sse,
    base_path: "/v1",
    path: |_| "messages".to_owned(),
    write: encode::write,
};
