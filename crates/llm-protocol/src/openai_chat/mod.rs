//! The OpenAI chat completions protocol, including the variations of compatible servers.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat> and the recordings in `tests/recordings`.
//! Each provider's quirk has a named function beside the code that handles it.

mod content;
mod decode;
mod details;
mod encode;
mod frame;
mod messages;
mod think_tags;
mod tool_calls;

pub use decode::Decoder;
pub use think_tags::THOUGHT_TAGS;

use crate::framing::Framing;
use crate::protocol::Spec;

/// The version of the written bytes. Request bodies are hashed, and later rebuilt from rows. Changing any
/// byte that we send needs a new version, and the old encoder stays as long as rows refer to it.
/// `tests/encode_openai_chat.rs` fails when bytes change under the same version.
///
/// - 1: a call's arguments are the model's text, even if it is not JSON.
/// - 2: arguments are one JSON object, as in the other protocols.
/// - 3: names and ids of calls have the characters and lengths that OpenAI accepts.
pub const WIRE_VERSION: u32 = 3;

/// The last version that sent a call's arguments as the model wrote them.
const RAW_ARGUMENTS: u32 = 1;

/// The last version that sent names and ids of calls as they came.
const RAW_NAMES: u32 = 2;

/// The protocol's id, and its key in a request's `providerOptions`.
pub const ID: &str = "openai-chat";

pub(crate) const SPEC: Spec = Spec {
    id: ID,
    wire_version: WIRE_VERSION,
    state_key: "openai",
    framing: Framing::Sse,
    base_path: "/v1",
    path: |_| "chat/completions".to_owned(),
    write: encode::write,
};
